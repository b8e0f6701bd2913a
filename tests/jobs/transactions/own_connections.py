"""User connections of every kind that can take part in jobs."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager

import asyncpg
import psycopg
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.pool import NullPool

ON_SQLITE = ("sqlite3", "sqlalchemy-aiosqlite-session")
ON_POSTGRES = (
    "asyncpg",
    "asyncpg-pool",
    "psycopg",
    "sqlalchemy-asyncpg-connection",
    "sqlalchemy-asyncpg-session",
    "sqlalchemy-psycopg-session",
)
ASYNC = tuple(kind for kind in (*ON_SQLITE, *ON_POSTGRES) if kind != "sqlite3")
KINDS = (*ON_SQLITE, *ON_POSTGRES)


class Own:
    """A user connection with a table of the user."""

    table = ""

    def __init__(self, kind: str, connection: object) -> None:
        self.kind = kind
        self.connection = connection

    def transaction(self) -> AbstractAsyncContextManager[object]:
        """Begin a transaction and commit it at the end."""
        if self.kind == "sqlite3":
            return _begun(self.connection)
        if self.kind.startswith("sqlalchemy"):
            return self.connection.begin()
        return self.connection.transaction()

    async def run(self, statement: str) -> None:
        """Run a statement, in the transaction if one is open."""
        if self.kind == "sqlite3":
            self.connection.execute(statement)
        elif self.kind.startswith("sqlalchemy"):
            await self.connection.execute(sqlalchemy.text(statement))
        else:
            await self.connection.execute(statement)

    async def add(self, amount: int) -> None:
        """Write a row."""
        await self.run(f"INSERT INTO {self.table} VALUES ({amount})")


@asynccontextmanager
async def _begun(db: sqlite3.Connection) -> AsyncIterator[None]:
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        db.execute("ROLLBACK")
        raise
    db.execute("COMMIT")


async def connect(kind: str, url: str, stack: AsyncExitStack, **options: object) -> Own:
    """Open a connection of this kind until the stack ends."""
    if kind == "sqlite3":
        db = sqlite3.connect(path_of(url), isolation_level=None)
        stack.callback(db.close)
        return Own(kind, db)
    if kind.startswith("sqlalchemy"):
        return Own(kind, await _alchemy(kind, url, stack, **options))
    if kind == "psycopg":
        connection = await psycopg.AsyncConnection.connect(url, autocommit=True)
    elif kind == "asyncpg-pool":
        pool = await stack.enter_async_context(asyncpg.create_pool(url, min_size=1, max_size=1))
        return Own(kind, await stack.enter_async_context(pool.acquire()))
    else:
        connection = await asyncpg.connect(url)
    stack.push_async_callback(connection.close)
    return Own(kind, connection)


async def _alchemy(kind: str, url: str, stack: AsyncExitStack, **options: object) -> object:
    _, driver, what = kind.split("-")
    scheme, _, rest = url.partition("://")
    engine = create_async_engine(f"{scheme}+{driver}://{rest}", poolclass=NullPool, **options)
    stack.push_async_callback(engine.dispose)
    if what == "session":
        return await stack.enter_async_context(AsyncSession(engine))
    return await stack.enter_async_context(engine.connect())


def path_of(url: str) -> str:
    """Return the file behind the URL of an SQLite store."""
    return url.removeprefix("sqlite:///")


async def values(url: str, table: str) -> list[int]:
    """Return the committed rows of a table, read over another connection."""
    query = f"SELECT amount FROM {table} ORDER BY amount"
    if url.startswith("sqlite"):
        db = sqlite3.connect(path_of(url))
        try:
            return [amount for (amount,) in db.execute(query)]
        finally:
            db.close()
    connection = await asyncpg.connect(url)
    try:
        return [row[0] for row in await connection.fetch(query)]
    finally:
        await connection.close()


async def on_postgres(url: str, statement: str) -> None:
    """Run a statement over another connection."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()
