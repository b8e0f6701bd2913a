"""The memory store: the contract in plain Python, for tests and for one process.

`memory://` is private to its app; `memory://name` is shared by everything in the process that
names it. All methods are safe to call from several threads, each on its own event loop.
"""

from __future__ import annotations

from tenure.core.records import Pruned
from tenure.stores.memory.examine import Examination
from tenure.stores.memory.leases import Leases
from tenure.stores.memory.schedules import Schedules

__all__ = ["MemoryStore"]


class MemoryStore(Leases, Schedules, Examination):
    """Keeps everything in this process; gone when it ends."""

    async def prune(self, *, idle: float, limit: int = 1000) -> Pruned:
        with self._lock:
            leases = self._prune_leases(idle, limit)
            jobs = self._prune_jobs(limit)
            return Pruned(leases, jobs, more=limit in (leases, jobs))
