"""Jobs in transactions of the user's own: `task.bind` and `current_job().transaction`."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress

import asyncpg
import psycopg
import pytest
import sqlalchemy
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from tenure import (
    AttemptOver,
    Backoff,
    ConfigError,
    JobNotFound,
    StoreError,
    Tenure,
    TooLarge,
    UniqueMismatch,
    blocking,
    current_job,
)
from tenure.core.records import JobRecord, Note, Settlement
from tenure.core.signature import Signature
from tenure.runtime.transaction import Ending, JobTransaction
from tests.jobs.own_connections import (
    KINDS,
    ON_POSTGRES,
    Own,
    connect,
    on_postgres,
    path_of,
    values,
)
from tests.rig.waiting import wait_until_async

# What differs between drivers is tried on all of them; the rest on one for each database.
ONE_OF_EACH = pytest.mark.parametrize("kind", ["sqlite3", "asyncpg"], indirect=True)
ONE_OF_EACH_DRIVER = pytest.mark.parametrize(
    "kind",
    ["sqlite3", "sqlalchemy-aiosqlite-session", "asyncpg", "psycopg", "sqlalchemy-asyncpg-session"],
    indirect=True,
)
POSTGRES = pytest.mark.parametrize("kind", ["asyncpg"], indirect=True)
AT_ONCE = Backoff(max_attempts=3, base=0.001, cap=0.001)


@pytest.fixture(params=KINDS)
def kind(request) -> str:
    """The kind of the user's own connection."""
    return request.param


@pytest.fixture
def url(kind, tmp_path, request) -> str:
    """A database that has room for the user's tables and for ours."""
    if kind in ON_POSTGRES:
        return request.getfixturevalue("postgres_server").url
    return f"sqlite:///{tmp_path / 'tenure.db'}"


@pytest.fixture
async def app(url, namespace) -> AsyncIterator[Tenure]:
    async with Tenure(url, namespace=namespace) as app:
        yield app


@pytest.fixture
async def own(kind, url, app, namespace) -> AsyncIterator[Own]:
    """The user's own connection to the database of the app, and a table there."""
    table = f"effect_{namespace}"
    async with AsyncExitStack() as outer:
        keeper = await connect("asyncpg" if kind in ON_POSTGRES else "sqlite3", url, outer)
        await keeper.run(f"CREATE TABLE {table} (amount INTEGER)")
        async with AsyncExitStack() as stack:
            own = await connect(kind, url, stack)
            own.table, own.url = table, url
            yield own
        await keeper.run(f"DROP TABLE {table}")


class Undo(Exception):
    """Raised to roll back."""


async def effects(own: Own) -> list[int]:
    return await values(own.url, own.table)


def declare_double(app: Tenure):
    @app.task
    async def double(number: int) -> int:
        return 2 * number

    return double


# Enqueue.


async def test_a_job_is_there_after_the_commit_and_wakes_a_sleeping_worker(app, own):
    double = declare_double(app)
    async with app.worker():
        await asyncio.sleep(0.1)  # for the worker to fall asleep
        async with own.transaction():
            await own.add(1)
            job = await double.bind(own.connection).enqueue(21)
            assert job.is_new
            await asyncio.sleep(0.05)
            with pytest.raises(JobNotFound):
                await app.job(job.id)
        # It looks every five seconds by itself.
        assert await job.result(timeout=2) == 42
    assert await effects(own) == [1]


async def test_a_job_that_was_rolled_back_never_was(app, own):
    double = declare_double(app)
    with pytest.raises(Undo):
        async with own.transaction():
            await own.add(1)
            job = await double.bind(own.connection).enqueue(21)
            raise Undo
    assert await effects(own) == []
    assert await app.counts() == []
    with pytest.raises(JobNotFound):
        await job.refresh()


@ONE_OF_EACH
async def test_what_was_bound_keeps_its_options_and_the_other_way_round(app, own):
    double = declare_double(app)
    async with own.transaction():
        first = await double.using(queue="a", tags=["x"]).bind(own.connection).enqueue(1)
        second = await double.bind(own.connection).using(queue="b", delay=60).enqueue(2)
    assert (await first.refresh()).tags == ("x",)
    assert [(await one.refresh()).queue for one in (first, second)] == ["a", "b"]
    assert second.due > second.created


@POSTGRES
async def test_nothing_is_set_in_a_transaction_that_is_the_users(app, own):
    async def settings() -> dict[str, str]:
        return dict(await own.connection.fetch("SELECT name, setting FROM pg_settings"))

    async with own.transaction():
        before = await settings()
        await declare_double(app).using(unique="k").bind(own.connection).enqueue(1)
        after = await settings()
    assert {name: after[name] for name in before} == before  # it may have loaded more


@ONE_OF_EACH_DRIVER
async def test_unique_keys_answer_as_usual(app, own):
    double = declare_double(app).using(unique="k")
    before = await double.enqueue(1)
    async with own.transaction():
        again = await double.bind(own.connection).enqueue(1)
        with pytest.raises(UniqueMismatch):
            await double.bind(own.connection).enqueue(2)
        other = double.using(unique="other").bind(own.connection)
        first, second = await other.enqueue(3), await other.enqueue(3)
    assert (again.id, again.is_new, again.state) == (before.id, False, "waiting")
    assert (first.is_new, second.is_new, second.id) == (True, False, first.id)
    assert {job.id for job in await app.jobs()} == {before.id, first.id}


@ONE_OF_EACH_DRIVER
async def test_many_at_once_are_one_commit(app, own):
    double = declare_double(app)
    requests = [double.using(tags=["t"] if n % 7 else []).request(n) for n in range(250)]
    with suppress(Undo):
        async with own.transaction():
            await app.enqueue_many(requests, within=own.connection)
            raise Undo
    assert await app.counts() == []
    async with own.transaction():
        jobs = await app.enqueue_many(requests, within=own.connection)
    assert len({job.id for job in jobs}) == 250
    assert [(one.queue, one.waiting) for one in await app.counts()] == [("default", 250)]


@ONE_OF_EACH
async def test_a_mismatch_among_many_stands_in_the_list(app, own):
    double = declare_double(app)
    await double.using(unique="k").enqueue(1)
    requests = [double.request(1), double.using(unique="k").request(2)]
    async with own.transaction():
        [job, error] = await app.enqueue_many(
            requests, within=own.connection, return_exceptions=True
        )
    assert (await job.refresh()).state == "waiting"
    assert isinstance(error, UniqueMismatch)


# What cannot work.


@pytest.mark.parametrize("kind", ["sqlite3", "asyncpg", "psycopg"], indirect=True)
async def test_without_a_transaction_nothing_is_enqueued(app, own):
    double = declare_double(app)
    with pytest.raises(ConfigError, match="none is open"):
        await double.bind(own.connection).enqueue(1)
    assert await app.counts() == []


@pytest.mark.parametrize(
    "kind",
    ["sqlalchemy-asyncpg-connection", "sqlalchemy-psycopg-session", "sqlalchemy-aiosqlite-session"],
    indirect=True,
)
async def test_autocommit_in_disguise_is_refused(app, kind, url):
    double = declare_double(app)
    async with AsyncExitStack() as stack:
        own = await connect(kind, url, stack, isolation_level="AUTOCOMMIT")
        with pytest.raises(ConfigError, match="none is open"):
            async with own.transaction():
                await double.bind(own.connection).enqueue(1)
    assert await app.counts() == []


@ONE_OF_EACH
async def test_a_strange_connection_is_refused(app):
    double = declare_double(app)
    with pytest.raises(ConfigError, match=r"bind\(\) cannot use a builtins.object"):
        await double.bind(object()).enqueue(1)
    with pytest.raises(ConfigError, match="not None"):
        double.bind(None)


@ONE_OF_EACH
async def test_a_connection_to_another_database_is_refused(app, kind, url, namespace, tmp_path):
    double = declare_double(app)
    elsewhere = f"sqlite:///{tmp_path / 'other.db'}"
    if kind == "asyncpg":
        elsewhere = f"{url.rpartition('/')[0]}/{namespace}"
        await on_postgres(url, f'CREATE DATABASE "{namespace}"')
    try:
        for prepared in (False, True):
            if prepared:  # another service keeps its jobs there
                async with Tenure(elsewhere, namespace=namespace) as other:
                    assert await other.counts() == []
            async with AsyncExitStack() as stack:
                own = await connect(kind, elsewhere, stack)
                with pytest.raises(ConfigError, match="database of the store"):
                    async with own.transaction():
                        await double.bind(own.connection).enqueue(1)
        async with Tenure(elsewhere, namespace=namespace) as other:
            assert await other.counts() == []
    finally:
        if kind == "asyncpg":
            await on_postgres(url, f'DROP DATABASE "{namespace}" WITH (FORCE)')


@pytest.mark.parametrize("store", ["memory://", "redis"])
async def test_a_store_without_transactions_says_what_to_do(store, namespace, request):
    url = request.getfixturevalue("valkey_server").url if store == "redis" else store
    async with Tenure(url, namespace=namespace) as app, app.worker():
        double = declare_double(app)

        @app.task(retry=None)
        async def last() -> None:
            with pytest.raises(ConfigError, match="no transactions that transaction"):
                current_job().transaction(object())

        with pytest.raises(ConfigError, match=r"no transactions that bind.*after your commit"):
            await double.bind(object()).enqueue(1)
        await (await last.enqueue()).result(timeout=5)


@pytest.mark.parametrize("kind", ["sqlite3"], indirect=True)
async def test_taste_in_rows_does_not_matter(app, own):
    double = declare_double(app).using(unique="k", tags=["t"])
    before = await double.enqueue(1)
    own.connection.row_factory = sqlite3.Row
    own.connection.text_factory = bytes
    async with own.transaction():
        assert (await double.bind(own.connection).enqueue(1)).id == before.id
    assert own.connection.text_factory is bytes


@pytest.mark.parametrize("kind", ["sqlite3"], indirect=True)
async def test_nobody_writes_between_what_a_bound_job_reads_and_its_commit(app, own):
    rival = sqlite3.connect(path_of(own.url), timeout=0, isolation_level=None)
    own.connection.execute("BEGIN")  # which takes no lock yet
    assert await app._store.within(own.connection, "bind()").get([]) == []
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        rival.execute("BEGIN IMMEDIATE")
    own.connection.execute("ROLLBACK")
    rival.close()


# From threads.


@pytest.mark.parametrize("kind", ["sqlite3", "psycopg"], indirect=True)
def test_from_a_thread(kind, url, namespace):
    described = Tenure(url, namespace=namespace)
    double = declare_double(described)
    with blocking.Tenure(described) as app:
        # Both begin a transaction by themselves.
        db = sqlite3.connect(path_of(url)) if kind == "sqlite3" else psycopg.connect(url)
        job = app.enqueue(double.request(1), within=db)
        db.rollback()
        with pytest.raises(JobNotFound):
            job.refresh()
        jobs = app.enqueue_many([double.request(n) for n in range(3)], within=db)
        assert app.counts() == []
        db.commit()
        db.close()
        assert [job.refresh().state for job in jobs] == ["waiting"] * 3


@pytest.mark.parametrize("kind", ["sqlite3", "psycopg"], indirect=True)
def test_from_a_thread_by_sqlalchemy(kind, url, namespace):
    described = Tenure(url, namespace=namespace)
    double = declare_double(described)
    scheme, _, rest = url.partition("://")
    driver = "pysqlite" if kind == "sqlite3" else "psycopg"
    engine = sqlalchemy.create_engine(f"{scheme}+{driver}://{rest}", poolclass=NullPool)
    with blocking.Tenure(described) as app:
        for end, found in (("rollback", 0), ("commit", 1)):
            with Session(engine) as session:
                app.enqueue(double.request(1), within=session)
                getattr(session, end)()
            assert len(app.jobs()) == found


@POSTGRES
def test_a_thread_has_no_use_for_an_asynchronous_connection(url, namespace):
    described = Tenure(url, namespace=namespace)
    double = declare_double(described)

    async def attempt(app: blocking.Tenure) -> None:
        connection = await asyncpg.connect(url)
        with pytest.raises(ConfigError, match="synchronous"):
            app.enqueue(double.request(1), within=connection)
        await connection.close()

    with blocking.Tenure(described) as app:
        asyncio.run(attempt(app))


# The end of a job.


async def test_the_commit_settles_the_job(app, own):
    @app.task
    async def work(amount: int) -> int:
        async with current_job().transaction(own.connection) as done:
            await own.add(amount)
            done.result(amount + 1)
        assert current_job().is_settled
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
async def test_an_error_undoes_the_block_and_the_job_is_tried_again(app, own):
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
async def test_a_stale_attempt_is_refused_before_it_writes(app, own):
    reached, refused = [], asyncio.Event()
    async with Tenure(own.url, namespace=app._store.namespace) as rival:

        @app.task(retry=None)
        async def work() -> None:
            await taken_over_by(rival)
            with pytest.raises(AttemptOver) as refusal:
                async with current_job().transaction(own.connection):
                    reached.append(True)
                    await own.add(1)
            told = (refusal.value.job, refusal.value.fence)
            assert told == (current_job().id, current_job().fence)
            refused.set()

        async with app.worker():
            job = await work.enqueue()
            async with asyncio.timeout(5):
                await refused.wait()
            await asyncio.sleep(0.05)
    assert reached == []
    assert await effects(own) == []
    await job.refresh()
    assert (job.state, job.attempt, job.failures) == ("waiting", 1, 0)


async def taken_over_by(rival: Tenure) -> None:
    """Have somebody give the caller's job to others, behind the back of its worker."""
    job = current_job()
    away = Settlement(id=job.id, fence=job.fence, outcome="handed back", delay=60)
    assert await rival._store.settle("", [away]) == ["settled"]


@POSTGRES
async def test_what_became_stale_meanwhile_is_undone(app, own):
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
            raise

    async with app.worker():
        await work.enqueue()
        await wait_until_async(lambda: seen)
    assert await effects(own) == []


@POSTGRES
async def test_nobody_takes_the_job_before_the_commit_and_others_are_not_held_up(app, own):
    async with Tenure(own.url, namespace=app._store.namespace) as rival:
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
                assert await rival._store.note(me.replica, [note]) == [True]
                done.result("kept")

        async with app.worker(grace=0):
            neighbour = await other.enqueue()
            await wait_until_async(lambda: is_running(neighbour))
            job = await work.enqueue()
            assert await job.result(timeout=5) == "kept"
        assert [one.id for one in recovered] == [neighbour.id]
    assert (job.losses, await effects(own)) == (0, [1])


async def is_running(job) -> bool:
    return (await job.refresh()).state == "running"


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
        told.append("all")

    told = []
    async with app.worker():
        job = await work.enqueue()
        assert await job.result(timeout=5) is None
        await wait_until_async(lambda: told)
    assert await effects(own) == [1]


@ONE_OF_EACH
async def test_the_handler_goes_on_after_the_commit_whatever_becomes_of_its_notes(app, own):
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


@ONE_OF_EACH_DRIVER
async def test_a_transaction_of_the_users_is_not_taken_over(app, own):
    @app.task(retry=None)
    async def work() -> None:
        async with own.transaction():
            await own.add(1)
            with pytest.raises(ConfigError, match="one is open on this connection already"):
                async with current_job().transaction(own.connection):
                    await own.add(2)

    async with app.worker():
        await (await work.enqueue()).result(timeout=5)
    assert await effects(own) == [1]


@pytest.mark.parametrize(
    "kind", ["sqlite3", "asyncpg", "sqlalchemy-asyncpg-session"], indirect=True
)
async def test_ending_the_transaction_inside_the_block_is_told(app, own):
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
async def test_of_a_cancel_and_a_commit_one_wins(app, own):
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
                await asyncio.sleep(0.02)  # whoever waits for the file must not stop this

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
async def test_a_plain_handler_does_the_same_in_its_thread(app, own, kind):
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
    """A connection whose commit takes until it is let go."""

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


async def test_a_commit_on_its_way_is_waited_for():
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
