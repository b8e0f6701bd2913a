"""Taking part in transactions of the user's own: what SQL stores share, and what can be wrong."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import suppress
from typing import Any, Generic, TypeVar

from tenure.errors import ConfigError
from tenure.stores.contract import Purpose

__all__ = [
    "Asked",
    "Sqlalchemy",
    "already_open",
    "ended_inside",
    "no_open_transaction",
    "no_transactions",
    "other_database",
    "plainly",
    "unknown_connection",
]

T = TypeVar("T")

_INSTEAD: dict[Purpose, str] = {
    "guard()": (
        "Pass hold.fence along with the write instead, and let its target refuse lower fences."
    ),
    "bind()": "Enqueue after your commit instead, or keep jobs in your SQL database.",
    "transaction()": (
        "Pass current_job().id or its fence along with the write instead, and let its target "
        "refuse what it has seen."
    ),
}


def no_transactions(purpose: Purpose, url: str) -> ConfigError:
    """The store cannot take part in any transaction."""
    return ConfigError(
        f"{url} has no transactions that {purpose} could take part in. {_INSTEAD[purpose]}"
    )


def unknown_connection(purpose: Purpose, connection: object, known: str) -> ConfigError:
    """It is not a connection that this store can speak through."""
    kind = f"{type(connection).__module__}.{type(connection).__qualname__}"
    return ConfigError(f"{purpose} cannot use a {kind}; give it a {known}.")


def no_open_transaction(purpose: Purpose, how: str) -> ConfigError:
    """What is done outside of a transaction is done at once, and cannot be undone."""
    return ConfigError(
        f"{purpose} takes part in an open transaction, but none is open: begin it ({how}) first."
    )


def already_open(purpose: Purpose) -> ConfigError:
    """A transaction within a transaction is none: its end commits nothing."""
    return ConfigError(
        f"{purpose} begins a transaction and commits it, but one is open on this connection "
        "already, perhaps since a first SELECT: commit or roll it back before, or use a "
        "connection of its own. (sqlite3 with autocommit=False always has one open.)"
    )


def ended_inside(purpose: Purpose) -> ConfigError:
    """The user committed or rolled back what is ours to end."""
    return ConfigError(
        f"the transaction was ended inside of the {purpose} block: leave commit and rollback to "
        "the block, and do not write 'with connection:' in it. The job was not settled."
    )


def other_database(purpose: Purpose, url: str) -> ConfigError:
    """The connection leads somewhere else than the store."""
    return ConfigError(
        f"{purpose} needs a connection to the database of the store, {url}; this one leads to "
        "another one."
    )


def plainly(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that waits for nothing, in this thread and without an event loop."""
    try:
        work.send(None)
    except StopIteration as end:
        answer: T = end.value
        return answer
    work.close()
    msg = "it waits for something: only calls on synchronous connections can be run plainly"
    raise RuntimeError(msg)


class Asked(Generic[T]):
    """An answer to be awaited; unlike a coroutine, nobody minds if it never is."""

    def __init__(self, ask: Callable[[], Awaitable[T]]) -> None:
        self._ask = ask

    def __await__(self) -> Generator[Any, None, T]:
        return self._ask().__await__()


class Sqlalchemy:
    """A connection or session of SQLAlchemy, of either kind: what is special about each."""

    def __init__(self, given: Any, *, blocks: bool, is_session: bool) -> None:
        self._given = given
        self._is_session = is_session
        self._begun: Any = None
        self.blocks = blocks

    @classmethod
    def of(cls, given: object) -> Sqlalchemy | None:
        """Return it, if this is one."""
        # Looked up, not imported: who has such a connection has imported it.
        for module, is_session, blocks, names in (
            ("sqlalchemy.ext.asyncio", False, False, ("AsyncConnection",)),
            ("sqlalchemy.ext.asyncio", True, False, ("AsyncSession", "async_scoped_session")),
            ("sqlalchemy.engine", False, True, ("Connection",)),
            ("sqlalchemy.orm", True, True, ("Session", "scoped_session")),
        ):
            loaded = sys.modules.get(module)
            kinds = tuple(getattr(loaded, name) for name in names) if loaded is not None else ()
            if isinstance(given, kinds):
                return cls(given, blocks=blocks, is_session=is_session)
        return None

    @property
    def driver(self) -> str:
        """The driver below: "asyncpg", "psycopg", "aiosqlite", "pysqlite" or another."""
        bind = self._given.get_bind() if self._is_session else self._given
        return str(bind.dialect.driver)

    async def run(self, work: Callable[[Any], T]) -> T:
        """Return what `work` makes of the synchronous side of the connection."""

        def on_connection(given: Any) -> T:
            return work(given.connection() if self._is_session else given)

        if self.blocks:
            return on_connection(self._given)
        answer: T = await self._given.run_sync(on_connection)
        return answer

    async def begin(self, purpose: Purpose) -> None:
        """Begin a transaction that is none within another."""
        if self._given.in_transaction():
            raise already_open(purpose)
        begun = self._given.begin()
        self._begun = begun if self.blocks else await begun

    async def goes_on(self) -> bool:
        return bool(self._begun.is_active)

    async def commit(self) -> None:
        await self._end(self._begun.commit)

    async def rollback(self) -> None:
        with suppress(Exception):  # a connection that is gone undoes it by itself
            await self._end(self._begun.rollback)

    async def _end(self, end: Callable[[], Any]) -> None:
        ended = end()
        if not self.blocks:
            await ended
