"""The file of the SQLite store, and processes that are forked while it is open."""

import asyncio
import logging
import os
import sqlite3
import sys
import threading
from contextlib import asynccontextmanager, closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tenure.core.leases import Lease
from tenure.errors import ConfigError, StoreError, StoreFull, StoreUnavailable
from tenure.stores.sqlite import SqliteStore, database
from tenure.stores.sqlite.schema import FORMAT
from tenure.stores.transaction import run_sync
from tenure.testing import ManualClock
from tests.contract.calls import ask, be_refused, holders, take
from tests.contract.job_calls import id_of, insert, new
from tests.rig.sizes import SIZE
from tests.stores.sqlite.inside import inside

# From Python 3.12 on: forking is what these tests are about.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")

DAMAGE = "not a database, whatever its name says. " * 100


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "tenure.db"


def unopened(file: Path, clock: ManualClock, namespace: str = "app") -> SqliteStore:
    return SqliteStore(f"sqlite:///{file}", namespace=namespace, clock=clock)


@asynccontextmanager
async def opened(file: Path, clock: ManualClock, namespace: str = "app"):
    store = unopened(file, clock, namespace)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


@pytest.fixture
async def store(file: Path, clock: ManualClock):
    async with opened(file, clock) as store:
        yield store


def peek(file: Path, statement: str) -> list[tuple]:
    with closing(sqlite3.connect(file)) as db:
        return db.execute(statement).fetchall()


# The URL


@pytest.mark.parametrize(
    ("url", "advice"),
    [
        ("sqlite://", "memory://"),
        ("sqlite:///", "memory://"),
        ("sqlite:///:memory:", "memory://"),
        ("sqlite://:memory:", "memory://"),
        ("sqlite://tenure.db", "sqlite:///tenure.db"),
        ("sqlite:///tenure.db?mode=ro", "unknown option"),
        ("sqlite:///ten\0ure.db", "unknown option"),
    ],
)
def test_a_url_without_a_file_is_refused_with_advice(url, advice):
    with pytest.raises(ConfigError, match=advice):
        SqliteStore(url, namespace="app", clock=ManualClock())


async def test_a_relative_path_is_settled_when_the_store_is_made(tmp_path, clock, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    store = SqliteStore("sqlite:///own name%20[1].db", namespace="app", clock=clock)
    monkeypatch.chdir(tmp_path / "elsewhere")
    for unopened_store in (store, store.clone()):
        await unopened_store.open()
        await unopened_store.close()
    assert (tmp_path / "own name%20[1].db").exists()
    assert list((tmp_path / "elsewhere").iterdir()) == []


# The file


async def test_the_absolute_path_is_logged(file, clock, caplog):
    with caplog.at_level(logging.INFO, "tenure"):
        async with opened(file, clock):
            assert str(file) in caplog.text


async def test_a_new_file_is_for_its_owner_only(file, clock):
    before = os.umask(0)
    try:
        async with opened(file, clock) as store:
            await take(store, "key", "ann")
            modes = {path.name: path.stat().st_mode & 0o777 for path in file.parent.iterdir()}
    finally:
        os.umask(before)
    assert modes == dict.fromkeys(["tenure.db", "tenure.db-wal", "tenure.db-shm"], 0o600)


async def test_closing_leaves_one_tidy_file_and_no_thread(file, clock):
    before = threading.active_count()
    async with opened(file, clock) as store:
        await take(store, "key", "ann")
        assert threading.active_count() == before + 1
    assert threading.active_count() == before
    assert list(file.parent.iterdir()) == [file]
    await store.close()
    with pytest.raises(StoreError, match="is not open"):
        await ask(store, "key", "ann")


@pytest.mark.parametrize("made", ["folder", "no parent", "damaged", "utf-16"])
async def test_a_file_that_cannot_work_is_refused_with_advice(file, clock, made):
    advice = {
        "folder": "is a folder. Name a file in it",
        "no parent": "does not exist. Create it",
        "damaged": "is not an SQLite database",
        "utf-16": "needs a file of its own",
    }
    if made == "folder":
        file.mkdir()
    elif made == "no parent":
        file = file / "tenure.db"
    elif made == "damaged":
        file.write_text(DAMAGE)
    else:
        with closing(sqlite3.connect(file)) as db:
            db.execute("PRAGMA encoding = 'UTF-16'")
            db.execute("CREATE TABLE own (a)")
    store = unopened(file, clock)
    before = threading.active_count()
    with pytest.raises(ConfigError, match=advice[made]):
        await store.open()
    assert threading.active_count() == before
    if made == "damaged":
        assert file.read_text() == DAMAGE


@pytest.mark.parametrize("what", ["file", "folder"])
def test_read_only_files_are_refused_with_advice(clock, what):
    with TemporaryDirectory() as folder:  # unlike tmp_path, other users may look into it
        file = Path(folder, "tenure.db")
        asyncio.run(opened_once(file, clock))
        file.chmod(0o444 if what == "file" else 0o666)
        Path(folder).chmod(0o777 if what == "file" else 0o555)

        async def attempt():
            if os.geteuid() == 0:  # nothing is read-only for root
                os.setuid(65534)
            with pytest.raises(ConfigError, match="is read-only for this process"):
                await unopened(file, clock).open()

        assert in_child(attempt) == "done"


async def opened_once(file: Path, clock: ManualClock) -> None:
    async with opened(file, clock):
        pass


def in_child(attempt) -> str:
    """Return what came of an attempt in a forked process."""
    reading, writing = os.pipe()
    if not (pid := os.fork()):
        try:
            asyncio.run(attempt())
            os.write(writing, b"done")
        except BaseException as error:  # noqa: BLE001 - the child must not run on as a second test
            os.write(writing, repr(error).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        message = pipe.read()
    os.waitpid(pid, 0)
    return message


async def test_own_tables_in_the_file_are_left_alone(file, clock):
    with closing(sqlite3.connect(file)) as db:
        db.execute("CREATE TABLE lease (a)")
        db.execute("INSERT INTO lease VALUES (1)")
        db.commit()
    async with opened(file, clock) as store:
        await take(store, "key", "ann")
    assert peek(file, "SELECT a FROM lease") == [(1,)]


async def test_check_only_looks(file, clock):
    with pytest.raises(ConfigError, match='migrate="auto", which creates it'):
        await unopened(file, clock).open("check")
    assert not file.exists()
    with closing(sqlite3.connect(file)) as db:
        db.execute("CREATE TABLE own (a)")
    before = file.read_bytes()
    with pytest.raises(ConfigError, match="has no Tenure tables"):
        await unopened(file, clock).open("check")
    assert file.read_bytes() == before


async def test_a_format_from_the_future_is_refused(file, clock):
    async with opened(file, clock):
        pass
    set_format(file, version=99, readable_from=FORMAT + 1)
    for migrate in ("auto", "check"):
        with pytest.raises(ConfigError, match=r"has format 99, and this .* Upgrade Tenure"):
            await unopened(file, clock).open(migrate)


async def test_a_newer_format_that_older_versions_can_work_with_is_used(file, clock):
    async with opened(file, clock) as store:
        await take(store, "key", "ann")
    set_format(file, version=99, readable_from=FORMAT)
    for migrate in ("auto", "check"):
        store = unopened(file, clock)
        await store.open(migrate)
        assert await holders(store, "key") == ["ann"]
        assert [
            finding.level for finding in await store.examine() if finding.subject == "format"
        ] == ["ok"]
        await store.close()
    assert peek(file, "SELECT version, readable_from FROM tenure_format") == [(99, FORMAT)]


def set_format(file: Path, *, version: int, readable_from: int) -> None:
    with closing(sqlite3.connect(file)) as db:
        values = (version, readable_from)
        db.execute("UPDATE tenure_format SET version = ?, readable_from = ?", values)
        db.commit()


async def test_a_file_that_was_replaced_is_left_for_the_new_one(file, clock, store, caplog):
    ann = await take(store, "key", "ann")
    file.rename(file.with_name("old.db"))
    with pytest.raises(StoreUnavailable, match="was deleted or moved away"):
        await store.leases.renew([ann])
    clock.shift(0.000_001)  # what the new file does not know, time does
    async with opened(file, clock) as other:
        ben = await take(other, "key", "ben")
        assert ben.fence > ann.fence
        assert await holders(store, "key") == ["ben"]
        assert await store.leases.renew([ann]) == [False]
        assert "moved or replaced" in caplog.text


async def test_a_long_foreign_transaction_makes_the_store_unavailable(file, clock, monkeypatch):
    monkeypatch.setattr(database, "BUSY_TIMEOUT", 0.1)
    async with opened(file, clock) as store:
        with closing(sqlite3.connect(file, isolation_level=None)) as db:
            db.execute("BEGIN IMMEDIATE")
            both = [ask(store, "key", "ann"), ask(store, "key", "ben")]
            answers = await asyncio.gather(*both, return_exceptions=True)
            assert [type(answer) for answer in answers] == [StoreUnavailable] * 2
            assert isinstance(answers[0].__cause__, sqlite3.OperationalError)
            assert await store.leases.find() == []  # reading needs no lock
        await take(store, "key", "ann")


async def test_a_busy_write_lock_is_looked_for_often(file, clock, monkeypatch):
    """SQLite's own look, every 100 ms, loses against processes that take it again at once."""
    async with opened(file, clock) as store:
        with closing(sqlite3.connect(file, isolation_level=None, check_same_thread=False)) as db:
            pauses: list[float] = []

            def pause(seconds: float) -> None:
                pauses.append(seconds)
                if len(pauses) == 3:
                    db.execute("ROLLBACK")

            db.execute("BEGIN IMMEDIATE")
            monkeypatch.setattr(database, "BUSY_TIMEOUT", 0.1)
            monkeypatch.setattr(database, "_pause", pause)
            await store.run(lambda _: None)
            assert len(pauses) == 3
            assert max(pauses) <= 0.005


async def test_opening_a_locked_file_is_bounded_in_time(file, clock, monkeypatch):
    monkeypatch.setattr(database, "BUSY_TIMEOUT", 0.3)
    with closing(sqlite3.connect(file, isolation_level=None)) as db:
        db.execute("CREATE TABLE own (a)")
        db.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StoreUnavailable, match="is locked"):
            await unopened(file, clock).open()
        store = unopened(file, clock)
        opening = asyncio.ensure_future(store.open())
        await asyncio.sleep(0.05)
        db.execute("ROLLBACK")
        await opening
        await store.close()
    assert peek(file, "SELECT version FROM tenure_format") == [(FORMAT,)]


# What happens to the file under an open store


async def test_a_folder_that_is_gone_makes_the_store_unavailable_until_it_is_back(tmp_path, clock):
    folder = tmp_path / "folder"
    folder.mkdir()
    async with opened(folder / "tenure.db", clock) as store:
        ann = await take(store, "key", "ann")
        folder.rename(tmp_path / "elsewhere")
        for call in (ask(store, "key", "ben"), store.leases.renew([ann]), store.leases.find()):
            with pytest.raises(StoreUnavailable, match="does not exist"):
                await call
        (tmp_path / "elsewhere").rename(folder)
        assert await store.leases.renew([ann]) == [True]


async def test_a_file_that_became_something_else_is_an_error_of_the_store(file, clock, store):
    await take(store, "key", "ann")
    for part in file.parent.iterdir():
        part.unlink()
    file.write_text(DAMAGE)
    with pytest.raises(StoreError, match="is not an SQLite database"):
        await ask(store, "key", "ben")
    file.unlink()
    file.mkdir()
    with pytest.raises(StoreError, match="is a folder"):
        await ask(store, "key", "ben")
    file.rmdir()
    with pytest.raises(StoreUnavailable, match="was deleted or moved away"):
        await ask(store, "key", "ben")
    async with opened(file, clock):
        await take(store, "key", "ben")


def test_a_file_that_becomes_read_only_is_an_error_of_the_store(clock):
    with TemporaryDirectory() as folder:  # unlike tmp_path, other users may look into it
        Path(folder).chmod(0o777)

        file = Path(folder, "tenure.db")

        def replace():
            for part in list(file.parent.glob("tenure.db*")):
                part.rename(file.with_name(f"old-{part.name}"))
            file.touch(0o444)

        async def attempt():
            if os.geteuid() == 0:  # nothing is read-only for root
                os.setuid(65534)
            async with opened(file, clock) as store:
                await take(store, "key", "ann")
                replace()
                with pytest.raises(StoreError, match="is read-only for this process"):
                    await ask(store, "key", "ben")

        assert in_child(attempt) == "done"


async def test_a_watch_on_a_file_that_cannot_be_used_is_entered_and_hears_later(
    tmp_path, clock, caplog
):
    folder = tmp_path / "folder"
    folder.mkdir()
    async with opened(folder / "tenure.db", clock) as here, opened(here.path, clock) as there:
        ann = await take(there, "key", "ann")
        await be_refused(here, "key", "ben", waiting=60)
        folder.rename(tmp_path / "elsewhere")
        for _ in range(2):
            async with here.watch(("lease", "ben")) as watch:
                assert not await watch.wait(0)
        [message] = [
            record.getMessage() for record in caplog.records if "No wake-ups" in record.getMessage()
        ]
        assert str(folder) in message
        (tmp_path / "elsewhere").rename(folder)
        async with here.watch(("lease", "ben")) as watch:
            await there.leases.release([ann])
            assert await asyncio.wait_for(watch.wait(None), SIZE.patience)


# guard


def guard(store: SqliteStore, connection: sqlite3.Connection, lease: Lease) -> bool:
    return run_sync(store.within(connection, "guard()").hold_lease(lease))


class Committing(sqlite3.Connection):
    """What sqlite3.connect(autocommit=True) makes from Python 3.12 on, in all versions."""

    isolation_level = property(lambda _: "")
    autocommit = property(lambda _: True)


@pytest.mark.parametrize("live", [True, False])
async def test_a_guard_that_commits_by_itself_is_refused(file, clock, store, live):
    ann = await take(store, "key", "ann", ttl=30)
    clock.shift(0 if live else 30)
    with closing(sqlite3.connect(file, isolation_level=None, factory=Committing)) as db:
        with pytest.raises(ConfigError, match="none is open"):
            guard(store, db, ann)
        db.execute("BEGIN IMMEDIATE")
        assert guard(store, db, ann) is live


@pytest.mark.skipif(sys.version_info < (3, 12), reason="autocommit came with Python 3.12")
async def test_autocommit_guards_only_within_a_transaction(file, clock, store):
    ann = await take(store, "key", "ann")
    with closing(sqlite3.connect(file, autocommit=True)) as db:
        with pytest.raises(ConfigError, match="none is open"):
            guard(store, db, ann)
        db.execute("BEGIN IMMEDIATE")
        assert guard(store, db, ann)
    with closing(sqlite3.connect(file, autocommit=False)) as db:
        assert guard(store, db, ann)


# Fork


async def test_a_forked_child_can_neither_use_nor_open_it(file, clock, store):
    async def use():
        with pytest.raises(StoreError, match="before this process was forked"):
            await ask(store, "key", "ann")
        await store.close()
        for unopened_store in (store, store.clone(), unopened(file, clock)):
            with pytest.raises(StoreError, match="Open the store after forking"):
                await unopened_store.open()

    assert in_child(use) == "done"
    await take(store, "key", "ann")


def test_a_child_forked_while_nothing_was_open_can_use_the_file(file, clock):
    asyncio.run(opened_once(file, clock))
    assert in_child(lambda: opened_once(file, clock)) == "done"


# A disk that is full


async def test_a_file_that_cannot_grow_refuses_new_jobs_and_keeps_nothing_of_them(store):
    def grow_no_more(db: sqlite3.Connection) -> None:
        [[pages]] = db.execute("PRAGMA page_count").fetchall()
        db.execute(f"PRAGMA max_page_count = {pages + 20}")

    await insert(store, new(0))
    await inside(store, grow_no_more)
    with pytest.raises(StoreFull, match=r"the disk is full.*Nothing was stored"):
        await store.jobs.insert([new(number, payload=bytes(20_000)) for number in range(1, 100)])
    assert [job is not None for job in await store.jobs.get([id_of(0), id_of(1)])] == [True, False]


def test_a_connection_that_cannot_be_made_ready_is_closed(tmp_path: Path, monkeypatch):
    opened: list[sqlite3.Connection] = []

    def fail(db: sqlite3.Connection, *_: object) -> None:
        opened.append(db)
        raise KeyboardInterrupt

    monkeypatch.setattr(database, "_make_ready", fail)
    with pytest.raises(KeyboardInterrupt):
        database._attempted(tmp_path / "x.db", "auto")
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        opened[0].execute("SELECT 1")
