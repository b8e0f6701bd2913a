"""Taking part in a user's own transaction, on the connections of asyncpg and psycopg."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Generator
from typing import Any

import asyncpg

from tenure.stores.guarding import no_open_transaction, other_database, unknown_connection

__all__ = ["guard"]

_ASYNCPG = "SELECT tenure.lease_guard_v1($1, $2, $3, $4, $5)"
_PSYCOPG = (
    "SELECT tenure.lease_guard_v1(%s::text, %s::text, %s::text, %s::bigint, %s::bigint) AS held"
)

# What PostgreSQL answers where our schema or its function is missing.
_MISSING = {"3F000", "42883"}


class _Asked:
    """An answer to be awaited; unlike a coroutine, nobody minds if it never is."""

    def __init__(self, ask: Callable[[], Awaitable[bool]]) -> None:
        self._ask = ask

    def __await__(self) -> Generator[Any, None, bool]:
        return self._ask().__await__()


def guard(connection: object, arguments: tuple[object, ...], url: str) -> bool | Awaitable[bool]:
    """Ask lease_guard_v1 in the transaction that is open on `connection`."""
    if isinstance(connection, asyncpg.Connection):  # true of those from a pool as well
        return _Asked(lambda: _on_asyncpg(connection, arguments, url))
    # Looked up, not imported: who has such a connection has imported it.
    psycopg = sys.modules.get("psycopg")
    if psycopg is not None and isinstance(connection, psycopg.AsyncConnection):
        return _Asked(lambda: _on_async_psycopg(connection, arguments, url))
    if psycopg is not None and isinstance(connection, psycopg.Connection):
        return _on_psycopg(connection, arguments, url)
    raise unknown_connection(connection, "connection of asyncpg or psycopg")


async def _on_asyncpg(connection: Any, arguments: tuple[object, ...], url: str) -> bool:
    if not connection.is_in_transaction():
        raise no_open_transaction("async with connection.transaction()")
    try:
        return bool(await connection.fetchval(_ASYNCPG, *arguments))
    except asyncpg.PostgresError as error:
        if error.sqlstate in _MISSING:
            raise other_database(url) from error
        raise


async def _on_async_psycopg(connection: Any, arguments: tuple[object, ...], url: str) -> bool:
    psycopg = sys.modules["psycopg"]
    _must_be_in_transaction(connection, psycopg)
    try:
        async with connection.cursor(row_factory=psycopg.rows.tuple_row) as cursor:
            await cursor.execute(_PSYCOPG, arguments)
            [held] = await cursor.fetchone()
    except psycopg.Error as error:
        if error.sqlstate in _MISSING:
            raise other_database(url) from error
        raise
    return bool(held)


def _on_psycopg(connection: Any, arguments: tuple[object, ...], url: str) -> bool:
    psycopg = sys.modules["psycopg"]
    _must_be_in_transaction(connection, psycopg)
    try:
        with connection.cursor(row_factory=psycopg.rows.tuple_row) as cursor:
            cursor.execute(_PSYCOPG, arguments)
            [held] = cursor.fetchone()
    except psycopg.Error as error:
        if error.sqlstate in _MISSING:
            raise other_database(url) from error
        raise
    return bool(held)


def _must_be_in_transaction(connection: Any, psycopg: Any) -> None:
    # Without autocommit, psycopg begins one by itself with the first statement.
    idle = connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
    if connection.autocommit and idle:
        raise no_open_transaction("with connection.transaction()")
