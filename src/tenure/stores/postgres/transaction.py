"""Joins a transaction of the user, on connections of asyncpg, psycopg and SQLAlchemy."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from typing import Any, Final

import asyncpg

from tenure.core.bounds import sound
from tenure.core.durations import micros
from tenure.core.jobs.records import SOON, Inserted, JobRecord, NewJob, Settled, Settlement
from tenure.core.leases import Lease, Topic
from tenure.stores.contract import Purpose
from tenure.stores.postgres.notifier import channel_of, payloads
from tenure.stores.postgres.records import (
    insert_columns,
    inserted,
    settle_columns,
    settled,
)
from tenure.stores.transaction import (
    Sqlalchemy,
    already_open,
    ended_inside,
    no_open_transaction,
    other_database,
    unknown_connection,
)

__all__ = ["PostgresTransaction"]

_HOLD_LEASE: Final = """
SELECT tenure.lease_hold($1::text, $2::text, $3::text, $4::bigint, $5::bigint)
"""
_HOLD: Final = """
SELECT d.datname || '/' || d.oid, tenure.job_hold($1::text, $2::text, $3::bigint)
FROM pg_database d WHERE d.datname = current_database()
"""
_GET: Final = "SELECT * FROM tenure.job_get($1::text, $2::text[])"
# Each statement also checks the database, and does nothing in another one. Notifications of a
# transaction are delivered when it commits. The store sets nothing in it, such as
# synchronous_commit, because it belongs to the user.
_INSERT: Final = """
SELECT i.at, i.answers, i.holders,
       (SELECT count(pg_notify($18::text, payload)) FROM unnest($19::text[]) AS payload)
FROM (
    SELECT $1::text AS namespace FROM pg_database d
    WHERE d.datname = current_database() AND $20::text IN ('', d.datname || '/' || d.oid)
) AS here
CROSS JOIN LATERAL tenure.job_insert(
    here.namespace, $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[],
    $8::text[], $9::text[], $10::text[], $11::text[], $12::text[], $13::text[], $14::text[],
    $15::text[], $16::text[], NULL, $17::bigint) AS i
"""
_SETTLE: Final = """
SELECT s.answers,
       (SELECT count(pg_notify($12::text, payload)) FROM unnest($13::text[]) AS payload)
FROM tenure.job_settle(
    $1::text, $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[],
    $9::text[], $10::bigint, $11::bigint) AS s
"""

# The errors of PostgreSQL if the schema or a function is missing.
_MISSING: Final = {"3F000", "42883"}
_ACCEPTED: Final = "connection of asyncpg or psycopg, or one of SQLAlchemy over either of them"


def _speak(connection: object, purpose: Purpose) -> _Asyncpg | _Psycopg | _Alchemy:
    """Return the adapter for a connection of the user."""
    if isinstance(connection, asyncpg.Connection):  # includes connections of a pool
        return _Asyncpg(connection)
    # Looked up, not imported: a user of such a connection has imported it.
    psycopg = sys.modules.get("psycopg")
    if psycopg is not None and isinstance(connection, psycopg.AsyncConnection):
        return _Psycopg(connection, psycopg, blocks=False)
    if psycopg is not None and isinstance(connection, psycopg.Connection):
        return _Psycopg(connection, psycopg, blocks=True)
    alchemy = Sqlalchemy.of(connection)
    if alchemy is not None and alchemy.driver in ("asyncpg", "psycopg"):
        return _Alchemy(alchemy)
    raise unknown_connection(purpose, connection, _ACCEPTED)


class PostgresTransaction:
    """A connection of the user to the database of a store."""

    def __init__(
        self,
        connection: object,
        purpose: Purpose,
        *,
        namespace: str,
        url: str,
        place: str,
        test_now: int | None,
    ) -> None:
        self._voice = _speak(connection, purpose)
        self._purpose = purpose
        self._namespace = namespace
        self._url = url
        self._place = place
        self._test_now = test_now
        self._has_begun = False
        self.blocks = self._voice.blocks

    async def begin(self, *, on_loop: bool) -> None:
        del on_loop  # it never waits for a lock
        await self._voice.begin(self._purpose)
        self._has_begun = True

    async def commit(self) -> None:
        await self._voice.commit()

    async def rollback(self) -> None:
        await self._voice.rollback()

    async def insert(self, jobs: Sequence[NewJob]) -> list[Inserted]:
        if not jobs:
            return []
        # Jobs with a due instant may be due late; an unneeded wake-up is harmless.
        queues = {job.queue for job in jobs if job.at is not None or job.delay <= SOON}
        rows = await self._ask(
            _INSERT,
            *(self._namespace, *insert_columns(jobs), self._test_now),
            *self._bells([("queue", queue) for queue in sorted(queues)]),
            self._place,
        )
        if not rows:
            raise other_database(self._purpose, self._url)
        [[at, answers, holders, _]] = rows
        return inserted(jobs, at, answers, holders)

    async def get(self, ids: Sequence[str]) -> list[JobRecord | None]:
        rows = await self._ask(_GET, self._namespace, list(dict.fromkeys(ids)))
        jobs: dict[str, JobRecord] = {}
        for row in rows:
            with suppress(ValueError):  # an unreadable job counts as missing
                jobs[row[0]] = sound(JobRecord, tuple(row))
        return [jobs.get(id_) for id_ in ids]

    async def hold_lease(self, lease: Lease) -> bool:
        which = lease.key, lease.holder, lease.fence
        [[held]] = await self._ask(_HOLD_LEASE, self._namespace, *which, self._test_now)
        return bool(held)

    async def hold(self, id_: str, fence: int) -> bool:
        [[place, held]] = await self._ask(_HOLD, self._namespace, id_, fence)
        if self._place not in ("", place):
            raise other_database(self._purpose, self._url)
        return bool(held)

    async def settle(self, settlement: Settlement) -> Settled:
        [[letters, _]] = await self._ask(
            _SETTLE,
            *(self._namespace, *settle_columns([settlement]), micros(SOON), self._test_now),
            *self._bells([("job", settlement.id)]),
        )
        return settled(letters)[0]

    async def _ask(self, statement: str, *arguments: object) -> list[Any]:
        if self._has_begun and not await self._voice.goes_on():
            raise ended_inside(self._purpose)
        if not await self._voice.is_open():
            raise no_open_transaction(self._purpose, self._voice.how)
        try:
            return await self._voice.ask(statement, arguments)
        except Exception as error:
            cause = getattr(error, "orig", None) or error  # SQLAlchemy wraps the driver's error
            if getattr(cause, "sqlstate", None) in _MISSING:
                raise other_database(self._purpose, self._url) from error
            raise

    def _bells(self, topics: Sequence[Topic]) -> tuple[str, list[str]]:
        return channel_of(self._namespace), payloads(self._namespace, topics)


class _Asyncpg:
    """A connection of asyncpg. The other adapters have the same methods."""

    blocks = False
    how = "async with connection.transaction()"
    """How to begin a transaction on it, for messages."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._begun: Any = None

    async def ask(self, statement: str, arguments: Sequence[object]) -> list[Any]:
        """Return the rows of a statement with $1, $2, ..."""
        rows: list[Any] = await self._connection.fetch(statement, *arguments)
        return rows

    async def is_open(self) -> bool:
        """Return whether the next statement is part of a transaction."""
        return bool(self._connection.is_in_transaction())

    async def begin(self, purpose: Purpose) -> None:
        """Begin a transaction, unless one is open."""
        if await self.is_open():
            raise already_open(purpose)
        self._begun = self._connection.transaction()
        await self._begun.start()

    async def goes_on(self) -> bool:
        """Return whether what `begin` began is still open."""
        return await self.is_open()

    async def commit(self) -> None:
        await self._begun.commit()

    async def rollback(self) -> None:
        with suppress(Exception):  # a lost connection rolls back by itself
            await self._begun.rollback()


class _Psycopg:
    """Without autocommit, psycopg begins a transaction by itself with the first statement."""

    def __init__(self, connection: Any, psycopg: Any, *, blocks: bool) -> None:
        self._connection = connection
        self._psycopg = psycopg
        self._begun: Any = None
        self.blocks = blocks
        self.how = f"{'' if blocks else 'async '}with connection.transaction()"

    async def ask(self, statement: str, arguments: Sequence[object]) -> list[Any]:
        rows = self._psycopg.rows.tuple_row
        if self.blocks:
            with self._connection.cursor(row_factory=rows) as cursor:
                cursor.execute(_named(statement), _by_name(arguments))
                return list(cursor.fetchall())
        async with self._connection.cursor(row_factory=rows) as cursor:
            await cursor.execute(_named(statement), _by_name(arguments))
            return list(await cursor.fetchall())

    async def is_open(self) -> bool:
        return not self._connection.autocommit or not self._is_idle()

    async def begin(self, purpose: Purpose) -> None:
        if not self._is_idle():
            raise already_open(purpose)
        self._begun = self._connection.transaction()
        await self._do(self._begun.__enter__ if self.blocks else self._begun.__aenter__)

    async def goes_on(self) -> bool:
        return not self._is_idle()

    async def commit(self) -> None:
        await self._leave(None)

    async def rollback(self) -> None:
        with suppress(Exception):  # a lost connection rolls back by itself
            await self._leave(self._psycopg.Rollback())

    async def _leave(self, error: Exception | None) -> None:
        leave = self._begun.__exit__ if self.blocks else self._begun.__aexit__
        await self._do(leave, type(error) if error else None, error, None)

    async def _do(self, step: Any, *values: object) -> None:
        done = step(*values)
        if not self.blocks:
            await done

    def _is_idle(self) -> bool:
        idle = self._psycopg.pq.TransactionStatus.IDLE
        return bool(self._connection.info.transaction_status == idle)


class _Alchemy:
    """SQLAlchemy begins by itself too, so all statements must go through it."""

    how = "async with session.begin(), and no isolation level AUTOCOMMIT"

    def __init__(self, alchemy: Sqlalchemy) -> None:
        self._alchemy = alchemy
        self._is_asyncpg = alchemy.driver == "asyncpg"
        self.blocks = alchemy.blocks
        self.begin = alchemy.begin
        self.goes_on = alchemy.goes_on
        self.commit = alchemy.commit
        self.rollback = alchemy.rollback

    async def ask(self, statement: str, arguments: Sequence[object]) -> list[Any]:
        if self._is_asyncpg:
            sent: tuple[str, Any] = (statement, tuple(arguments))
        else:
            sent = (_named(statement), _by_name(arguments))

        def work(connection: Any) -> list[Any]:
            return [tuple(row) for row in connection.exec_driver_sql(*sent).all()]

        return await self._alchemy.run(work)

    async def is_open(self) -> bool:
        """Ask the driver, because with AUTOCOMMIT, SQLAlchemy only pretends to have begun."""
        if not await self._alchemy.run(self._looks_open):
            await self.ask("SELECT 1", ())
        return await self._alchemy.run(self._looks_open)

    def _looks_open(self, connection: Any) -> bool:
        driver = connection.connection.driver_connection
        if self._is_asyncpg:
            return bool(driver.is_in_transaction())
        return bool(driver.info.transaction_status.name != "IDLE")


@cache
def _named(statement: str) -> str:
    """Return a statement with the placeholders of psycopg."""
    return re.sub(r"\$(\d+)", r"%(a\1)s", statement)


def _by_name(arguments: Sequence[object]) -> dict[str, object]:
    return {f"a{number}": value for number, value in enumerate(arguments, start=1)}
