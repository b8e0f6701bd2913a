"""A nightly function on three replicas that runs once.

Two things are needed. The lock keeps replicas from running it *at the same time*. But a quick
function is over, and its lock free again, before a replica with a slower clock asks. So the run
is noted as well, under the lock, where the function keeps its own data.
"""

import asyncio
import sqlite3

from tenure import Outcome, Tenure

notes = sqlite3.connect(":memory:")  # stands for the database that all replicas share
notes.execute("CREATE TABLE last_run (name TEXT PRIMARY KEY, tick TEXT)")


async def penalties(replica: str, tick: str) -> bool:
    """Return whether there was anything left to do; runs under the lock."""
    noted = notes.execute("SELECT tick FROM last_run WHERE name = 'penalties'").fetchone()
    if noted and noted[0] >= tick:
        return False
    print(f"{replica} calculates the penalties of {tick}")
    await asyncio.sleep(0.3)
    with notes:
        notes.execute("REPLACE INTO last_run VALUES ('penalties', ?)", [tick])
    return True


async def replica(name: str, ready: asyncio.Barrier, late: float) -> None:
    """One replica, with the same line for 02:00 in its crontab as the others."""
    async with Tenure() as app:
        await ready.wait()  # 02:00
        await asyncio.sleep(late)  # by a clock that is never quite that of the others
        # At most one replica at a time. One that finds the lock taken does not wait for it.
        outcome = await app.with_lock(
            "cron:penalties", penalties, name, "2026-03-01 02:00", ttl=600
        )
        print(f"{name}: {describe(outcome)}")


def describe(outcome: Outcome[bool]) -> str:
    if outcome.skipped:
        return "skipped, another replica has the lock"
    if outcome.lost:
        return "lost the lock on the way; what it wrote may stand beside another's"
    return "done" if outcome.value else "nothing left to do for this tick"


async def main() -> None:
    ready = asyncio.Barrier(3)
    await asyncio.gather(
        replica("replica 1", ready, late=0.0),
        replica("replica 2", ready, late=0.1),
        replica("replica 3", ready, late=0.6),
    )


asyncio.run(main())
notes.close()
