"""Joins a transaction of the user, on connections of sqlite3 and SQLAlchemy."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

from tenure.core.jobs.records import Inserted, JobRecord, NewJob, Settled, Settlement
from tenure.core.leases import Lease
from tenure.stores.contract import Purpose
from tenure.stores.sqlite.connection import Connection
from tenure.stores.sqlite.errors import is_busy
from tenure.stores.sqlite.files import identity
from tenure.stores.sqlite.inserts import insert
from tenure.stores.sqlite.leases import is_live
from tenure.stores.sqlite.records import get
from tenure.stores.sqlite.settlements import settle, standing
from tenure.stores.sqlite.statements import Row, Transaction, fetch
from tenure.stores.transaction import (
    Sqlalchemy,
    already_open,
    ended_inside,
    no_open_transaction,
    other_database,
    unknown_connection,
)

__all__ = ["SqliteTransaction"]

T = TypeVar("T")

# For messages: the supported connections, and how to begin a transaction.
_GUARDED: Final = ("sqlite3.Connection", "BEGIN IMMEDIATE")
_BOUND: Final = (
    "sqlite3.Connection, or a connection of SQLAlchemy over sqlite3 or aiosqlite",
    "BEGIN IMMEDIATE, or in SQLAlchemy without the isolation level AUTOCOMMIT",
)
# Changes nothing, but takes the write lock, so that no other connection writes between the next
# read and the end of the transaction.
_LOCK: Final = "UPDATE tenure_wake SET rung = rung WHERE false"
# How often a caller on an event loop polls for the write lock.
_LOOK_EVERY: Final = 0.005
_FILES: Final = "SELECT file FROM pragma_database_list WHERE name = 'main'"


class SqliteTransaction:
    """A connection of the user to the file of a store."""

    def __init__(self, store: Connection, connection: object, purpose: Purpose) -> None:
        self._store = store
        self._voice = _speak(connection, purpose)
        self._purpose: Purpose = purpose
        self._has_begun = False
        self.blocks = self._voice.blocks

    async def begin(self, *, on_loop: bool) -> None:
        await self._voice.begin(self._purpose, on_loop=on_loop)
        self._has_begun = True

    async def commit(self) -> None:
        await self._must_go_on()
        await self._voice.commit()

    async def rollback(self) -> None:
        await self._voice.rollback()

    async def insert(self, jobs: Sequence[NewJob]) -> list[Inserted]:
        return await self._run(lambda tx: insert(tx, jobs))

    async def get(self, ids: Sequence[str]) -> list[JobRecord | None]:
        return await self._run(lambda tx: get(tx, ids))

    async def hold_lease(self, lease: Lease) -> bool:
        return await self._run(lambda tx: is_live(tx, lease))

    async def hold(self, id_: str, fence: int) -> bool:
        def work(tx: Transaction) -> bool:
            live, _ = standing(tx, [id_])
            return id_ in live and live[id_].runs_under(fence)

        return await self._run(work)

    async def settle(self, settlement: Settlement) -> Settled:
        return await self._run(lambda tx: settle(tx, [settlement])[0])

    async def _must_go_on(self) -> None:
        if self._has_begun and not await self._voice.goes_on():
            raise ended_inside(self._purpose)

    async def _run(self, work: Callable[[Transaction], T]) -> T:
        await self._must_go_on()

        def with_write_lock(cursors: _Cursors) -> T:
            self._must_fit(cursors)
            # Other processes are woken by the bells in the file, when they see that it has changed.
            store = self._store
            return work(Transaction(cursors, store.namespace, store.clock, store.damage))

        return await self._voice.run(with_write_lock)

    def _must_fit(self, cursors: _Cursors) -> None:
        """Take the write lock in an open transaction. Raises ConfigError for a wrong connection."""
        [[file]] = cursors.execute(_FILES, ()).fetchall()
        own = identity(self._store.path)
        if not file or own is None or identity(file) != own:
            raise other_database(self._purpose, self._store.url)
        if not cursors.in_transaction:
            if not cursors.begins_by_itself:
                _, how = _GUARDED if self._purpose == "guard()" else _BOUND
                raise no_open_transaction(self._purpose, how)
            cursors.execute("BEGIN IMMEDIATE", ())
        cursors.execute(_LOCK, ())


class _Cursors:
    """What a `Transaction` needs of a connection of any driver."""

    def __init__(self, cursor: Any, driver: Any) -> None:
        self._cursor = cursor
        self._driver = driver

    @property
    def in_transaction(self) -> bool:
        return bool(self._driver.in_transaction)

    @property
    def begins_by_itself(self) -> bool:
        """Whether the driver begins a transaction before the first write."""
        # From Python 3.12 on, autocommit may be True or False in place of that.
        legacy = getattr(self._driver, "autocommit", -1) == -1
        return legacy and self._driver.isolation_level is not None

    def execute(self, statement: str, values: Any) -> Any:
        self._cursor.execute(statement, values)
        return self._cursor

    def fetch(self, statement: str, values: Any) -> list[Row]:
        return fetch(self.execute, self._driver, statement, values)


class _Sqlite3:
    """A connection of sqlite3."""

    blocks = True

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    async def run(self, work: Callable[[_Cursors], T]) -> T:
        """Run `work` on the connection, which does not wait."""
        cursor = self._connection.cursor()
        # Rows as tuples and text, whatever factories the user has set.
        liked, self._connection.text_factory = self._connection.text_factory, str
        cursor.row_factory = None
        try:
            return work(_Cursors(cursor, self._connection))
        finally:
            self._connection.text_factory = liked
            cursor.close()

    async def begin(self, purpose: Purpose, *, on_loop: bool) -> None:
        """Take the write lock without blocking the loop, where its holder may run too."""
        if self._connection.in_transaction:
            raise already_open(purpose)
        [patience] = self._connection.cursor().execute("PRAGMA busy_timeout").fetchone()
        looks = round(patience / 1000 / _LOOK_EVERY) if on_loop else 0
        for _ in range(looks):
            if self._begins_at_once(patience):
                return
            await _pause(_LOOK_EVERY)
        self._connection.execute("BEGIN IMMEDIATE")

    def _begins_at_once(self, patience: int) -> bool:
        self._connection.execute("PRAGMA busy_timeout = 0")
        try:
            self._connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if not is_busy(error):
                raise
            return False
        else:
            return True
        finally:
            self._connection.execute(f"PRAGMA busy_timeout = {patience}")

    async def goes_on(self) -> bool:
        return self._connection.in_transaction

    async def commit(self) -> None:
        self._connection.execute("COMMIT")

    async def rollback(self) -> None:
        if self._connection.in_transaction:
            with suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")


class _Alchemy:
    """SQLAlchemy must know that there is a transaction, or it would not commit."""

    def __init__(self, alchemy: Sqlalchemy) -> None:
        self._alchemy = alchemy
        self.blocks = alchemy.blocks
        self.goes_on = alchemy.goes_on
        self.commit = alchemy.commit
        self.rollback = alchemy.rollback

    async def begin(self, purpose: Purpose, *, on_loop: bool) -> None:
        del on_loop  # aiosqlite waits in a thread
        await self._alchemy.begin(purpose)

    async def run(self, work: Callable[[_Cursors], T]) -> T:
        def on_connection(connection: Any) -> T:
            if not connection.in_transaction():
                connection.begin()
            cursor = connection.connection.cursor()
            try:
                return work(_Cursors(cursor, connection.connection.driver_connection))
            finally:
                cursor.close()

        return await self._alchemy.run(on_connection)


async def _pause(seconds: float) -> None:
    """Wait in real time, also under a virtual clock, because other processes use real time."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await asyncio.Event().wait()


def _speak(connection: object, purpose: Purpose) -> _Sqlite3 | _Alchemy:
    if isinstance(connection, sqlite3.Connection):
        return _Sqlite3(connection)
    alchemy = None if purpose == "guard()" else Sqlalchemy.of(connection)
    if alchemy is not None and alchemy.driver in ("pysqlite", "aiosqlite"):
        return _Alchemy(alchemy)
    accepted, _ = _GUARDED if purpose == "guard()" else _BOUND
    raise unknown_connection(purpose, connection, accepted)
