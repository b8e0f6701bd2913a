"""A replica that was taken for dead stops its jobs, reports them, and continues under a new id."""

import asyncio
import threading

import pytest

from tenure import Tenure, current_job
from tenure.observe import AttemptLost, ReplicaLost
from tests.jobs.replicas import of_kind
from tests.rig.endings import leave, recover, settlement
from tests.rig.wait import wait_until_async


async def declare_dead(store, clock, faults) -> None:
    """Lose the heartbeats of `app` until another replica recovers its jobs."""
    faults.lose_request("beat", times=100_000)
    await clock.advance(11)
    await recover(store, delays=[30.0, 30.0], grace=25)
    faults.heal()


async def test_a_worker_that_was_taken_over_stops_its_handlers_and_joins_under_a_new_id(
    app: Tenure, store, clock, faults, seen
):
    cancelled, runs = [], []

    @app.task
    async def work() -> str:
        runs.append(current_job().fence)
        if len(runs) == 1:
            try:
                await clock.sleep(1000)
            except asyncio.CancelledError:
                cancelled.append(current_job().stop_reason)
                raise
        return "second time"

    async with app.worker() as worker:
        job = await work.enqueue()
        await clock.advance(1)
        first = worker.replica
        await declare_dead(store, clock, faults)
        assert cancelled == []
        await clock.advance(5)
        assert cancelled == ["taken over"]
        assert of_kind(seen, ReplicaLost) == [ReplicaLost(first, (job.id,))]
        assert worker.replica not in (None, first)
        [record] = await app.replicas()
        assert record.id == worker.replica
        await clock.advance(30)
        assert await job.result() == "second time"
        assert (job.attempt, job.losses, job.failures) == (2, 1, 0)
        assert runs[1] > runs[0]
        after = await work.enqueue()
        await clock.advance(0.1)
        assert await after.result() == "second time"
    assert await app.replicas() == []


async def test_a_late_result_is_logged_without_a_subscriber(
    app: Tenure, store, clock, caplog: pytest.LogCaptureFixture
):
    @app.task
    async def work() -> None:
        await clock.sleep(5)

    async with app.worker():
        job = await work.enqueue()
        await clock.advance(1)
        [taken] = await store.jobs.get([job.id])
        back = settlement(id=job.id, fence=taken.fence, outcome="handed back", delay=60)
        await store.jobs.settle([back])
        await clock.advance(10)
    [lost] = [each for each in caplog.records if vars(each).get("tenure_event") == "AttemptLost"]
    assert (lost.levelname, vars(lost)["job"]) == ("WARNING", job.id)


async def test_a_late_result_is_refused_and_reported(app: Tenure, store, clock, faults, seen):
    results = iter(["first", "second"])

    @app.task
    async def work() -> str:
        mine = next(results)
        await clock.sleep(5)
        return mine

    async with app.worker():
        job = await work.enqueue()
        await clock.advance(1)
        [taken] = await store.jobs.get([job.id])
        back = settlement(id=job.id, fence=taken.fence, outcome="handed back", delay=60)
        await store.jobs.settle([back])
        await clock.advance(10)
        assert of_kind(seen, AttemptLost) == [AttemptLost(job.id, taken.fence, "succeeded")]
        assert (await job.refresh()).state == "waiting"
        await clock.advance(66)
        await clock.advance(6)
        assert await job.result() == "second"


async def test_jobs_claimed_ahead_are_dropped(app: Tenure, store, clock, faults):
    ran = []

    @app.task
    async def quick() -> None: ...

    @app.task
    async def work(n: int) -> None:
        ran.append((n, current_job().attempt))
        await clock.sleep(0.9)

    async with app.worker(concurrency=1) as worker:
        await app.enqueue_many(quick.request() for _ in range(20))
        await clock.advance(1)
        await app.enqueue_many(work.request(n) for n in range(2))
        await clock.advance(0.1)
        assert (await app.queues())[0].running == 2
        await leave(store, worker.replica)  # its record is gone, and it has not noticed yet
        await clock.advance(60)
        assert await app.queues() == []
    assert {n for n, _ in ran} == {0, 1}


async def test_a_thread_whose_job_was_taken_over_sees_a_cancel(
    app: Tenure, store, clock, faults, seen
):
    cancelled, go_on = [], threading.Event()

    @app.task
    def work() -> None:
        go_on.wait(20)
        cancelled.append(current_job().cancelled)

    async with app.worker():
        job = await work.enqueue()
        await clock.advance(1)
        [before] = await store.jobs.get([job.id])
        await declare_dead(store, clock, faults)
        await clock.advance(5)
        go_on.set()
        await wait_until_async(lambda: cancelled)
        assert cancelled == [True]

        async def succeeded() -> bool:
            await clock.advance(10)
            return (await job.refresh()).state == "succeeded"

        await wait_until_async(succeeded)
        assert job.attempt == 2
    assert len(of_kind(seen, ReplicaLost)) == 1
    assert job.record.fence > before.fence


async def test_the_new_id_claims_from_number_one(app: Tenure, store, clock, faults):
    @app.task
    async def work() -> int:
        return 1

    async with app.worker():
        for _ in range(5):
            await work.enqueue()
            await clock.advance(1)
        await declare_dead(store, clock, faults)
        await clock.advance(10)
        jobs = [await work.enqueue() for _ in range(3)]
        await clock.advance(1)
        assert [await job.result(0) for job in jobs] == [1, 1, 1]


async def test_a_worker_that_is_revived_in_time_keeps_its_jobs(app: Tenure, clock, faults, seen):
    @app.task
    async def work() -> str:
        await clock.sleep(40)
        return "undisturbed"

    async with app.worker() as worker:
        job = await work.enqueue()
        await clock.advance(1)
        before = worker.replica
        faults.lose_request("beat", times=100_000)
        await clock.advance(25)  # it has expired, but no job was taken
        faults.heal()
        await clock.advance(20)
        assert await job.result() == "undisturbed"
        assert worker.replica == before
        assert (job.attempt, job.losses) == (1, 0)
    assert not of_kind(seen, ReplicaLost)
