"""Looks at a PostgreSQL store from inside: its plans and their cost."""

import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, TypeAlias

import asyncpg

from tenure.core.clock import SystemClock
from tenure.stores.postgres import PostgresStore

MANY = 100_000
EXPLAINING = {
    "session_preload_libraries": "auto_explain",
    "auto_explain.log_min_duration": "0",
    "auto_explain.log_nested_statements": "on",
}

FILL = """
WITH busy AS (
    INSERT INTO tenure.replica (namespace, id, meta, joined, renewed, ttl)
    SELECT $1, 'busy-' || n, '', 0, 1, 5e15 FROM generate_series(0, 2) AS n
    ON CONFLICT DO NOTHING
)
INSERT INTO tenure.job (namespace, id, task, queue, priority, payload, tags, retention, created,
                        due, since, state, replica)
SELECT $1, 'x' || n, 'work', 'q' || n % 7, n % 10, '', '{}', 0, 0, 4e15,
       CASE WHEN n % 20 <> 0 THEN n % 2 END,
       CASE WHEN n % 20 = 0 THEN 'running' ELSE 'waiting' END,
       CASE WHEN n % 20 = 0 THEN 'busy-' || n % 3 ELSE '' END
FROM generate_series(1, $2::integer) AS n
"""
FINISH = """
INSERT INTO tenure.job_done (namespace, id, task, queue, priority, payload, tags, retention,
                             created, due, state, finished, expires)
SELECT $1, 'y' || n, 'work', 'q' || n % 7, n % 10, '', '{}', 0, 0, 0,
       CASE WHEN n % 20 = 0 THEN 'failed' ELSE 'succeeded' END, 1, 4e15
FROM generate_series(1, $2::integer) AS n
"""


Open: TypeAlias = Callable[..., Awaitable[PostgresStore]]


@asynccontextmanager
async def opening(namespace: str) -> AsyncIterator[Open]:
    """Give what opens stores, which are closed at the end."""
    async with AsyncExitStack() as stack:

        async def make(url: str, **how: Any) -> PostgresStore:
            store = PostgresStore(url, namespace=namespace, clock=SystemClock())
            stack.push_async_callback(store.close)
            await store.open(**how)
            return store

        yield make


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[asyncpg.Connection]:
    """Open a second session in the same database."""
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        connection.terminate()


async def blocks_another(connection: asyncpg.Connection) -> bool:
    """Return whether another session waits for a lock of this one."""
    [[number]] = await connection.fetch(
        "SELECT count(*) FROM pg_locks WHERE NOT granted"
        " AND pg_backend_pid() = ANY (pg_blocking_pids(pid))"
    )
    return bool(number)


async def buffers(connection: asyncpg.Connection, statement: str) -> int:
    """Return how many pages a statement touches."""
    [[plan]] = await connection.fetch(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}")
    top = json.loads(plan)[0]["Plan"]
    return top["Shared Hit Blocks"] + top["Shared Read Blocks"]


def walks_in(log: str) -> list[str]:
    """Return where a log of plans shows that a whole table, or namespace, was read."""
    walks = re.findall(r"Seq Scan on (?:job|rep|schedule)[^\n]*", log)
    # A range of the namespace alone is a walk too, unless its order is what is wanted.
    alone = r"using (job\w*) on [^\n]*\n\s*Index Cond: \(namespace = [^ )]+\)\n"
    # Nothing is worth keeping aside of what an index finds at once.
    kept = r"Materialize[^\n]*\n[^\n]*using (?:job|rep|schedule)[^\n]*"
    return walks + re.findall(alone, log) + re.findall(kept, log)
