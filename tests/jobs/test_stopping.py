"""Stopping a worker: no job is lost, no loss is counted, and it takes no longer than allowed."""

import asyncio
import os
import signal
import threading

import pytest

from tenure import Tenure, current_job
from tenure.observe import AttemptLost, HandlerStuck
from tenure.runtime.attempts.settler import Settler
from tenure.testing import Faults, FaultyStore
from tests.contract.worlds import World
from tests.jobs.replicas import of_kind, reports
from tests.rig.wait import wait_until_async


class Handled:
    """Long jobs, and the ends of their handlers."""

    def __init__(self, app: Tenure, clock) -> None:
        self.began: list[int] = []
        self.ended: list[int] = []
        self.cancelled: list[int] = []

        @app.task
        async def work(seconds: int) -> int:
            self.began.append(seconds)
            try:
                await clock.sleep(seconds)
            except asyncio.CancelledError:
                self.cancelled.append(seconds)
                raise
            self.ended.append(seconds)
            return seconds

        self.work = work


@pytest.fixture
def handled(app, clock) -> Handled:
    return Handled(app, clock)


async def leaving(worker) -> asyncio.Task[None]:
    """Start leaving a worker; it has left only after time has passed."""
    return asyncio.ensure_future(worker.__aexit__(None, None, None))


async def test_running_jobs_may_finish_within_the_grace_period(app, clock, handled):
    worker = await app.worker(grace=25).__aenter__()
    running = await handled.work.enqueue(20)
    await clock.advance(1)
    left = await leaving(worker)
    await clock.advance(1)
    later = await handled.work.enqueue(1)
    await clock.advance(17)
    assert not left.done()
    assert len(await app.replicas()) == 1  # it sends heartbeats while it waits
    await clock.advance(2)
    await left
    assert await running.result() == 20
    assert (await later.refresh()).state == "waiting"
    assert handled.began == [20]
    assert await app.replicas() == []


async def test_jobs_that_do_not_finish_in_time_are_handed_back_uncounted(app, clock, handled):
    worker = await app.worker(grace=25).__aenter__()
    job = await handled.work.enqueue(100)
    await clock.advance(1)
    left = await leaving(worker)
    await clock.advance(24.5)
    assert handled.cancelled == []
    await clock.advance(1)
    await left
    assert handled.cancelled == [100]
    await job.refresh()
    assert (job.state, job.attempt, job.failures, job.losses) == ("waiting", 1, 0, 0)
    assert job.due <= job.created.fromtimestamp(clock.wall() / 1e6, tz=job.created.tzinfo)


async def test_handed_back_jobs_run_elsewhere_at_once(app, make, clock, handled):
    other = await make()
    again = Handled(other, clock)
    worker = await app.worker(grace=0).__aenter__()
    job = await handled.work.enqueue(100)
    await clock.advance(1)
    async with other.worker():
        await (await leaving(worker))
        await clock.advance(0.1)
        assert again.began == [100]
        await clock.advance(100)
        assert await job.result() == 100
        assert (job.attempt, job.failures, job.losses) == (2, 0, 0)


async def test_a_second_stop_hands_back_at_once(app, clock, handled):
    worker = await app.worker(grace=600).__aenter__()
    job = await handled.work.enqueue(100)
    await clock.advance(1)
    worker.stop()
    await clock.advance(1)
    assert handled.cancelled == []
    worker.stop()
    await clock.advance(0)
    await worker.ended()
    assert (await job.refresh()).state == "waiting"
    await worker.__aexit__(None, None, None)


async def test_stopping_before_leaving_the_block_is_one_stop(app, clock, handled):
    worker = await app.worker(grace=25).__aenter__()
    job = await handled.work.enqueue(10)
    await clock.advance(1)
    worker.stop()
    left = await leaving(worker)
    await clock.advance(10)
    await left
    assert await job.result() == 10


async def test_jobs_claimed_ahead_are_handed_back(app, clock, handled):
    @app.task
    async def quick() -> None: ...

    worker = await app.worker(concurrency=1, grace=25).__aenter__()
    await app.enqueue_many(quick.request() for _ in range(20))
    await clock.advance(0.5)
    jobs = await app.enqueue_many(handled.work.request(5) for _ in range(3))
    await clock.advance(0.1)
    assert (await app.queues())[0].running == 3
    left = await leaving(worker)
    await clock.advance(0.1)
    [count] = await app.queues()
    assert (count.running, count.waiting) == (1, 2)
    await clock.advance(5)
    await left
    states = [(await job.refresh()).state for job in jobs]
    assert sorted(states) == ["succeeded", "waiting", "waiting"]
    # Other workers can run them at once.
    assert all(job.record.due <= clock.wall() for job in jobs if job.state == "waiting")


@pytest.mark.parametrize("grace", [0, 25])
async def test_jobs_of_a_claim_in_flight_are_handed_back(app, clock, handled, faults, seen, grace):
    worker = await app.worker(grace=grace).__aenter__()
    await clock.advance(1)
    faults.delay("claim", 2)
    job = await handled.work.enqueue(50)
    await clock.advance(1)
    left = await leaving(worker)
    await clock.advance(2)
    await asyncio.wait_for(left, 1)
    await job.refresh()
    assert (job.state, job.failures, job.losses) == ("waiting", 0, 0)
    assert handled.began == []
    assert reports(seen) == []


async def test_stopping_does_not_wait_for_a_store_that_is_away(app, clock, handled, faults):
    worker = await app.worker(grace=1).__aenter__()
    await clock.advance(1)
    faults.lose_request("claim", times=1000)
    await clock.advance(10)
    left = await leaving(worker)
    await clock.advance(2)
    await asyncio.wait_for(left, 1)
    assert await app.replicas() == []


async def test_results_that_cannot_be_settled_are_left_to_recovery(
    app, clock, handled, faults, monkeypatch
):
    monkeypatch.setattr("tenure.runtime.work.worker._SETTLE_SECONDS", 0.05)
    worker = await app.worker(grace=1).__aenter__()
    job = await handled.work.enqueue(1)
    await clock.advance(0.5)
    faults.lose_request("settle", times=1000)
    faults.lose_request("orphans", times=1000)
    await clock.advance(1)
    before = set(asyncio.all_tasks())
    await (await leaving(worker))
    calls = faults.calls["settle"]
    await clock.advance(60)
    assert faults.calls["settle"] == calls
    assert not (asyncio.all_tasks() - before)
    faults.heal()
    assert (await job.refresh()).state == "running"
    await app.recover()
    assert (await job.refresh()).state == "waiting"


async def test_a_job_that_has_run_to_its_end_is_not_handed_back(
    app, clock, handled, faults, monkeypatch
):
    """The store is back when the worker leaves, so the worker settles the job as ended."""
    monkeypatch.setattr("tenure.runtime.work.worker._SETTLE_SECONDS", 0.05)
    close = Settler.close

    def come_back(settler: Settler) -> None:
        close(settler)
        faults.heal()

    monkeypatch.setattr(Settler, "close", come_back)
    worker = await app.worker(grace=1).__aenter__()
    job = await handled.work.enqueue(1)
    await clock.advance(0.5)
    faults.lose_request("settle", times=1000)
    await clock.advance(1)
    await (await leaving(worker))
    await job.refresh()
    assert (job.state, await job.result()) == ("succeeded", 1)


async def test_a_handler_that_ignores_its_cancellation_is_reported_and_handed_back(
    app, clock, seen
):
    @app.task
    async def deaf() -> None:
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                continue

    let_go = asyncio.Event()
    worker = await app.worker(grace=1).__aenter__()
    job = await deaf.enqueue()
    await clock.advance(1)
    left = await leaving(worker)
    await clock.advance(7)
    await left
    assert reports(seen) == [HandlerStuck("deaf", job.id, "shutting down")]
    assert (await job.refresh()).state == "waiting"
    let_go.set()
    await clock.advance(1)
    assert (await job.refresh()).state == "waiting"  # its late return value is dropped


async def test_a_thread_is_asked_to_stop_and_abandoned_if_it_does_not(app, clock, seen):
    go_on = threading.Event()
    polite = threading.Event()

    @app.task
    def stubborn() -> None:
        go_on.wait(20)

    @app.task
    def listening() -> None:
        while True:
            polite.set()
            current_job().check()

    worker = await app.worker(grace=1).__aenter__()
    jobs = [await stubborn.enqueue(), await listening.enqueue()]
    await clock.advance(1)
    await wait_until_async(polite.is_set)
    left = await leaving(worker)

    async def passes() -> bool:
        await clock.advance(1)
        return left.done()

    await wait_until_async(passes)
    await left
    assert [event.job for event in of_kind(seen, HandlerStuck)] == [jobs[0].id]
    for job in jobs:
        await job.refresh()
        assert (job.state, job.failures, job.losses) == ("waiting", 0, 0)
    go_on.set()
    assert not of_kind(seen, AttemptLost)


@pytest.mark.parametrize("lost", ["lose_reply", "lose_request"])
async def test_leaving_is_repeated_until_the_store_confirms_it(app, clock, faults, lost):
    worker = await app.worker(grace=0).__aenter__()
    await clock.advance(1)
    getattr(faults, lost)("orphans", times=2)
    left = await leaving(worker)
    await clock.advance(1)
    await left
    assert await app.replicas() == []


class HeldJoins(Faults):
    """Holds each join back until it is released. The join then happens, whoever waits for it."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.released, self.over = (threading.Event() for _ in range(3))


class LateStore(FaultyStore):
    """A store whose joins are carried out late, as a busy server does."""

    faults: HeldJoins

    async def _pass(self, call, send):
        if call != "join":
            return await super()._pass(call, send)
        return await asyncio.shield(asyncio.ensure_future(self._join(send)))

    async def _join(self, send):
        self.faults.begun.set()
        await asyncio.to_thread(self.faults.released.wait)
        try:
            return await send()
        finally:
            self.faults.over.set()


async def test_a_worker_that_stops_while_it_joins_leaves_no_record(real_world: World):
    joins = HeldJoins()
    async with Tenure(LateStore(real_world.unopened(), joins)) as app:
        worker = await app.worker().__aenter__()
        await wait_until_async(joins.begun.is_set)
        left = await leaving(worker)
        # Time to leave before the join, which a worker must not do.
        await asyncio.wait({left}, timeout=0.2)
        joins.released.set()
        await left
        await wait_until_async(joins.over.is_set)
        assert await app.replicas() == []


async def test_run_worker_opens_the_app_and_ends_with_a_signal():
    app = Tenure("memory://")
    inside = asyncio.Event()

    @app.task
    async def work() -> None:
        inside.set()
        await asyncio.sleep(0.2)

    async def drive() -> str:
        await wait_until_async(lambda: app.is_open)
        job = await work.enqueue()
        await asyncio.wait_for(inside.wait(), 5)
        os.kill(os.getpid(), signal.SIGTERM)
        await job.wait(5)
        return job.state

    driving = asyncio.ensure_future(drive())
    await asyncio.wait_for(app.run_worker(), 10)
    assert not app.is_open
    assert await driving == "succeeded"


async def test_a_second_signal_hands_back_at_once():
    inside = asyncio.Event()
    async with Tenure("memory://", grace=60) as app:

        @app.task
        async def work() -> None:
            inside.set()
            await asyncio.sleep(60)

        running = asyncio.ensure_future(app.run_worker())
        job = await work.enqueue()
        await asyncio.wait_for(inside.wait(), 5)
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.sleep(0.1)
        os.kill(os.getpid(), signal.SIGTERM)  # an echo, as from a process group
        await asyncio.sleep(0.5)
        assert not running.done()
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.wait_for(running, 5)
        assert app.is_open
        assert (await job.refresh()).state == "waiting"
