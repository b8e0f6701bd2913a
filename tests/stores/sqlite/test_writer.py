"""The thread of the SQLite store: joint commits, wake-ups from other processes, the log's size."""

import asyncio
import logging
import re
import sqlite3
import threading
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path

import pytest

from tenure.core.leases import Granted, Lease
from tenure.errors import StoreError, StoreUnavailable
from tenure.stores.sqlite import (
    SqliteStore,
    database,
    expired,
    lease_keys,
    leases,
    semaphores,
    waiters,
    writer,
)
from tenure.stores.sqlite.leases import _after
from tenure.stores.sqlite.statements import bells_of
from tenure.testing import ManualClock
from tests.contract.calls import ask, be_refused, fill, holders, take
from tests.rig.sizes import SIZE
from tests.rig.wait import wait_until_async
from tests.stores.sqlite.inside import inside, leave_trace, statements_of, steps_of


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "tenure.db"


@pytest.fixture
async def store(file: Path, clock: ManualClock):
    store = SqliteStore(f"sqlite:///{file}", namespace="app", clock=clock)
    await store.open()
    yield store
    await store.close()


@pytest.fixture
async def other(store: SqliteStore):
    other = store.clone()
    await other.open()
    yield other
    await other.close()


@asynccontextmanager
async def occupied(store: SqliteStore):
    """Keep the thread of the store at work for as long as the block runs."""
    begun, done = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def block(tx):
        loop.call_soon_threadsafe(begun.set)
        assert done.wait(SIZE.patience)

    blocked = asyncio.ensure_future(store.run(block))
    await begun.wait()
    try:
        yield blocked
    finally:
        done.set()
    with suppress(asyncio.CancelledError):
        await blocked


async def test_calls_that_arrive_meanwhile_share_one_commit(store):
    async def ask_meanwhile():
        async with occupied(store):
            calls = [ask(store, f"key{number}", "ann") for number in range(100)]
            answers = asyncio.gather(*calls)
            await asyncio.sleep(0)
        await answers

    seen = await statements_of(store, ask_meanwhile())
    assert seen.count("BEGIN IMMEDIATE") == 2
    assert len(await store.leases.find()) == 100


# The way past the thread


def thread_of(tx) -> int:
    return threading.get_ident()


async def test_a_brief_call_runs_in_the_callers_thread(store):
    threads = [await store.run_brief(thread_of) for _ in range(5)]
    assert threads[1:] == [threading.get_ident()] * 4


class HeldBack:
    """The turn at the connection, which the thread does not get before `go` is set."""

    def __init__(self, turn: threading.Lock) -> None:
        self._turn = turn
        self.go = threading.Event()
        self.acquire, self.release = turn.acquire, turn.release

    def __enter__(self) -> None:
        assert self.go.wait(10)
        self._turn.acquire()

    def __exit__(self, *_: object) -> None:
        self._turn.release()


async def test_a_brief_call_overtakes_nothing(store):
    await ask(store, "warm", "up")
    order = []
    writer = store._writer
    writer._turn = turn = HeldBack(writer._turn)
    first = asyncio.ensure_future(store.run(lambda tx: order.append("first")))
    await wait_until_async(lambda: writer._pending and writer._queue.empty())
    brief = asyncio.ensure_future(store.run_brief(lambda tx: order.append("brief")))
    await asyncio.sleep(0)  # it begins, and could run by itself
    turn.go.set()
    await first
    await brief
    assert order == ["first", "brief"]


async def test_a_brief_call_waits_for_a_busy_file_in_the_thread(store, file):
    loop = asyncio.get_running_loop()
    await ask(store, "warm", "up")
    with closing(sqlite3.connect(file, isolation_level=None)) as rival:
        rival.execute("BEGIN IMMEDIATE")
        began = loop.time()
        waiting = asyncio.ensure_future(ask(store, "key", "ann"))
        await asyncio.sleep(0)
        assert loop.time() - began < database.BUSY_TIMEOUT / 2  # the loop did not wait
        assert not waiting.done()
        rival.execute("ROLLBACK")
    assert isinstance(await waiting, Granted)


async def test_a_brief_call_that_fails_is_undone_and_reported(store):
    def half_done(tx):
        tx.change(leases.MARK, key="half", value="done", fence=1)
        raise ZeroDivisionError

    for _ in range(3):
        with pytest.raises(StoreError):
            await store.run_brief(half_done)
    assert await store.leases.marked(["half"]) == [None]


async def test_brief_calls_let_other_tasks_run(store):
    turns = 0

    async def other_task():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    running = asyncio.ensure_future(other_task())
    for _ in range(100):
        await store.run_brief(thread_of)
    running.cancel()
    assert turns >= 5


async def test_one_bad_call_fails_alone(store):
    async def half_done(value):
        def work(tx):
            tx.change("INSERT INTO tenure_space VALUES ('other', 1)")
            raise ValueError(value)

        return await store.run(work)

    answers = await asyncio.gather(
        ask(store, "one", "ann"),
        half_done("first"),
        ask(store, "two", "\ud800"),
        half_done("second"),
        ask(store, "three", "ann"),
        return_exceptions=True,
    )
    assert [type(answer) for answer in answers] == [
        Granted,
        StoreError,
        StoreError,
        StoreError,
        Granted,
    ]
    assert "first" in str(answers[1])
    assert [lease.key for lease in await store.leases.find()] == ["one", "three"]


async def test_a_cancelled_call_that_has_not_begun_is_not_made(store):
    async with occupied(store) as blocked:
        cancelled = asyncio.ensure_future(ask(store, "key", "ann"))
        kept = asyncio.ensure_future(ask(store, "other", "ann"))
        await asyncio.sleep(0)
        cancelled.cancel()
        blocked.cancel()
        with suppress(asyncio.CancelledError):
            await cancelled
    await kept
    assert [lease.key for lease in await store.leases.find()] == ["other"]


async def test_closing_answers_what_was_asked_before(store):
    calls = [asyncio.ensure_future(ask(store, f"key{number}", "ann")) for number in range(300)]
    await asyncio.sleep(0)
    await store.close()
    assert all(isinstance(call.result(), Granted) for call in calls)


async def test_opening_can_be_cancelled(file, clock):
    store = SqliteStore(f"sqlite:///{file}", namespace="app", clock=clock)
    opening = asyncio.ensure_future(store.open())
    await asyncio.sleep(0)
    opening.cancel()
    with suppress(asyncio.CancelledError):
        await opening
    await store.open()
    await store.close()


async def test_only_a_store_with_watchers_looks(store, other):
    with_none = await statements_of(store, asyncio.sleep(0.2))
    assert not any("data_version" in statement for statement in with_none)
    async with store.watch(("lease", "ben")):
        with_one = await statements_of(store, asyncio.sleep(0.2))
        assert sum("data_version" in statement for statement in with_one) > 2
        assert not any(
            "tenure_wake" in statement for statement in with_one
        )  # no process has written


async def test_only_the_bell_that_rang_wakes(store, other):
    far = next(name for name in map(str, range(99)) if bells_of(("lease", name))[0] != "lease:0")
    near = next(name for name in map(str, range(999)) if bells_of(("lease", name))[0] == "lease:0")
    ann = await take(store, "key", "ann")
    await be_refused(other, "key", near, waiting=60)
    async with other.watch(("lease", near)) as first, other.watch(("lease", far)) as second:
        await store.leases.release([ann])
        assert await first.wait(None)
        assert not await second.wait(0)


async def test_wake_ups_of_crowds_leave_few_rows(store):
    for number in range(300):
        ann = await take(store, "key", f"ann{number}")
        await be_refused(store, "key", f"ben{number}", waiting=60)
        await store.leases.release([ann, Lease(key="key", holder=f"ben{number}")])
    rows = await inside(store, lambda db: db.execute("SELECT * FROM tenure_wake").fetchall())
    assert 1 <= len(rows) <= 64


async def test_namespaces_share_the_file_and_nothing_else(store, file, clock):
    second = SqliteStore(f"sqlite:///{file}", namespace="app2", clock=clock)
    await second.open()
    try:
        ann = await take(store, "key", "ann")
        await be_refused(store, "key", "ben", waiting=60)
        await take(second, "key", "cid")
        async with second.watch(("lease", "ben")) as watch:
            await store.leases.release([ann])
            await inside(second, lambda db: None)
            assert not await watch.wait(0)
        assert await holders(second, "key") == ["cid"]
    finally:
        await second.close()


async def test_a_released_key_leaves_nothing_and_a_dead_one_goes_with_prune(store, clock, file):
    def rows(db):
        tables = ("tenure_lease", "tenure_semaphore", "tenure_waiter")
        return [db.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables]

    leases = [await take(store, "lock", "ann")]
    leases += await fill(store, "semaphore", {"ann": 10, "ben": 20}, limit=2)
    await be_refused(store, "semaphore", "cid", limit=2, waiting=5)
    assert await inside(store, rows) == [3, 1, 1]
    await store.leases.release([*leases, Lease(key="semaphore", holder="cid")])
    assert await inside(store, rows) == [0, 0, 0]
    await fill(store, "semaphore", {"ann": 10, "ben": 20}, limit=2)
    await be_refused(store, "semaphore", "cid", limit=2, waiting=5)
    await take(store, "lock", "ann", ttl=10)
    clock.shift(10)
    assert (await store.prune(idle=60)).leases == 0
    clock.shift(50)
    assert (await store.prune(idle=60)).leases == 0, "they ended less than 60 s ago"
    clock.shift(20)
    assert (await store.prune(idle=60)).leases == 2
    assert await inside(store, rows) == [0, 0, 0]


async def test_a_full_answer_takes_as_long_for_any_limit(store):
    async def steps(limit):
        await fill(
            store, f"of {limit}", {str(number): 60 + number for number in range(limit)}, limit=limit
        )
        return await steps_of(store, ask(store, f"of {limit}", "late", limit=limit))

    # Some releases of SQLite take a step or two per level of the index.
    assert await steps(1500) <= 1.1 * await steps(3)
    # A lowered limit takes its answer from the far end.
    few = await steps_of(store, ask(store, "of 1500", "late", limit=3))
    assert few < 2 * await steps(4)


STATEMENTS = {
    name: text
    for module in (expired, lease_keys, leases, semaphores, waiters)
    for name, text in vars(module).items()
    if name.isupper() and isinstance(text, str) and not name.startswith(("_", "HAS_"))
}


@pytest.mark.parametrize("name", STATEMENTS)
async def test_no_statement_reads_a_whole_table(store, name):
    values = dict.fromkeys(re.findall(r":(\w+)", STATEMENTS[name]), 1)
    plan = await inside(
        store, lambda db: db.execute(f"EXPLAIN QUERY PLAN {STATEMENTS[name]}", values).fetchall()
    )
    scans = [step for *_, step in plan if step.startswith("SCAN") and "json_each" not in step]
    assert scans in ([], ["SCAN CONSTANT ROW"])


async def test_after_trouble_with_the_disk_the_next_call_works(store, monkeypatch):
    def fail(self):
        monkeypatch.undo()
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
        raise error

    monkeypatch.setattr(writer.Writer, "_try_here", lambda *_, **__: None)
    monkeypatch.setattr(database.Database, "commit", fail)
    with pytest.raises(StoreUnavailable, match="Check the disk"):
        await ask(store, "key", "ann")
    assert await holders(store, "key") == []
    await take(store, "key", "ben")


# The log


def log_size(file: Path) -> int:
    return file.with_name(f"{file.name}-wal").stat().st_size


async def test_the_log_does_not_grow_for_ever(store, other, file, monkeypatch):
    monkeypatch.setattr(database, "WAL_LIMIT", 200_000)
    largest = 0
    for number in range(400):
        for sharer in (store, other):
            await sharer.leases.release([await take(sharer, f"key{number}", "ann")])
            largest = max(largest, log_size(file))
    assert 200_000 < largest < 800_000
    with closing(sqlite3.connect(file)) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


async def test_the_log_recovers_after_a_slow_reader(store, file, monkeypatch):
    monkeypatch.setattr(database, "WAL_LIMIT", 100_000)

    async def work():
        for _ in range(100):
            await store.leases.release([await take(store, "key", "ann")])
        return log_size(file)

    await work()
    with closing(sqlite3.connect(file, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM tenure_space").fetchall()
        grown = await work()
        seen = await statements_of(store, take(store, "key", "ann"))
        assert grown > 500_000
        assert seen.count("BEGIN IMMEDIATE") == 1  # not tried again after every commit
        reader.execute("ROLLBACK")
    assert await work() < 500_000


async def test_a_reader_that_keeps_the_log_is_reported_once_and_the_log_shrinks_at_once_after_it(
    store, file, clock, monkeypatch, caplog
):
    caplog.set_level(logging.INFO, "tenure")
    monkeypatch.setattr(database, "WAL_LIMIT", 100_000)

    async def work(times=100):
        for _ in range(times):
            await store.leases.release([await take(store, "key", "ann")])

    with closing(sqlite3.connect(file, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM tenure_space").fetchall()
        for _ in range(40):
            await work(20)
            await leave_trace(store)  # in the thread, which copies
            clock.shift(1)
        warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
        [line] = [record.getMessage() for record in warnings]
        assert re.search(r"grown to [0-9.]+ MB: .* reading for at least 30 s", line)
        grown = log_size(file)
        reader.execute("ROLLBACK")
    assert grown > 500_000
    clock.shift(1)
    await leave_trace(store)  # copies all of it
    await take(store, "key", "ben")  # begins the log anew
    assert log_size(file) < 100_000
    assert [record.levelname for record in caplog.records if "log of" in record.getMessage()] == [
        "WARNING",
        "INFO",
    ]


async def test_a_short_reader_is_not_reported(store, file, clock, monkeypatch, caplog):
    caplog.set_level(logging.INFO, "tenure")
    monkeypatch.setattr(database, "WAL_LIMIT", 100_000)
    with closing(sqlite3.connect(file, isolation_level=None)) as reader:
        for _ in range(3):
            reader.execute("BEGIN")
            reader.execute("SELECT * FROM tenure_space").fetchall()
            for number in range(100):
                await store.leases.release([await take(store, f"key{number}", "ann")])
                await leave_trace(store)
            clock.shift(20)
            reader.execute("ROLLBACK")
            clock.shift(1)
            await leave_trace(store)
    assert not [record for record in caplog.records if "log of" in record.getMessage()]


async def test_a_log_that_cannot_be_copied_is_reported_once_and_when_it_is_over(
    store, clock, monkeypatch, caplog
):
    caplog.set_level(logging.INFO, "tenure")
    tries = []

    def fail(self):
        tries.append(clock.boot())
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise error

    monkeypatch.setattr(database, "WAL_LIMIT", 0)
    with monkeypatch.context() as full:
        full.setattr(database.Database, "copy_log", fail)
        for _ in range(10):
            for number in range(20):
                await take(store, f"key{number}", "ann")
                await leave_trace(store)
            clock.shift(1)
    assert len(tries) == 10  # once a second
    messages = [
        record.getMessage() for record in caplog.records if "disk is full" in record.getMessage()
    ]
    assert len(messages) == 1
    await leave_trace(store)
    await wait_until_async(lambda: "works again" in caplog.text)


async def test_looks_that_fail_are_reported_once_and_when_it_is_over(store, monkeypatch, caplog):
    caplog.set_level(logging.INFO, "tenure")
    looks = threading.Semaphore(0)

    def fail(self):
        looks.release()
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode = sqlite3.SQLITE_IOERR
        raise error

    async with store.watch(("lease", "ann")):
        with monkeypatch.context() as broken:
            broken.setattr(database.Database, "data_version", fail)
            for _ in range(10):
                assert await asyncio.to_thread(looks.acquire, timeout=SIZE.patience)
        await wait_until_async(lambda: "works again" in caplog.text)
    messages = [
        record.getMessage() for record in caplog.records if "Check the disk" in record.getMessage()
    ]
    assert len(messages) == 1


async def test_copying_the_log_happens_under_the_write_lock(store, file, monkeypatch):
    """Before SQLite 3.51.3 a log that is started afresh meanwhile damages the database."""
    monkeypatch.setattr(database, "WAL_LIMIT", 100_000)
    errors = []

    class Watched(sqlite3.Connection):
        def execute(self, statement, *values):
            if "wal_checkpoint" in statement:
                with closing(sqlite3.connect(file, timeout=0, isolation_level=None)) as rival:
                    try:
                        rival.execute("BEGIN IMMEDIATE")
                    except sqlite3.OperationalError as error:
                        errors.append(str(error))
            return super().execute(statement, *values)

    connect = sqlite3.connect
    monkeypatch.setattr(
        database.sqlite3, "connect", lambda *a, **k: connect(*a, **{"factory": Watched, **k})
    )
    for _ in range(100):
        await store.leases.release([await take(store, "key", "ann")])
    assert set(errors) == {"database is locked"}


@pytest.mark.parametrize(
    ("prefix", "after"),
    [
        ("", b""),
        ("a", "b"),
        ("a\U0010ffff", "b"),
        ("\U0010ffff", b""),
        ("\ud7ff", "\ue000"),
        ("%", "&"),
    ],
)
def test_the_key_after_a_prefix(prefix, after):
    assert _after(prefix) == after


async def test_each_reader_that_keeps_the_log_is_reported(store, file, clock, monkeypatch, caplog):
    caplog.set_level(logging.INFO, "tenure")
    monkeypatch.setattr(database, "WAL_LIMIT", 100_000)
    for _ in range(2):
        with closing(sqlite3.connect(file, isolation_level=None)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT * FROM tenure_space").fetchall()
            for _ in range(40):
                for _ in range(20):
                    await store.leases.release([await take(store, "key", "ann")])
                await leave_trace(store)  # in the thread, which copies
                clock.shift(1)
            reader.execute("ROLLBACK")
        for _ in range(2):
            clock.shift(1)
            await leave_trace(store)  # copies all of it
    levels = [record.levelname for record in caplog.records if "log of" in record.getMessage()]
    assert levels == ["WARNING", "INFO"] * 2
