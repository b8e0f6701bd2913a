"""Deleting jobs for good: waiting jobs never start, running jobs are stopped first."""

import asyncio

import pytest

from tenure import JobNotFound, JobStateError, Tenure
from tenure.observe import JobCancelled


async def test_a_deleted_waiting_job_never_starts(app: Tenure, clock):
    ran = []

    @app.task
    async def work() -> None:
        ran.append(1)

    job = await work.using(delay=5).enqueue()
    await app.delete_job(job.id)
    async with app.worker():
        await clock.advance(20)
    assert ran == []
    with pytest.raises(JobNotFound):
        await job.refresh()


async def test_a_caller_that_waits_for_a_deleted_job_is_told_at_once(app: Tenure, clock):
    @app.task
    async def work() -> None: ...

    job = await work.enqueue()
    waiting = asyncio.create_task(job.wait())
    await clock.advance(0)
    await app.delete_job(job.id)
    await clock.advance(0.01)
    assert waiting.done()
    with pytest.raises(JobNotFound):
        await waiting


async def test_a_running_job_is_deleted_once_it_has_stopped(app: Tenure, clock):
    stopped = []

    @app.task
    async def work() -> None:
        try:
            await clock.sleep(1000)
        finally:
            await clock.sleep(2)
            stopped.append(1)

    async with app.worker():
        job = await work.enqueue()
        await clock.advance(1)
        with pytest.raises(JobStateError, match="cancel it first"):
            await app.delete_job(job.id)
        deleting = asyncio.create_task(app.delete_job(job.id, cancel=True))
        await clock.advance(1)
        assert not deleting.done()
        await clock.advance(2)
        await deleting
        assert stopped == [1]
        with pytest.raises(JobNotFound):
            await job.refresh()


async def test_a_job_that_does_not_stop_in_time_stays(app: Tenure, clock):
    @app.task
    async def work() -> None:
        try:
            await clock.sleep(1000)
        finally:
            await clock.sleep(10)

    async with app.worker():
        job = await work.enqueue()
        await clock.advance(1)
        deleting = asyncio.create_task(app.delete_job(job.id, cancel=True, timeout=5))
        await clock.advance(6)
        with pytest.raises(TimeoutError, match="has not finished within"):
            await deleting
        assert (await job.refresh()).record.cancelling
        await clock.advance(10)
        assert (await job.refresh()).state == "cancelled"


async def test_a_job_that_returns_to_its_queue_meanwhile_is_deleted(
    app: Tenure, clock, seen, monkeypatch
):
    """It is cancelled there before it is deleted, and that has its event."""

    @app.task
    async def work() -> None:
        await clock.sleep(1000)

    async with app.worker(grace=0) as worker:
        job = await work.enqueue()
        await clock.advance(1)
        jobs = app._engine.services().store.jobs
        get = jobs.get

        async def get_after_a_shutdown(ids):
            records = await get(ids)
            monkeypatch.undo()
            worker.stop()
            await clock.advance(1)
            assert (await job.refresh()).state == "waiting"
            return records

        monkeypatch.setattr(jobs, "get", get_after_a_shutdown)
        await app.delete_job(job.id, cancel=True)
    assert [event.job for event in seen if isinstance(event, JobCancelled)] == [job.id]
    with pytest.raises(JobNotFound):
        await job.refresh()


async def test_cancel_of_a_job_whose_retention_is_nothing(app: Tenure, clock):
    """It may be pruned between its end and the delete: gone is gone."""

    @app.task(retention=0)
    async def work() -> None:
        await clock.sleep(1000)

    async with app.worker():
        job = await work.enqueue()
        await clock.advance(1)
        deleting = asyncio.create_task(app.delete_job(job.id, cancel=True))
        await clock.advance(0.01)
        await app.prune_jobs()
        await clock.advance(5)
        await deleting


@pytest.mark.parametrize("unknown", ["nonsense", "01890a5d-ac96-774b-bcce-000000000000"])
async def test_an_unknown_job_is_not_found(app: Tenure, unknown: str):
    for cancel in (False, True):
        with pytest.raises(JobNotFound):
            await app.delete_job(unknown, cancel=cancel)
