"""Writes under a guard: python -m tests.process.guarded URL NAMESPACE LOCK TTL TABLE

acquire   wait for the lock and hold it
write     write in a transaction that is bound to the lease, past our own look at the clock
"""

import asyncio
import sqlite3
import sys
from typing import Any

import asyncpg

from tenure import Hold, LeaseLost, Tenure
from tests.process.orders import hearing
from tests.rig.stdio import tell


async def main(url: str, namespace: str, name: str, ttl: str, table: str) -> None:
    write = write_sqlite if url.startswith("sqlite") else write_postgres
    async with Tenure(url, namespace=namespace) as app, hearing() as hear:
        lock = app.lock(name, ttl=float(ttl))
        tell("ready")
        hold: Hold | None = None
        while order := await hear():
            if order == "acquire":
                hold = await lock.acquire()
                tell("held", fence=hold.fence)
            elif hold is not None:
                tell("wrote", taken=await write(url, table, hold), told=is_told(hold))


async def write_sqlite(url: str, table: str, hold: Hold) -> bool:
    db = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
    try:
        db.execute("BEGIN")
        held = await ask_store(hold, db)
        if held:
            db.execute(f"INSERT INTO {table} VALUES ({hold.fence})")
        db.execute("COMMIT" if held else "ROLLBACK")
        return held
    finally:
        db.close()


async def write_postgres(url: str, table: str, hold: Hold) -> bool:
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            held = await ask_store(hold, connection)
            if held:
                await connection.execute(f"INSERT INTO {table} VALUES ({hold.fence})")
        return held
    finally:
        await connection.close()


async def ask_store(hold: Hold, connection: Any) -> bool:
    """Ask the store alone: this must be right even for a holder that believes in itself."""
    return await hold._holds.store.within(connection, "guard()").hold_lease(hold.lease)


def is_told(hold: Hold) -> bool:
    try:
        hold.check()
    except LeaseLost:
        return True
    return False


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
