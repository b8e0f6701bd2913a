"""A supervisor and its workers: no job is lost or charged twice if a process dies or hangs."""

import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tenure.jobs import Job
from tests.process.orders import boot
from tests.process.workshop import Workshop, on_each
from tests.rig.processes import Child
from tests.rig.sizes import SIZE
from tests.rig.spawn import alive

TTL = 1.5
# A machine that stands still may spoil one round; a bug spoils all of them.
ROUNDS = 8  # tries on a machine that may be busy with other tests


def supervised(shop: Workshop, *options: object, **settings: object) -> Child:
    """Start `tenure worker`, with these settings of the app."""
    environment = {
        "TENURE_URL": shop.site.url,
        "TENURE_NAMESPACE": shop.site.namespace,
        "TENURE_TEST_LEDGER": str(shop.ledger.path),
        "TENURE_REPLICA_TTL": str(TTL),
        **{f"TENURE_{name.upper()}": str(value) for name, value in settings.items()},
    }
    command = ("-m", "tenure", "worker", "tests.process.supervised_app:app", *map(str, options))
    return shop.site.fleet.start(*command, env=environment)


def pause(shop: Workshop, pid: int) -> None:
    """Stop one process, and not those that it has started."""

    def stop() -> list[int]:
        os.kill(pid, signal.SIGSTOP)
        return [pid]

    shop.site.pause(stop)


async def workers_of(shop: Workshop, number: int, without: Sequence[int] = ()) -> list[int]:
    """Return the pids of living worker processes, when there are so many."""

    async def living_workers() -> list[int]:
        replicas = [
            replica
            for replica in await shop.app.replicas()
            if replica.expires_in > 0 and not replica.dead
        ]
        pids = {int(replica.meta["pid"]) for replica in replicas} - set(without)
        living = [pid for pid in pids if alive(pid)]
        return living if len(living) >= number else []

    joined: list[int] = await shop.until(living_workers, f"{number} workers have joined")
    return joined


async def begun(shop: Workshop, *jobs: Job[Any], attempt: int) -> list[float]:
    """Return when the attempts with this number began."""
    return [line.boot for line in await shop.written("began", *jobs, attempt=attempt)]


async def enqueue_stays(shop: Workshop, gate: Path, number: int = 4) -> list[Job[Any]]:
    return await shop.app.enqueue_many(shop.tasks.stay.request(str(gate)) for _ in range(number))


# Deaths.


async def test_jobs_of_a_killed_child_run_elsewhere_at_once(shops: list[Workshop]):
    async def scenario(shop: Workshop) -> None:
        supervisor = supervised(shop, "--processes", 2)
        await workers_of(shop, 2)
        took: list[float] = []
        while not took or (min(took) > 1.5 and len(took) < ROUNDS):
            gate = shop.gate()
            jobs = await enqueue_stays(shop, gate)
            victim = (await shop.written("began", *jobs))[0].pid
            await workers_of(shop, 1, without=[victim])
            lost = [job for job in jobs if shop.lines("began", job, pid=victim)]
            killed = boot()
            os.kill(victim, signal.SIGKILL)
            took.append(max(await begun(shop, *lost, attempt=2)) - killed)
            gate.touch()
            await shop.finished(*jobs)
            for job in jobs:
                expected = (2, 1) if job in lost else (1, 0)
                assert (job.state, job.failures) == ("succeeded", 0)
                assert (job.attempt, job.losses) == expected
            await workers_of(shop, 2, without=[victim])
            assert f"worker process {victim} was killed by SIGKILL" in supervisor.stderr
            assert supervisor.stderr.count("was found dead by") == len(took), "once each"
            assert f":{victim}) was found dead by" in supervisor.stderr
            lines = [line for line in supervisor.stderr.splitlines() if "to run again" in line]
            assert all(job.id in "".join(lines) for job in lost)
        assert min(took) <= 1.5, f"{shop.site.family}: {took}"

    await on_each(shops, scenario)


async def test_a_process_that_a_handler_started_does_not_hide_the_death_of_its_child(
    shops: list[Workshop],
):
    async def scenario(shop: Workshop) -> None:
        supervised(shop, "--processes", 2, replica_ttl=60)  # so that only a burial helps
        await workers_of(shop, 2)
        gate = shop.gate()
        job = await shop.tasks.fork_and_stay.enqueue(str(gate))
        [first] = await shop.written("began", job)
        [forked] = await shop.written("forked", job)
        os.kill(first.pid, signal.SIGKILL)
        try:
            await begun(shop, job, attempt=2)
            assert alive(forked.number)
        finally:
            gate.touch()
            for line in shop.lines("forked", job):
                with suppress(ProcessLookupError):
                    os.kill(line.number, signal.SIGKILL)
        await shop.finished(job)
        assert (job.state, job.attempt, job.losses) == ("succeeded", 2, 1)

    await on_each(shops, scenario)


async def test_jobs_that_were_only_claimed_count_no_loss(shops: list[Workshop]):
    async def scenario(shop: Workshop) -> None:
        supervised(shop, "--concurrency", 1, loss_budget=0)
        await workers_of(shop, 1)
        first = await shop.app.enqueue_many(shop.tasks.count.request(n) for n in range(40))
        await shop.finished(*first)
        requests = [shop.tasks.count.request(n) for n in range(100)]
        requests[5:5] = [shop.tasks.poison.request()]
        jobs = await shop.app.enqueue_many(requests)
        await shop.finished(*jobs)
        [poison] = [job for job in jobs if job.state != "succeeded"]
        assert (poison.task, poison.reason, poison.losses) == ("poison", "lost", 1)
        assert {job.losses for job in jobs if job is not poison} == {0}
        # Otherwise nothing was claimed that had not begun, and this has shown nothing.
        assert max(job.record.attempt for job in jobs if job is not poison) == 2

    await on_each(shops, scenario)


async def test_jobs_of_a_killed_group_run_elsewhere_after_its_ttl(shops: list[Workshop]):
    async def scenario(shop: Workshop) -> None:
        supervisor = supervised(shop, "--processes", 2)
        await workers_of(shop, 2)
        gate = shop.gate()
        jobs = await enqueue_stays(shop, gate)
        await shop.written("began", *jobs)
        await shop.hired(replica_ttl=TTL)
        killed = boot()
        supervisor.kill()  # and all of its processes
        # By the defaults, with a ttl of 10 s, it is 15 s.
        assert max(await begun(shop, *jobs, attempt=2)) - killed < TTL + 5
        gate.touch()
        await shop.finished(*jobs)
        for job in jobs:
            assert (job.state, job.attempt, job.losses) == ("succeeded", 2, 1)

    await on_each(shops, scenario)


async def test_children_outlive_a_supervisor_that_is_killed_and_leave(shops: list[Workshop]):
    async def scenario(shop: Workshop) -> None:
        supervisor = supervised(shop, "--processes", 2, "--grace", 4)
        children = await workers_of(shop, 2)
        gate = shop.gate()
        jobs = await enqueue_stays(shop, gate)
        deaf = await shop.tasks.nap.enqueue(3.5 * TTL)  # longer than the grace period
        await shop.written("began", *jobs, deaf)
        os.kill(supervisor.pid, signal.SIGKILL)
        killed = boot()
        await shop.until(lambda: boot() > killed + TTL, "beats would be missed")
        waiting = await shop.tasks.nap.enqueue(0)
        gate.touch()
        await shop.finished(*jobs)
        for job in jobs:
            assert (job.state, job.attempt, job.losses) == ("succeeded", 1, 0)
        await shop.until(lambda: not any(map(alive, children)), "the children have left")
        assert boot() - killed < 4 + 1 + 3  # the grace period, the promise, a busy machine
        assert supervisor.stderr.count("the supervisor is gone; finishing within the grace") == 2
        await deaf.refresh()
        assert (deaf.state, deaf.losses) == ("waiting", 0)
        assert (await waiting.refresh()).attempt == 0

    await on_each(shops, scenario)


async def test_children_beat_for_themselves_while_the_supervisor_is_silent(shops: list[Workshop]):
    async def scenario(shop: Workshop) -> None:
        supervisor = supervised(shop)
        await workers_of(shop, 1)
        await shop.hired(replica_ttl=TTL)  # a worker that would take over
        gate = shop.gate()
        [job] = await enqueue_stays(shop, gate, 1)
        await shop.written("began", job)
        pause(shop, supervisor.pid)
        stopped = boot()
        await shop.until(lambda: boot() > stopped + 3 * TTL, "time passes")
        os.kill(supervisor.pid, signal.SIGCONT)
        await shop.until(lambda: boot() > stopped + 4 * TTL, "time passes")
        gate.touch()
        await shop.finished(job)
        assert (job.state, job.attempt, job.losses) == ("succeeded", 1, 0)

    await on_each(shops, scenario)


async def test_a_child_that_is_paused_is_no_longer_kept_alive(shops: list[Workshop]):
    async def scenario(shop: Workshop) -> None:
        supervisor = supervised(shop)
        [child] = await workers_of(shop, 1)
        gate = shop.gate()
        [job] = await enqueue_stays(shop, gate, 1)
        await shop.written("began", job)
        pause(shop, child)
        try:
            [heir] = await shop.hired(replica_ttl=TTL)
            await shop.written("began", job, pid=heir.pid)
        finally:
            os.kill(child, signal.SIGCONT)
        await shop.written("stopped", job, pid=child)
        await shop.until(lambda: "was taken for dead" in supervisor.stderr, "it is told")
        gate.touch()
        await shop.finished(job)
        assert (job.state, job.attempt, job.losses) == ("succeeded", 2, 1)
        assert await job.result() == heir.pid

    await on_each(shops, scenario)


async def test_code_that_keeps_the_interpreter_loses_nothing(shops: list[Workshop]):
    async def scenario(shop: Workshop) -> None:
        supervised(shop)
        await workers_of(shop, 1)
        job = await shop.tasks.hold_the_interpreter.enqueue(round(3 * TTL))
        await shop.written("began", job)
        await shop.hired(replica_ttl=TTL)  # a worker that would take over
        await shop.finished(job)
        assert (job.state, job.losses) == ("succeeded", 0)
        assert len(shop.lines("began", job)) == 1

    await on_each(shops, scenario)


async def test_a_blocked_loop_is_blamed_on_the_job_that_blocks_it(shops: list[Workshop]):
    async def scenario(shop: Workshop) -> None:
        supervisor = supervised(shop)
        children = await workers_of(shop, 1)
        neighbour = await shop.tasks.nap.using(timeout=1).enqueue(60)
        await shop.written("began", neighbour)
        guilty = await shop.tasks.choke.enqueue(6)
        await shop.finished(guilty)
        await shop.until(lambda: "loop blocked" in supervisor.stderr, "it is told")

        async def is_timed_out() -> bool:
            return (await neighbour.refresh()).failures > 0

        await shop.until(is_timed_out, "its neighbour was stopped")
        assert await workers_of(shop, 1) == children
        assert "is replaced" not in supervisor.stderr
        [line] = [line for line in supervisor.stderr.splitlines() if "loop blocked" in line]
        assert f"task choke, job {guilty.id}" in line

    await on_each(shops, scenario)


async def test_an_outage_of_the_store_stops_nothing(shops_with_servers: list[Workshop]):
    async def scenario(shop: Workshop) -> None:
        supervisor = supervised(shop, "--processes", 2)
        children = await workers_of(shop, 2)
        gate = shop.gate()
        jobs = await enqueue_stays(shop, gate)
        await shop.written("began", *jobs)
        assert shop.server is not None
        shop.server.pause()
        paused = boot()
        await shop.until(lambda: boot() > paused + 2 * TTL, "records would have expired")
        shop.server.resume()
        gate.touch()
        await shop.finished(*jobs)
        for job in jobs:
            assert (job.state, job.attempt, job.losses) == ("succeeded", 1, 0)
        assert set(children) == set(await workers_of(shop, 2)), supervisor.story()

    await on_each(shops_with_servers, scenario)


# Poison.


@pytest.mark.draw(1)
@pytest.mark.parametrize("kind", ["poison", "crash", "never_end", "devour"])
async def test_poison_is_contained(shops: list[Workshop], kind: str):
    async def scenario(shop: Workshop) -> None:
        budget = 2
        options = ("--processes", 2, "--grace", 1, "--max-memory", "150MB")
        supervisor = supervised(shop, *options, loss_budget=budget)
        await workers_of(shop, 2)
        bad = await getattr(shop.tasks, kind).enqueue()
        number = SIZE.jobs // 4
        good = await shop.app.enqueue_many(shop.tasks.count.request(n) for n in range(number))
        await shop.finished(bad, *good)
        assert {job.state for job in good} == {"succeeded"}
        assert (bad.state, bad.reason) == ("failed", "lost")
        runs = shop.lines("began", bad)
        assert len(runs) == bad.losses == 1 + budget
        # The last one ran in a process in which all that had run before was suspicious as well.
        [*_, last] = runs
        before = {line.job for line in shop.ledger.read("began") if line.pid == last.pid}
        assert all(job.losses >= 2 for job in (bad, *good) if job.id in before)
        message = (
            f"job {bad.id} of task '{kind}' failed for good: it was lost with its worker 3 times"
        )
        await shop.until(lambda: message in supervisor.stderr, "it is told")
        # No slot is lost: both processes work again.
        await workers_of(shop, 2, without=[line.pid for line in runs])

    await on_each(shops, scenario)


# Ends that were asked for.


async def test_a_signal_lets_jobs_finish_and_leaves_nothing_behind(
    shops: list[Workshop], tmp_path: Path
):
    async def scenario(shop: Workshop) -> None:
        place = tmp_path / shop.site.family
        place.mkdir()
        socket = place / "health"
        supervisor = supervised(shop, "--processes", 2, "--health", socket)
        children = await workers_of(shop, 2)
        gate = shop.gate()
        jobs = await enqueue_stays(shop, gate)
        await shop.written("began", *jobs)
        supervisor.terminate()
        for child in children:  # as service managers do
            os.kill(child, signal.SIGTERM)
        late = await shop.tasks.nap.enqueue(0)
        gate.touch()
        assert await shop.exited(supervisor) == 0, supervisor.story()
        for job in jobs:
            await job.refresh()
            assert (job.state, job.attempt, job.losses) == ("succeeded", 1, 0)
        await late.refresh()
        assert (late.state, late.losses) == ("waiting", 0)
        assert not any(map(alive, children))
        assert list(place.iterdir()) == []
        assert await shop.app.replicas() == []
        stats = await shop.app.run_stats()  # each child has left its counts
        assert sum(line.succeeded for line in stats) == len(jobs)

    await on_each(shops, scenario)


@pytest.mark.proof("tests/process/test_jobs_stopping.py restarts workers too")
async def test_rolling_restarts_cost_nothing(shops: list[Workshop]):
    async def scenario(shop: Workshop) -> None:
        jobs = []
        supervisor = supervised(shop, "--grace", 1)
        for turn in range(2 + SIZE.rounds // 10):
            await workers_of(shop, 1)
            naps = [0.0, 0.1, 0.5, 4.0] if turn == 0 else [0.0, 0.1, 0.5]
            jobs += await shop.app.enqueue_many(shop.tasks.nap.request(nap) for nap in naps * 3)
            await shop.written("began", jobs[-1])
            successor = supervised(shop, "--grace", 1)
            supervisor.terminate()
            terminated = boot()
            assert await shop.exited(supervisor) == 0, supervisor.story()
            assert boot() - terminated < 1 + 1 + 3  # its grace period, the promise, a busy machine
            supervisor = successor
        await shop.finished(*jobs)
        for job in jobs:
            assert (job.state, job.failures, job.losses) == ("succeeded", 0, 0)
            assert len(shop.lines("ended", job)) == 1

    await on_each(shops, scenario)


async def test_processes_are_replaced_by_jobs_and_by_memory(shops: list[Workshop]):
    async def scenario(shop: Workshop) -> None:
        supervisor = supervised(shop, "--max-jobs", 5, "--max-memory", "200MB")
        [first] = await workers_of(shop, 1)
        gate = shop.gate()
        [stays] = await enqueue_stays(shop, gate, 1)
        few = await shop.app.enqueue_many(shop.tasks.count.request(n) for n in range(5))
        await shop.finished(*few)
        [second] = await workers_of(shop, 1, without=[first])
        gate.touch()  # it may finish in its own time
        await shop.finished(stays)
        assert await stays.result() == first
        await shop.until(lambda: not alive(first), "the first has left")
        leak = await shop.tasks.leak.enqueue(230)
        await shop.finished(leak)
        assert await leak.result() == second
        await workers_of(shop, 1, without=[first, second])
        assert f"worker process {first} is replaced: it has run 5 jobs" in supervisor.stderr
        assert f"worker process {second} is replaced: it takes 2" in supervisor.stderr
        for job in [stays, leak, *few]:
            assert (job.state, job.attempt, job.losses) == ("succeeded", 1, 0)

    await on_each(shops, scenario)


async def test_an_app_that_cannot_start_ends_the_supervisor(shops: list[Workshop]):
    shop = shops[0]
    broken = supervised(shop, "--queues", "a,b", imports="tests.process.not_there")
    assert await shop.exited(broken) == 2
    assert "there is no module 'tests.process.not_there'" in broken.stderr
