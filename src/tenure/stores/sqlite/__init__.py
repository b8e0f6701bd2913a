"""The SQLite store: one file, shared by all processes of a host. Needs only the standard library.

`sqlite:///tenure.db` is relative to the working directory, `sqlite:////srv/tenure.db` absolute.
The file may be your own database: all tables here are named `tenure_...`.
"""

from __future__ import annotations

from tenure.core.records import Pruned
from tenure.stores.sqlite.examine import Examination
from tenure.stores.sqlite.jobs import prune_jobs
from tenure.stores.sqlite.leases import Leases
from tenure.stores.sqlite.schedules import Schedules
from tenure.stores.sqlite.within import TakingPart

__all__ = ["SqliteStore"]


class SqliteStore(Leases, Schedules, TakingPart, Examination):
    """Keeps everything in one file, in write-ahead mode; its clock is the host's."""

    async def prune(self, *, idle: float, limit: int = 1000) -> Pruned:
        # Not in one transaction: others wait for the write lock meanwhile. And it need not be on
        # the disk: if a power loss undoes it, it is done again.
        leases = await self._prune_leases(idle, limit)
        jobs, more = await self._run(lambda tx: prune_jobs(tx, limit))
        return Pruned(leases, jobs, more=more or leases == limit)
