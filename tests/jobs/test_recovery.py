"""Recovery: which replica takes the jobs of dead ones, when, and how often."""

import asyncio
from collections.abc import Collection, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from tenure import JobFailed, Tenure, observe
from tenure.app import engine_of
from tenure.core.jobs import loss_policy
from tenure.core.jobs.records import NewJob, Settled, Settlement
from tenure.core.jobs.replicas import Orphans
from tenure.errors import StoreUnavailable
from tenure.observe import JobsRecovered
from tenure.runtime.process_info import process_name
from tenure.runtime.replica.recovery import Recovery, take
from tenure.stores.contract import Store
from tenure.testing import FaultyStore
from tests.jobs.replicas import claim_and_die, of_kind
from tests.rig.wait import wait_until_async


@pytest.fixture
def runs(app: Tenure) -> list[int]:
    runs: list[int] = []

    @app.task
    async def work(n: int = 0) -> int:
        runs.append(n)
        return n

    app.work = work
    return runs


async def test_beside_a_living_replica_a_newcomer_recovers_after_its_next_heartbeat(
    app, make, store, clock, runs, seen
):
    witness = await make()
    async with witness.worker(queues=["of its own"]):
        await clock.advance(15)
        job = await app.work.enqueue(1)
        await claim_and_die(store)
        clock.shift(10)  # the witness sends a heartbeat with the next step, and is revived
        await clock.advance(0)
        await store.jobs.beat([(await store.jobs.replicas())[0].id], ttl=10)
        async with app.worker(queues=["default"]):
            await clock.advance(3.9)
            assert (await job.refresh()).losses == 0
            await clock.advance(1.3)
            assert await job.result(0) == 1
            assert (job.attempt, job.losses, job.failures) == (2, 1, 0)
            [event] = of_kind(seen, JobsRecovered)
            assert event == JobsRecovered(process_name(), ("dead",), (job.id,))
            assert [line.outcome for line in job.history] == ["lost", "succeeded"]


async def test_without_other_replicas_a_newcomer_waits_one_ttl_before_it_recovers(
    app, store, clock, runs
):
    job = await app.work.enqueue(1)
    await claim_and_die(store)
    clock.shift(60)
    async with app.worker():
        await clock.advance(9)
        assert (await job.refresh()).state == "running"
        await store.jobs.beat(["dead"], ttl=10)  # other replicas could come back after the outage
        await clock.advance(5)
        assert (await job.refresh()).state == "running"
        await clock.advance(9)
        assert await job.result(0) == 1


async def test_a_replica_that_was_declared_dead_does_not_count_as_living(app, store, clock, runs):
    """Its record exists until its jobs are settled, and has not expired."""
    job = await app.work.enqueue(1)
    await claim_and_die(store)
    clock.shift(60)
    await app.work.enqueue(2)
    await claim_and_die(store, "buried", ttl=1000)
    await store.jobs.orphans(by="a supervisor that has died", replica="buried")
    async with app.worker():
        await clock.advance(9)
        assert (await job.refresh()).losses == 0
        await clock.advance(9)
        assert await job.result(0) == 1


async def test_jobs_run_again_within_fifteen_seconds_of_a_death(app, store, clock, runs):
    async with app.worker():
        await clock.advance(30)
        await app.pause_queue("default")
        job = await app.work.enqueue(1)
        await app.resume_queue("default")
        await claim_and_die(store)
        await clock.advance(14.4)
        assert await job.result(0) == 1
    assert runs == [1]


async def test_after_a_gap_a_replica_waits_one_ttl_from_its_first_good_heartbeat(
    app, store, clock, runs, faults
):
    async with app.worker():
        await clock.advance(20)
        faults.lose_request("beat", times=100_000)
        faults.lose_request("claim", times=100_000)
        job = await app.work.enqueue(1)
        await claim_and_die(store)
        await clock.advance(30)  # the store was away for all replicas
        faults.heal()
        await clock.advance(9)
        assert (await job.refresh()).state == "running"
        await clock.advance(6)
        assert await job.result(0) == 1
        assert job.losses == 1


async def test_a_slow_recovery_is_not_asked_for_a_second_time(app, store, clock, runs, faults):
    """A slow store must not get the same work again with each heartbeat."""
    async with app.worker():
        await clock.advance(20)
        await app.pause_queue("default")
        job = await app.work.enqueue(1)
        await app.resume_queue("default")
        await claim_and_die(store)
        faults.delay("orphans", 40)
        await clock.advance(45)
        assert faults.calls["orphans"] == 1
        faults.heal()
        await clock.advance(20)
        assert await job.result(0) == 1
    assert runs == [1]


async def test_a_recovery_by_hand_does_not_wait(app, store, clock, runs, seen):
    job = await app.work.enqueue(1)
    await claim_and_die(store)
    assert await app.recover() == []  # it may still be alive
    clock.shift(10)
    [recovered] = await app.recover()
    assert (recovered.id, recovered.replica, recovered.state) == (job.id, "dead", "waiting")
    assert of_kind(seen, JobsRecovered) == [JobsRecovered(process_name(), ("dead",), (job.id,))]
    assert await app.recover() == []
    assert await app.replicas() == []


async def test_a_job_survives_as_many_losses_as_its_budget(make, store, clock):
    app = await make(loss_budget=2)
    fates = []

    @app.task
    async def work() -> None: ...

    job = await work.enqueue()
    for number in range(3):
        [held] = await claim_and_die(store, f"dead-{number}")
        assert held.attempt == number + 1
        clock.shift(10)
        [recovered] = await app.recover()
        fates.append(recovered.state)
        clock.shift(301)
    assert fates == ["waiting", "waiting", "failed"]
    with pytest.raises(JobFailed, match="its worker died each time") as caught:
        await job.result()
    assert caught.value.reason == "lost"
    assert (job.losses, job.failures, job.error) == (3, 0, None)
    assert [line.outcome for line in job.history] == ["lost"] * 3


async def test_without_a_budget_the_first_loss_is_the_last(make, store, clock):
    app = await make(loss_budget=0)

    @app.task
    async def work() -> None: ...

    job = await work.enqueue()
    await claim_and_die(store)
    clock.shift(10)
    [recovered] = await app.recover()
    assert recovered.state == "failed"
    assert (await job.refresh()).reason == "lost"


async def test_the_first_loss_is_due_at_once_and_later_ones_ever_later(app, store, clock, runs):
    await app.work.enqueue()
    pauses = []
    for number in range(3):
        await claim_and_die(store, f"dead-{number}")
        clock.shift(10)
        [recovered] = await app.recover()
        [record] = await store.jobs.get([recovered.id])
        pauses.append((record.due - clock.wall()) / 1e6)
        clock.shift(max(0.0, pauses[-1]))
    assert pauses[0] <= 0
    assert 1 <= pauses[1] <= 2
    assert 3 <= pauses[2] <= 6


async def test_a_job_past_its_time_out_has_time_to_unwind_before_it_counts_as_lost(
    app, store, clock, runs
):
    job = await app.work.using(timeout=10).enqueue()
    await claim_and_die(store)
    clock.shift(9)
    await store.jobs.beat(["dead"], ttl=1000)  # it lives, but does not stop its handler
    clock.shift(5)
    assert await app.recover() == []
    clock.shift(1)
    [recovered] = await app.recover()
    assert (recovered.id, recovered.losses) == (job.id, 1)


async def test_many_jobs_come_back_in_slices_with_an_event_each(
    app, make, store, clock, runs, seen, faults
):
    await app.enqueue_many(app.work.request(n) for n in range(280))
    await claim_and_die(store)
    await claim_and_die(store, "dead-too")
    clock.shift(10)
    recovered = await app.recover()
    assert len(recovered) == 280
    assert faults.calls["orphans"] == 3
    assert [len(event.waiting) for event in of_kind(seen, JobsRecovered)] == [200, 80]


async def test_a_recovery_that_fails_goes_on_with_the_next_beat(app, store, clock, runs, faults):
    async with app.worker():
        await clock.advance(20)
        await app.pause_queue("default")
        job = await app.work.enqueue(1)
        await app.resume_queue("default")
        await claim_and_die(store)
        faults.lose_request("orphans", times=2)
        await clock.advance(20)
        assert await job.result(0) == 1


async def test_a_reply_to_recover_that_is_lost_counts_once(app, store, clock, runs, faults):
    async with app.worker():
        await clock.advance(20)
        job = await app.work.using(delay=0.5).enqueue(1)
        await app.pause_queue("default")
        clock.shift(0.6)
        await app.resume_queue("default")
        await claim_and_die(store)
        faults.lose_reply("orphans")
        await clock.advance(20)
        assert await job.result(0) == 1
        assert job.losses == 1


@pytest.mark.parametrize("budget", [0, 1])
async def test_a_lost_reply_to_the_settlement_of_a_recovery_costs_no_event(
    make, store, clock, faults, budget
):
    app, seen = await make(faulty=True, loss_budget=budget), []
    app.on_event(seen.append)

    @app.task
    async def work() -> None: ...

    job = await work.enqueue()
    await claim_and_die(store)
    clock.shift(10)
    faults.lose_reply("settle", times=4)
    recovering = asyncio.ensure_future(app.recover())
    await clock.advance(2)
    [recovered] = await recovering
    [event] = of_kind(seen, JobsRecovered)
    fate = "failed" if budget == 0 else "waiting"
    assert (recovered.state, getattr(event, fate)) == (fate, (job.id,))
    assert [lost.job for lost in of_kind(seen, observe.JobFailed)] == [job.id] * (budget == 0)
    assert (await job.refresh()).losses == 1


async def test_a_recovery_ends_if_the_store_does_not_come_back(app, store, clock, runs, faults):
    await app.enqueue_many(app.work.request(n) for n in range(50))
    await claim_and_die(store)
    clock.shift(10)
    faults.lose_reply("settle", times=1000)
    recovering = asyncio.ensure_future(app.recover())
    await clock.advance(10)
    with pytest.raises(StoreUnavailable):
        await recovering


async def test_a_repeat_takes_no_job_from_a_replica_that_has_come_back(
    app, store, clock, runs, seen, faults
):
    job = await app.work.enqueue()
    await claim_and_die(store)
    clock.shift(10)
    faults.lose_request("settle")
    recovering = asyncio.ensure_future(app.recover())
    await clock.advance(0)
    assert faults.calls["settle"] == 1
    await store.jobs.beat(["dead"], ttl=1000)
    await clock.advance(10)
    with pytest.raises(StoreUnavailable):
        await recovering
    await job.refresh()
    assert (job.state, job.losses) == ("running", 0)
    assert not of_kind(seen, JobsRecovered)


async def test_of_two_recoverers_one_reports_although_its_reply_was_lost(real_world, faults):
    def lost_by(name: str):
        return lambda job, at: loss_policy.lost(job, by=name, at=at, delays=[1000.0])

    store = await real_world.store()
    jobs = [NewJob(id=f"j{n}", task="t", queue="default", payload=b"{}") for n in range(20)]
    await store.jobs.insert(jobs)
    await claim_and_die(store, ttl=0.1)
    await asyncio.sleep(0.2)
    faults.lose_reply("settle", times=3)
    faulty = FaultyStore(store, faults)
    first = asyncio.ensure_future(take(faulty, by="ann", end=lost_by("ann")))
    await wait_until_async(lambda: faults.calls["settle"])
    second = await take(store, by="bob", end=lost_by("bob"))
    assert not second
    assert len(await first) == 20


class Held:
    """Settles like PostgreSQL while an open transaction holds some jobs."""

    def __init__(self, store: Store, held: Collection[str]) -> None:
        self._store = store
        self._held = held

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        answers: list[Settled] = []
        for end in settlements:
            if end.id not in self._held:
                answers += await self._store.jobs.settle([end])
        if len(answers) < len(settlements):
            msg = "a job is held by an open transaction"
            raise StoreUnavailable(msg)
        return answers


async def test_a_job_that_a_transaction_holds_does_not_hide_recovered_jobs(
    app, store, clock, runs, seen, monkeypatch
):
    jobs = await app.enqueue_many(app.work.request(n) for n in range(30))
    await claim_and_die(store)
    clock.shift(10)
    held = {jobs[7].id}
    monkeypatch.setattr(
        engine_of(app).store.jobs, "settle", Held(store, held).settle, raising=False
    )
    recovering = asyncio.ensure_future(app.recover())
    await clock.advance(10)
    with pytest.raises(StoreUnavailable):
        await recovering  # the held one, by itself
    [event] = of_kind(seen, JobsRecovered)
    assert set(event.waiting) == {job.id for job in jobs} - held
    held.clear()
    [recovered] = await app.recover()
    assert recovered.id == jobs[7].id


async def test_an_unexpected_error_in_a_recovery_is_logged_and_ends_nothing(
    app, store, clock, runs, monkeypatch, caplog
):
    async def fail(*_: object) -> None:
        monkeypatch.undo()
        raise RuntimeError("on purpose")

    async with app.worker():
        await clock.advance(20)
        await app.pause_queue("default")
        job = await app.work.enqueue(1)
        await app.resume_queue("default")
        await claim_and_die(store)
        monkeypatch.setattr(Recovery, "run", fail)
        await clock.advance(20)
        assert "recovery failed in an unexpected way" in caplog.text
        assert await job.result(0) == 1


async def test_an_unexpected_error_in_pruning_is_logged_and_ends_nothing(
    app, clock, monkeypatch, caplog
):
    calls = []

    async def fail(*_: object) -> None:
        calls.append(1)
        raise RuntimeError("on purpose")

    monkeypatch.setattr("tenure.runtime.replica.janitor.prune", fail)
    async with app.worker():
        await clock.advance(300)
    assert len(calls) >= 2
    assert "pruning failed in an unexpected way" in caplog.text


async def test_a_job_ten_times_longer_than_the_ttl_runs_once(app, make, clock):
    starts = []

    def declare(app: Tenure):
        @app.task(name="long")
        async def long() -> str:
            starts.append(1)
            await clock.sleep(100)
            return "done"

        return long

    other = await make()
    job = await declare(app).enqueue()
    declare(other)
    async with app.worker(), other.worker():
        await clock.advance(101)
        assert await job.result(0) == "done"
    assert starts == [1]
    assert (job.attempt, job.losses) == (1, 0)


async def test_finished_jobs_are_pruned_in_slices_by_any_worker(make, store, clock, monkeypatch):
    monkeypatch.setattr("tenure.runtime.pruning._SLICE", 10)
    app = await make(faulty=True, retention=60)

    @app.task
    async def work() -> None: ...

    jobs = await app.enqueue_many(work.request() for _ in range(35))
    async with app.worker():
        await clock.advance(30)
        assert {(await job.refresh()).state for job in jobs} == {"succeeded"}
        assert len(await app.jobs(limit=100)) == 35
        await clock.advance(150)
        assert len(await app.jobs(limit=100)) == 0


async def test_pruning_that_fails_is_tried_again_later(make, clock, faults):
    app = await make(faulty=True, retention=60)

    @app.task
    async def work() -> None: ...

    await work.enqueue()
    faults.lose_request("prune", times=1)
    async with app.worker():
        await clock.advance(300)
    assert await app.jobs() == []


async def test_pruning_by_hand_removes_every_job_after_its_retention(app, store, clock, runs):
    kept = await app.work.using(retention="1d").enqueue()
    over = await app.work.using(retention=60).enqueue()
    waiting = await app.work.using(delay="2d", retention=60).enqueue()
    async with app.worker():
        await clock.advance(1)
    clock.shift(60)
    assert await app.prune_jobs() == 1
    assert {job.id for job in await app.jobs()} == {kept.id, waiting.id}
    clock.shift(86400)
    assert await app.prune_jobs() == 1
    assert over.id not in {job.id for job in await app.jobs()}


async def test_on_every_store_a_dead_workers_job_runs_again(real_make, real_world):
    app = await real_make(replica_ttl=1)
    store = await real_world.store()

    @app.task
    async def work() -> str:
        return "recovered"

    job = await work.enqueue()
    await claim_and_die(store, ttl=1)
    async with app.worker():
        assert await job.result(timeout=8) == "recovered"
        second = await work.using(queue="elsewhere").enqueue()
        await store.jobs.beat(["dead-too"], ttl=1, meta={})
        await store.jobs.claim("dead-too", 1, ["elsewhere"], 1)

        async def is_lost() -> bool:
            return (await second.refresh()).losses > 0

        await wait_until_async(is_lost, 15)
    assert (job.attempt, job.losses, job.failures) == (2, 1, 0)


class Contested:
    """Returns orphans one by one; another replica settles every second one first."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._has_lost = False

    async def orphans(self, **filters: Any) -> Orphans:
        return await self._store.jobs.orphans(**{**filters, "limit": 1})

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        self._has_lost = not self._has_lost
        if self._has_lost:
            await self._store.jobs.settle([replace(end, by="rival") for end in settlements])
        return await self._store.jobs.settle(settlements)


async def test_a_recovery_continues_while_other_replicas_recover_too(
    app, store, clock, runs, monkeypatch
):
    jobs = [await app.work.enqueue(n) for n in range(10)]
    await claim_and_die(store)
    clock.shift(10)
    contested = Contested(store)
    for call in ("orphans", "settle"):
        monkeypatch.setattr(
            engine_of(app).store.jobs, call, getattr(contested, call), raising=False
        )
    recovered = await app.recover()
    assert len(recovered) == 5
    assert {(await job.refresh()).losses for job in jobs} == {1}


async def test_a_worker_prunes_about_once_a_minute(app, clock, faults):
    async with app.worker():
        await clock.advance(600)
    assert 6 <= faults.calls["prune"] <= 20


async def test_a_worker_looks_for_forgotten_timers_about_once_an_hour(app, clock, faults):
    async with app.worker():
        await clock.advance(5 * 3600)
    assert 3 <= faults.calls["read"] <= 10


async def test_a_stopped_worker_recovers_nothing(app, store, clock, runs, faults):
    async with app.worker():
        await clock.advance(20)
        await app.pause_queue("default")
        job = await app.work.enqueue(1)
        await app.resume_queue("default")
        await claim_and_die(store)
        faults.delay("orphans", 30)
        while not faults.calls["orphans"]:
            await clock.advance(0.5)
        faults.heal()  # the look in flight continues; the worker leaves with another one
    await clock.advance(60)
    assert (await job.refresh()).state == "running"
    assert [replica.id for replica in await store.jobs.replicas()] == ["dead"]
