"""The locks that are compared: each as a pair of calls, `acquire` and `release`, on one name.

They are used as their documentation shows, with a ttl of 30 s. `raw` is no lock: two round trips
that do nothing, or two commits, the least that any lock on that store can cost.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

import asyncpg
import psycopg
import redis
import redis.asyncio
import redis_lock

from tenure import Tenure, blocking

TTL = 30
NAME = "bench"


@dataclass(frozen=True)
class Pair:
    """One way to take and give back a lock; what `acquire` returns goes to `release`."""

    acquire: Callable[[], Any]
    release: Callable[[Any], Any]


@asynccontextmanager
async def tenure_async(url: str) -> AsyncIterator[Pair]:
    async with Tenure(url) as app:
        lock = app.lock(NAME, ttl=TTL)
        yield Pair(lock.acquire, lambda hold: hold.release())


@contextmanager
def tenure_sync(url: str) -> Iterator[Pair]:
    with blocking.Tenure(url) as app:
        lock = app.lock(NAME, ttl=TTL)
        yield Pair(lock.acquire, lambda hold: hold.release())


@asynccontextmanager
async def redis_py_async(url: str) -> AsyncIterator[Pair]:
    async with redis.asyncio.from_url(url) as client:

        async def acquire() -> Any:
            lock = client.lock(NAME, timeout=TTL)
            await lock.acquire()
            return lock

        yield Pair(acquire, lambda lock: lock.release())


@contextmanager
def redis_py_sync(url: str) -> Iterator[Pair]:
    with redis.from_url(url) as client:

        def acquire() -> Any:
            lock = client.lock(NAME, timeout=TTL)
            lock.acquire()
            return lock

        yield Pair(acquire, lambda lock: lock.release())


@contextmanager
def python_redis_lock(url: str) -> Iterator[Pair]:
    with redis.from_url(url) as client:

        def acquire() -> Any:
            lock = redis_lock.Lock(client, NAME, expire=TTL)
            lock.acquire()
            return lock

        yield Pair(acquire, lambda lock: lock.release())


@asynccontextmanager
async def raw_redis_async(url: str) -> AsyncIterator[Pair]:
    async with redis.asyncio.from_url(url, single_connection_client=True) as client:
        yield Pair(client.ping, lambda _: client.ping())


@contextmanager
def raw_redis_sync(url: str) -> Iterator[Pair]:
    with redis.from_url(url, single_connection_client=True) as client:
        yield Pair(client.ping, lambda _: client.ping())


@asynccontextmanager
async def advisory_async(url: str) -> AsyncIterator[Pair]:
    connection = await asyncpg.connect(url)
    take = await connection.prepare("SELECT pg_advisory_lock(42)")
    give = await connection.prepare("SELECT pg_advisory_unlock(42)")
    yield Pair(take.fetchval, lambda _: give.fetchval())
    await connection.close()


@contextmanager
def advisory_sync(url: str) -> Iterator[Pair]:
    with psycopg.connect(url, autocommit=True) as connection:
        yield Pair(
            lambda: connection.execute("SELECT pg_advisory_lock(42)"),
            lambda _: connection.execute("SELECT pg_advisory_unlock(42)"),
        )


@asynccontextmanager
async def raw_postgres_async(url: str) -> AsyncIterator[Pair]:
    connection = await asyncpg.connect(url)
    nothing = await connection.prepare("SELECT 1")
    yield Pair(nothing.fetchval, lambda _: nothing.fetchval())
    await connection.close()


@asynccontextmanager
async def raw_sqlite_async(url: str) -> AsyncIterator[Pair]:
    """Two transactions that write one row each, as fast as the module can: no awaits, no threads.

    In a file of its own, whose log SQLite copies by itself.
    """
    file = sqlite3.connect(url.removeprefix("sqlite:///") + "-raw", isolation_level=None)
    file.execute("PRAGMA journal_mode = WAL")
    file.execute("PRAGMA synchronous = NORMAL")
    file.execute("CREATE TABLE IF NOT EXISTS pair (name PRIMARY KEY, fence) WITHOUT ROWID")

    async def write(statement: str) -> None:
        file.execute("BEGIN IMMEDIATE")
        file.execute(statement, (NAME,))
        file.execute("COMMIT")

    yield Pair(
        lambda: write("INSERT INTO pair VALUES (?, 1)"),
        lambda _: write("DELETE FROM pair WHERE name = ?"),
    )
    file.close()


@dataclass(frozen=True)
class Contestant:
    """A lock on a kind of store."""

    name: str
    store: str
    opens: Callable[[str], Any]
    is_async: bool
    is_lock: bool = True

    @property
    def label(self) -> str:
        return f"{self.name} on {self.store}"


CONTESTANTS = [
    Contestant("tenure", "redis", tenure_async, is_async=True),
    Contestant("redis-py Lock", "redis", redis_py_async, is_async=True),
    Contestant("raw: two PINGs", "redis", raw_redis_async, is_async=True, is_lock=False),
    Contestant("tenure.blocking", "redis", tenure_sync, is_async=False),
    Contestant("redis-py Lock", "redis", redis_py_sync, is_async=False),
    Contestant("python-redis-lock", "redis", python_redis_lock, is_async=False),
    Contestant("raw: two PINGs", "redis", raw_redis_sync, is_async=False, is_lock=False),
    Contestant("tenure", "postgres", tenure_async, is_async=True),
    Contestant("advisory lock (asyncpg)", "postgres", advisory_async, is_async=True),
    Contestant("raw: two SELECT 1", "postgres", raw_postgres_async, is_async=True, is_lock=False),
    Contestant("tenure.blocking", "postgres", tenure_sync, is_async=False),
    Contestant("advisory lock (psycopg)", "postgres", advisory_sync, is_async=False),
    Contestant("tenure", "sqlite", tenure_async, is_async=True),
    Contestant("raw: two commits", "sqlite", raw_sqlite_async, is_async=True, is_lock=False),
    Contestant("tenure.blocking", "sqlite", tenure_sync, is_async=False),
    Contestant("tenure", "memory", tenure_async, is_async=True),
]


def contestant_at(index: str) -> Contestant:
    return CONTESTANTS[int(index)]


async def maybe_await(answer: Any) -> Any:
    return await answer if isinstance(answer, Awaitable) else answer
