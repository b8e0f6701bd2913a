"""A nightly function that runs once on three replicas, by hand. `app.timer` does this for you.

It takes two things. The lock keeps replicas from running the function *at the same time*. But a
quick function ends, and frees its lock, before a replica with a slower clock asks for it. So the
function also records its run, under the lock, in its own database.
"""

import asyncio
import sqlite3

from tenure import Outcome, Tenure

notes = sqlite3.connect(":memory:")  # stands for the database that all replicas share
notes.execute("CREATE TABLE last_run (name TEXT PRIMARY KEY, tick TEXT)")


async def penalties(replica: str, tick: str) -> bool:
    """Return whether there was work left for this tick. Runs under the lock."""
    noted = notes.execute("SELECT tick FROM last_run WHERE name = 'penalties'").fetchone()
    if noted and noted[0] >= tick:
        return False
    print(f"{replica} calculates the penalties of {tick}")
    await asyncio.sleep(0.3)
    with notes:
        notes.execute("REPLACE INTO last_run VALUES ('penalties', ?)", [tick])
    return True


async def replica(name: str, ready: asyncio.Barrier, late: float) -> None:
    """Run one replica; all replicas have the same 02:00 line in their crontab."""
    async with Tenure() as app:
        await ready.wait()  # 02:00
        await asyncio.sleep(late)  # its clock differs a little from the others
        # At most one replica at a time. A replica that finds the lock taken does not wait.
        outcome = await app.with_lock(
            "cron:penalties", penalties, name, "2026-03-01 02:00", ttl=600
        )
        print(f"{name}: {describe(outcome)}")


def describe(outcome: Outcome[bool]) -> str:
    if outcome.skipped:
        return "skipped, another replica has the lock"
    if outcome.lost:
        return "lost the lock while it ran; another replica may have run at the same time"
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
