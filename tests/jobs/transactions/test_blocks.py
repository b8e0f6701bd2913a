"""`current_job().transaction`: what a handler can do inside the block, and after it."""

import asyncio
import sqlite3
from contextlib import AsyncExitStack

import psycopg
import pytest

from tenure import ConfigError, StoreError, Tenure, TooLarge, current_job
from tenure.core.jobs.records import JobRecord
from tenure.core.values.signature import Signature
from tenure.runtime.attempts.transaction import Ending, JobTransaction
from tests.jobs.transactions.kinds import ONE_OF_EACH, ONE_OF_EACH_DRIVER, POSTGRES, Undo, effects
from tests.jobs.transactions.own_connections import connect, path_of
from tests.rig.waiting import wait_until_async


@ONE_OF_EACH
async def test_one_attempt_has_one_transaction(app, own):
    @app.task(retry=None)
    async def work() -> str:
        job = current_job()
        async with job.transaction(own.connection):
            await own.add(1)
            with pytest.raises(ConfigError, match="one commit settles it"):
                job.transaction(own.connection)
            with pytest.raises(ConfigError, match="before"):
                await job.save(1)
        with pytest.raises(ConfigError, match="the commit of its first"):
            job.transaction(own.connection)
        with pytest.raises(StoreError):
            await job.save(1)
        calls.append("all")

    calls = []
    async with app.worker():
        job = await work.enqueue()
        assert await job.result(timeout=5) is None
        await wait_until_async(lambda: calls)
    assert await effects(own) == [1]


@ONE_OF_EACH
async def test_the_handler_continues_after_the_commit_even_if_its_notes_are_lost(app, own):
    @app.task(retry=None)
    async def work() -> None:
        job = current_job()
        job.progress(0.5)
        async with job.transaction(own.connection):
            job.progress(0.9)  # may arrive after the commit, and find the job finished
            await own.add(1)
        job.progress(1.0)
        await asyncio.sleep(0.1)
        ended.append(job.stop_reason)
        raise Undo  # too late to change anything

    ended = []
    async with app.worker():
        job = await work.enqueue()
        await wait_until_async(lambda: ended)
    assert ended == [None]
    assert (await job.refresh()).state == "succeeded"


@ONE_OF_EACH
async def test_a_result_that_cannot_be_stored_undoes_the_block(app, own):
    @app.task(retry=None)
    async def work(value: str | int) -> str:
        async with current_job().transaction(own.connection) as done:
            await own.add(1)
            done.result(value if isinstance(value, int) else value * 2_000_000)

    async with app.worker():
        for value, error in (("x", TooLarge.__name__), (1, "TypeError")):
            job = await work.enqueue(value)
            await job.wait(timeout=5)
            assert error in job.error
    assert await effects(own) == []


@ONE_OF_EACH
async def test_a_coroutine_is_refused_as_a_result(app, own):
    async def parcel() -> str:
        return "parcel"

    @app.task(retry=None)
    async def work() -> str:
        async with current_job().transaction(own.connection) as done:
            return done.result(parcel())

    async with app.worker():
        job = await work.enqueue()
        await job.wait(timeout=5)
    assert "not the coroutine: await it" in job.error


@ONE_OF_EACH_DRIVER
async def test_a_transaction_that_is_already_open_is_refused(app, own):
    @app.task(retry=None)
    async def work() -> None:
        async with own.transaction():
            await own.add(1)
            with pytest.raises(ConfigError, match="one is already open on this connection"):
                async with current_job().transaction(own.connection):
                    await own.add(2)

    async with app.worker():
        await (await work.enqueue()).result(timeout=5)
    assert await effects(own) == [1]


@pytest.mark.parametrize(
    "kind", ["sqlite3", "asyncpg", "sqlalchemy-asyncpg-session"], indirect=True
)
async def test_ending_the_transaction_inside_the_block_raises_an_error(app, own):
    @app.task(retry=None)
    async def work() -> None:
        async with current_job().transaction(own.connection):
            await own.add(1)
            if own.kind.startswith("sqlalchemy"):
                await own.connection.commit()
            else:
                await own.run("COMMIT")

    async with app.worker():
        job = await work.enqueue()
        await job.wait(timeout=5)
    assert job.state == "failed"
    assert "was ended inside" in job.error


@ONE_OF_EACH
async def test_either_the_cancel_or_the_commit_wins(app, own):
    async with Tenure(own.url, namespace=app._store.namespace) as rival:
        cancelling = []

        @app.task
        async def work() -> None:
            job = current_job()
            handle = await rival.job(job.id)
            async with job.transaction(own.connection):
                await own.add(1)
                cancelling.append(asyncio.ensure_future(handle.cancel("too late")))
                await asyncio.sleep(0.2)

        async with app.worker():
            job = await work.enqueue()
            await job.wait(timeout=5)
            assert job.state == "succeeded"
            assert await cancelling[0] is False
    assert await effects(own) == [1]


@ONE_OF_EACH
async def test_blocks_on_one_loop_wait_for_each_other(app, own, kind):
    @app.task(retry=None)
    async def work(amount: int) -> None:
        async with AsyncExitStack() as stack:
            mine = await connect(kind, own.url, stack)
            mine.table = own.table
            async with current_job().transaction(mine.connection):
                await mine.add(amount)
                await asyncio.sleep(0.02)  # a writer that waits for the file must not block this

    async with app.worker():
        jobs = [await work.enqueue(number) for number in range(5)]
        for job in jobs:
            await job.result(timeout=4)
    assert await effects(own) == [0, 1, 2, 3, 4]


@ONE_OF_EACH
async def test_a_cancelled_block_is_undone(app, own):
    inside = asyncio.Event()

    @app.task
    async def work() -> None:
        async with current_job().transaction(own.connection):
            await own.add(1)
            inside.set()
            await asyncio.sleep(60)

    async with app.worker(grace=0):
        job = await work.enqueue()
        await inside.wait()
    assert await effects(own) == []
    await job.refresh()
    assert (job.state, job.failures, job.losses) == ("waiting", 0, 0)


@pytest.mark.parametrize("kind", ["sqlite3", "psycopg"], indirect=True)
async def test_a_plain_handler_can_use_a_transaction_in_its_thread(app, own, kind):
    @app.task
    def work(amount: int) -> int:
        url = own.url
        db = sqlite3.connect(path_of(url)) if kind == "sqlite3" else psycopg.connect(url)
        try:
            with current_job().transaction(db) as done:
                db.execute(f"INSERT INTO {own.table} VALUES ({amount})")
                done.result(amount + 1)
                if amount < 0:
                    raise Undo
        finally:
            db.close()

    async with app.worker():
        good, bad = await work.enqueue(1), await work.enqueue(-1)
        assert await good.result(timeout=5) == 2
        await wait_until_async(lambda: has_failed(bad))
        await bad.cancel()
    assert await effects(own) == [1]


async def has_failed(job) -> bool:
    return (await job.refresh()).failures > 0


@POSTGRES
async def test_plain_with_is_for_synchronous_connections(app, own):
    @app.task(retry=None)
    async def work() -> None:
        with (
            pytest.raises(ConfigError, match="async with"),
            current_job().transaction(own.connection),
        ):
            await own.add(1)

    async with app.worker():
        await (await work.enqueue()).result(timeout=5)


class SlowCommit:
    """A connection whose commit waits until the test lets it end."""

    blocks = False

    def __init__(self) -> None:
        self.committing, self.go_on, self.steps = asyncio.Event(), asyncio.Event(), []

    async def begin(self, *, on_loop: bool) -> None:
        self.steps.append("begin")

    async def hold(self, *_: object) -> bool:
        return True

    async def settle(self, _: object) -> str:
        return "settled"

    async def commit(self) -> None:
        self.committing.set()
        await self.go_on.wait()
        self.steps.append("commit")

    async def rollback(self) -> None:
        self.steps.append("rollback")


async def test_a_cancel_waits_for_a_commit_in_flight():
    record = JobRecord(
        id="x", task="t", queue="q", priority=5, state="running", payload=b"", created=0, due=0
    )
    ending = Ending(Signature(lambda: None, "t"), lambda: b"", 100)
    own, settled = SlowCommit(), []

    async def handler() -> None:
        async with JobTransaction(own, record, ending, lambda: settled.append(True)):
            pass

    running = asyncio.ensure_future(handler())
    await own.committing.wait()
    running.cancel()
    await asyncio.sleep(0)
    assert not running.done()
    own.go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (own.steps, settled) == (["begin", "commit"], [True])
