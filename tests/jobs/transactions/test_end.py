"""`current_job().transaction`: the commit that also ends the job, if the attempt still holds it."""

import asyncio
import contextlib

import pytest

from tenure import AttemptOver, Tenure, current_job
from tenure.app import engine_of
from tenure.core.jobs.records import Note
from tenure.runtime.attempts.running_job import current
from tests.jobs.transactions.kinds import AT_ONCE, ONE_OF_EACH_DRIVER, POSTGRES, Undo, effects
from tests.jobs.transactions.own_connections import on_postgres
from tests.rig.endings import settlement
from tests.rig.wait import wait_until_async


async def test_the_commit_settles_the_job(app, own):
    @app.task
    async def work(amount: int) -> int:
        async with current_job().transaction(own.connection) as done:
            await own.add(amount)
            done.result(amount + 1)
        assert current.get().is_settled
        return 1000

    async with app.worker():
        job = await work.enqueue(7)
        assert await job.result(timeout=5) == 8
    assert await effects(own) == [7]
    assert (job.state, job.attempt, job.failures) == ("succeeded", 1, 0)
    [line] = job.history
    assert (line.outcome, line.attempt) == ("succeeded", 1)
    assert line.ended >= line.started


@ONE_OF_EACH_DRIVER
async def test_a_commit_counts_as_a_success(app, own):
    @app.task
    async def work() -> None:
        async with current_job().transaction(own.connection):
            await own.add(1)

    async with app.worker():
        await (await work.enqueue()).wait(timeout=5)
    [stats] = await app.run_stats()
    assert (stats.started, stats.succeeded) == (1, 1)


@ONE_OF_EACH_DRIVER
async def test_an_error_undoes_the_block_and_the_job_is_retried(app, own):
    @app.task(retry=AT_ONCE)
    async def work() -> int:
        async with current_job().transaction(own.connection) as done:
            await own.add(current_job().attempt)
            done.result(current_job().attempt)
            if current_job().attempt < 3:
                raise Undo

    async with app.worker():
        job = await work.enqueue()
        assert await job.result(timeout=5) == 3
    assert await effects(own) == [3]
    assert [line.outcome for line in job.history] == ["retry", "retry", "succeeded"]


@ONE_OF_EACH_DRIVER
async def test_the_handler_can_use_its_connection_again_after_an_undone_block(app, own):
    @app.task(retry=None)
    async def work() -> int:
        block = current_job().transaction(own.connection)
        with contextlib.suppress(Undo):
            async with block as done:
                await own.add(1)
                done.result(1)
                raise Undo
        async with own.transaction():
            await own.add(2)
        assert await effects(own) == [2]
        return 3

    async with app.worker():
        job = await work.enqueue()
        assert await job.result(timeout=5) == 3


@ONE_OF_EACH_DRIVER
async def test_a_stale_attempt_is_refused_before_it_writes(app, own):
    reached, refused = [], asyncio.Event()
    async with Tenure(own.url, namespace=engine_of(app).store.namespace) as rival:

        @app.task(retry=None)
        async def work() -> None:
            await taken_over_by(rival)
            with pytest.raises(AttemptOver) as refusal:
                async with current_job().transaction(own.connection):
                    reached.append(True)
                    await own.add(1)
            refused_attempt = (refusal.value.job, refusal.value.fence)
            assert refused_attempt == (current_job().id, current_job().fence)
            refused.set()

        async with app.worker():
            job = await work.enqueue()
            async with asyncio.timeout(5):
                await refused.wait()
            await asyncio.sleep(0.05)
    assert reached == []
    assert await effects(own) == []
    await job.refresh()
    assert (job.state, job.record.attempt, job.failures) == ("waiting", 1, 0)


async def taken_over_by(rival: Tenure) -> None:
    """Let another replica take over the caller's job without its worker noticing."""
    job = current_job()
    away = settlement(id=job.id, fence=job.fence, outcome="handed back", delay=60)
    assert await engine_of(rival).store.jobs.settle([away]) == ["settled"]


@POSTGRES
async def test_a_block_whose_attempt_became_stale_is_undone(app, own):
    seen = []

    @app.task(retry=None)
    async def work() -> None:
        try:
            async with current_job().transaction(own.connection):
                await own.add(1)
                await on_postgres(
                    own.url,
                    "UPDATE tenure.job SET fence = fence + 1, replica = '', state = 'waiting', "
                    f"due = 9e15 WHERE id = '{current_job().id}'",
                )
        except AttemptOver as error:
            seen.append(error)
            async with own.transaction():  # other tasks can use the connection
                await own.add(2)
            raise

    async with app.worker():
        await work.enqueue()
        await wait_until_async(lambda: seen)
    assert await effects(own) == [2]


@POSTGRES
async def test_no_replica_takes_the_job_before_the_commit_and_other_jobs_are_not_delayed(app, own):
    async with Tenure(own.url, namespace=engine_of(app).store.namespace) as rival:
        recovered = []

        @app.task(name="other")
        async def other() -> None:
            await asyncio.sleep(60)

        @app.task
        async def work() -> str:
            job = current_job()
            me = await rival.job(job.id)
            async with job.transaction(own.connection) as done:
                await own.add(1)
                await on_postgres(
                    own.url, f"UPDATE tenure.replica SET ttl = 0 WHERE id = '{me.replica}'"
                )
                recovered.extend(await rival.recover())
                note = Note(id=job.id, fence=job.fence, progress=0.5)
                assert await engine_of(rival).store.jobs.note([note]) == [True]
                done.result("kept")

        async with app.worker(grace=0):
            neighbour = await other.enqueue()
            await wait_until_async(lambda: is_running(neighbour))
            job = await work.enqueue()
            assert await job.result(timeout=5) == "kept"
        assert [job.id for job in recovered] == [neighbour.id]
    assert (job.losses, await effects(own)) == (0, [1])


async def is_running(job) -> bool:
    return (await job.refresh()).state == "running"
