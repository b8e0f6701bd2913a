"""Cancelling a job: waiting jobs never start, running jobs are asked to stop, one end wins."""

import asyncio
import time

import pytest

from tenure import JobCancelled, Tenure, current_job
from tests.jobs.replicas import claim_and_die, until_idle
from tests.rig.waiting import wait_until_async


async def test_a_cancelled_waiting_job_never_starts(app: Tenure, clock):
    ran = []

    @app.task
    async def work() -> None:
        ran.append(1)

    job = await work.using(delay=5).enqueue()
    assert await job.cancel("changed my mind")
    assert (job.state, job.reason) == ("cancelled", "changed my mind")
    async with app.worker():
        await clock.advance(20)
    assert ran == []
    with pytest.raises(JobCancelled, match="changed my mind") as caught:
        await job.result()
    assert (caught.value.job, caught.value.reason) == (job.id, "changed my mind")


async def test_a_running_job_is_cancelled_at_once_and_confirmed(app: Tenure, clock):
    unwound = []

    @app.task
    async def work() -> None:
        try:
            await clock.sleep(1000)
        finally:
            unwound.append(current_job().stop_reason)

    async with app.worker():
        job = await work.enqueue()
        await clock.advance(1)
        assert await job.cancel("enough")
        assert job.state == "running"
        await clock.advance(0.01)
        await job.refresh()
        assert (job.state, job.reason, job.failures) == ("cancelled", "enough", 0)
        assert [line.outcome for line in job.history] == ["cancelled"]
        assert not await job.cancel()
    assert unwound == ["cancelled"]


async def test_without_a_wake_up_the_next_heartbeat_delivers_a_cancel(
    app: Tenure, clock, monkeypatch
):
    @app.task
    async def work() -> None:
        await clock.sleep(1000)

    monkeypatch.setattr("tenure.stores.watchers.Watchers.wake", lambda *_: None)
    async with app.worker():
        job = await work.enqueue()
        await clock.advance(6)
        await job.cancel()
        await clock.advance(3.1)
        assert (await job.refresh()).state == "cancelled"


async def test_a_thread_sees_the_cancel_and_can_stop(app: Tenure, clock):
    @app.task
    def work() -> None:
        until = time.monotonic() + 20
        while time.monotonic() < until:
            current_job().check()

    async with app.worker():
        job = await work.enqueue()
        await clock.advance(1)
        await job.cancel()

        async def is_cancelled() -> bool:
            await clock.advance(0)
            return (await job.refresh()).state == "cancelled"

        await wait_until_async(is_cancelled)


async def test_a_handler_that_finishes_despite_a_cancel_has_succeeded(app: Tenure, clock):
    @app.task
    async def work() -> str:
        try:
            await clock.sleep(1000)
        except asyncio.CancelledError:
            return "finished first"
        return "not reached"

    async with app.worker():
        job = await work.enqueue()
        await clock.advance(1)
        await job.cancel()
        await clock.advance(0.01)
        assert await job.result() == "finished first"
        assert job.reason == ""


async def test_a_handler_that_fails_while_it_is_cancelled_is_cancelled(app: Tenure, clock):
    @app.task
    async def work() -> None:
        try:
            await clock.sleep(1000)
        finally:
            raise ValueError("while cleaning up")

    async with app.worker():
        job = await work.enqueue()
        await clock.advance(1)
        await job.cancel()
        await clock.advance(0.01)
        assert (await job.refresh()).state == "cancelled"
        assert job.failures == 0


async def test_a_cancelled_job_that_was_claimed_ahead_never_starts(app: Tenure, clock):
    ran = []

    @app.task
    async def quick() -> None: ...

    @app.task
    async def work(n: int) -> None:
        ran.append(n)
        await clock.sleep(0.5)

    async with app.worker(concurrency=1):
        await app.enqueue_many(quick.request() for _ in range(20))
        await until_idle(app, clock)
        jobs = []
        for n in range(3):
            jobs.append(await work.enqueue(n))
            clock.shift(0.002)
        await clock.advance(0.01)
        assert (await app.queues())[0].running == 3
        assert ran == [0]
        await jobs[1].cancel("no more")
        await clock.advance(0.01)
        await jobs[1].refresh()
        assert (jobs[1].state, jobs[1].reason) == ("cancelled", "no more")
        await clock.advance(3)
    assert ran == [0, 2]


async def test_a_cancel_at_the_moment_of_the_start_stops_the_job(app: Tenure, clock):
    """The attempt's task exists but has not started: neither its slot nor its end may get lost."""
    ran = []

    @app.task
    async def work(n: int) -> None:
        ran.append(n)
        await clock.sleep(1)

    async with app.worker(concurrency=1) as worker:
        await clock.advance(1)
        slots = worker._worker._work.slots
        start = slots.start

        def start_and_cancel(record, handler):
            start(record, handler)
            slots.stop("cancelled", {record.id})

        slots.start = start_and_cancel
        job = await work.enqueue(1)
        await clock.advance(0.1)
        slots.start = start
        assert (await job.refresh()).state == "cancelled"
        second = await work.enqueue(2)
        await clock.advance(2)
        assert (await second.refresh()).state == "succeeded"
    assert ran == [2]


async def test_a_cancel_that_arrives_before_the_claimed_job_stops_it(app: Tenure, clock, faults):
    """The reply to the claim is lost: the cancel names a job that the worker does not know yet."""
    ran = []

    @app.task
    async def work() -> None:
        ran.append(1)
        await clock.sleep(1000)

    async with app.worker():
        await clock.advance(1)
        faults.lose_reply("claim")
        job = await work.enqueue()
        await clock.advance(0.005)
        assert (await job.refresh()).state == "running"
        before = faults.calls["beat"]
        await job.cancel()
        await clock.advance(0.005)
        assert faults.calls["beat"] > before
        assert ran == []
        await clock.advance(5)
        assert (await job.refresh()).state == "cancelled"
    assert ran == [1]


async def test_a_requeued_job_can_be_cancelled_again(app: Tenure, clock):
    ran = []

    @app.task
    async def work() -> None:
        ran.append(1)
        await clock.sleep(1000)

    async with app.worker():
        job = await work.enqueue()
        for times in (1, 2):
            await clock.advance(1)
            assert len(ran) == times
            await job.cancel()
            await clock.advance(0.01)
            assert (await job.refresh()).state == "cancelled"
            await job.requeue()


async def test_a_cancel_survives_a_lost_worker(app: Tenure, store, clock):
    ran = []

    @app.task
    async def work() -> None:
        ran.append(1)

    job = await work.enqueue()
    await claim_and_die(store)
    await job.cancel("before it was lost")
    clock.shift(10)
    [recovered] = await app.recover()
    assert recovered.state == "cancelled"
    async with app.worker():
        await clock.advance(20)
    assert ran == []
    assert (await job.refresh()).reason == "before it was lost"


async def test_a_cancel_survives_a_retry(app: Tenure, clock, faults):
    """The handler fails before the cancel arrives: the job is not retried."""
    ran = []

    @app.task
    async def work() -> None:
        ran.append(1)
        await clock.sleep(1)
        raise ValueError

    async with app.worker():
        job = await work.enqueue()
        await clock.advance(0.5)
        faults.lose_request("beat", times=10)
        await job.cancel()
        await clock.advance(100)
        assert (await job.refresh()).state == "cancelled"
    assert ran == [1]


async def test_many_jobs_are_cancelled_at_once(app: Tenure, clock):
    @app.task
    async def work() -> None:
        await clock.sleep(1000)

    async with app.worker(concurrency=500):
        jobs = await app.enqueue_many(work.request() for _ in range(450))
        await clock.advance(0.1)
        for job in jobs:
            await job.cancel()
        await clock.advance(12)
        assert {(await job.refresh()).state for job in jobs} == {"cancelled"}


async def test_on_every_store_a_cancel_arrives_within_two_seconds(real_make):
    app = await real_make()
    stopped = asyncio.Event()

    @app.task
    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            stopped.set()

    async with app.worker():
        job = await work.enqueue()
        await wait_until_async(lambda: is_running(job))
        # Wake-ups work on SQLite in one process too; a lost one waits 3 s for the next heartbeat.
        await job.cancel("enough")
        await asyncio.wait_for(stopped.wait(), 2)
        await job.wait(2)
    assert (job.state, job.reason) == ("cancelled", "enough")


async def is_running(job) -> bool:
    return (await job.refresh()).state == "running"
