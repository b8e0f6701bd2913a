"""Whether a pooler stands between us and the server, and lends sessions by the transaction."""

from __future__ import annotations

import asyncpg

__all__ = ["POOLER_ADVICE", "shares_sessions"]

POOLER_ADVICE = (
    "It is in transaction mode, which breaks prepared statements and wake-ups. Add "
    "statement_cache_size=0 to the URL, or connect to the server directly."
)


async def shares_sessions(one: asyncpg.Connection, other: asyncpg.Connection) -> bool:
    """Return whether calls on these open connections meet on one session of the server.

    Two connections that meet the same server process share it, and so does one that meets two.
    Four questions, because a pooler with two free sessions may lend them in turns.
    """
    asked = (one, other, one, one)
    pids = [await connection.fetchval("SELECT pg_backend_pid()") for connection in asked]
    return pids[0] == pids[1] or len({pids[0], *pids[2:]}) > 1
