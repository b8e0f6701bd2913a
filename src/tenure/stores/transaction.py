"""What SQL stores share to take part in a transaction of the user: adapters and error messages.

The `transaction.py` of SQLite and of PostgreSQL wraps a connection of the user, and `store.within`
returns it. The transaction stays the user's: only `commit` after `begin` commits it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from tenure.errors import ConfigError
from tenure.stores.contract import Purpose

__all__ = [
    "Sqlalchemy",
    "already_open",
    "ended_inside",
    "no_open_transaction",
    "no_transactions",
    "other_database",
    "run_sync",
    "unknown_connection",
]

T = TypeVar("T")

_INSTEAD: dict[Purpose, str] = {
    "guard()": (
        "Pass hold.fence along with the write instead, and let its target refuse lower fences."
    ),
    "within()": "Enqueue after your commit instead, or keep jobs in your SQL database.",
    "transaction()": (
        "Pass current_job().id or its fence along with the write instead, and let its target "
        "refuse what it has seen."
    ),
}


def no_transactions(purpose: Purpose, url: str) -> ConfigError:
    """Return the error of a store that has no transactions."""
    return ConfigError(
        f"{url} has no transactions that {purpose} could take part in. {_INSTEAD[purpose]}"
    )


def unknown_connection(purpose: Purpose, connection: object, accepted: str) -> ConfigError:
    """Return the error for an object that is no connection to this kind of store."""
    kind = f"{type(connection).__module__}.{type(connection).__qualname__}"
    return ConfigError(f"{purpose} cannot use a {kind}. Pass a {accepted}.")


def no_open_transaction(purpose: Purpose, how: str) -> ConfigError:
    """Return the error for a connection without a transaction: its writes could not be undone."""
    return ConfigError(
        f"{purpose} takes part in an open transaction, but none is open. Begin it first: {how}."
    )


def already_open(purpose: Purpose) -> ConfigError:
    """Return the error for an open transaction: the end of a nested one commits nothing."""
    return ConfigError(
        f"{purpose} begins and commits a transaction, but one is already open on this connection, "
        "perhaps since a first SELECT. Commit or roll it back first, or use another connection. "
        "(sqlite3 with autocommit=False always has one open.)"
    )


def ended_inside(purpose: Purpose) -> ConfigError:
    """Return the error for a commit or rollback inside a block that ends the transaction itself."""
    return ConfigError(
        f"The transaction was ended inside of the {purpose} block, so the job was not settled. "
        "Leave commit and rollback to the block, and do not write 'with connection:' in it."
    )


def other_database(purpose: Purpose, url: str) -> ConfigError:
    """Return the error for a connection to another database."""
    return ConfigError(
        f"{purpose} needs a connection to the database of the store, {url}, but this connection is "
        "to another database."
    )


def run_sync(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never waits, in this thread and without an event loop."""
    try:
        work.send(None)
    except StopIteration as end:
        answer: T = end.value
        return answer
    work.close()
    msg = "The coroutine waits. Only calls on synchronous connections run without an event loop."
    raise RuntimeError(msg)


class Sqlalchemy:
    """A connection or session of SQLAlchemy, synchronous or not."""

    def __init__(self, connection: Any, *, blocks: bool, is_session: bool) -> None:
        self._connection = connection
        self._is_session = is_session
        self._begun: Any = None
        self.blocks = blocks

    @classmethod
    def of(cls, connection: object) -> Sqlalchemy | None:
        """Return the adapter for a connection of SQLAlchemy, None for other objects."""
        # Looked up, not imported: a user of SQLAlchemy has imported it.
        for module, is_session, blocks, names in (
            ("sqlalchemy.ext.asyncio", False, False, ("AsyncConnection",)),
            ("sqlalchemy.ext.asyncio", True, False, ("AsyncSession", "async_scoped_session")),
            ("sqlalchemy.engine", False, True, ("Connection",)),
            ("sqlalchemy.orm", True, True, ("Session", "scoped_session")),
        ):
            loaded = sys.modules.get(module)
            kinds = tuple(getattr(loaded, name) for name in names) if loaded is not None else ()
            if isinstance(connection, kinds):
                return cls(connection, blocks=blocks, is_session=is_session)
        return None

    @property
    def driver(self) -> str:
        """The name of the driver: "asyncpg", "psycopg", "aiosqlite", "pysqlite" or another."""
        bind = self._connection.get_bind() if self._is_session else self._connection
        return str(bind.dialect.driver)

    async def run(self, work: Callable[[Any], T]) -> T:
        """Return what `work` returns for the synchronous side of the connection."""

        def on_connection(connection: Any) -> T:
            return work(connection.connection() if self._is_session else connection)

        if self.blocks:
            return on_connection(self._connection)
        answer: T = await self._connection.run_sync(on_connection)
        return answer

    async def begin(self, purpose: Purpose) -> None:
        """Begin a transaction. Raises ConfigError if one is open."""
        if self._connection.in_transaction():
            raise already_open(purpose)
        begun = self._connection.begin()
        self._begun = begun if self.blocks else await begun

    async def goes_on(self) -> bool:
        return bool(self._begun.is_active)

    async def commit(self) -> None:
        await self._end(self._begun.commit)

    async def rollback(self) -> None:
        with suppress(Exception):  # a lost connection rolls back by itself
            await self._end(self._begun.rollback)

    async def _end(self, end: Callable[[], Any]) -> None:
        ended = end()
        if not self.blocks:
            await ended
