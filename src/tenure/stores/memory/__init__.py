"""The memory store: the contract in plain Python, for tests and for one process.

`memory://` is private to its app; `memory://name` is shared by everything in the process that
names it. All methods are safe to call from several threads, each on its own event loop.
"""

from __future__ import annotations

from tenure.core.clock import Clock
from tenure.core.jobs.records import Pruned
from tenure.core.leases import Finding
from tenure.stores.memory.connection import Connection
from tenure.stores.memory.jobs import Jobs
from tenure.stores.memory.leases import Leases
from tenure.stores.memory.schedules import Schedules
from tenure.stores.memory.world import World

__all__ = ["MemoryStore"]


class MemoryStore(Connection):
    """Keeps everything in this process; gone when it ends."""

    def __init__(
        self, url: str, *, namespace: str, clock: Clock, world: World | None = None
    ) -> None:
        super().__init__(url, namespace=namespace, clock=clock, world=world)
        self.leases = Leases(self)
        self.jobs = Jobs(self)
        self.schedules = Schedules(self, self.jobs)

    async def prune(self, *, idle: float, limit: int = 1000) -> Pruned:
        with self.lock:
            leases = self.leases.prune(idle, limit)
            jobs = self.jobs.prune(limit)
            return Pruned(leases, jobs, more=limit in (leases, jobs))

    async def examine(self) -> list[Finding]:
        grade = self.traits.grade
        return [
            Finding("ok", "store", f"{self.url}, namespace {self.namespace}"),
            Finding("ok", "grade", f"{grade.name}, {grade.value}"),
            Finding(
                "note",
                "scope",
                "this process alone; no other one sees its leases",
                "Good for tests. Replicas need sqlite:// on one host, redis:// or postgresql:// "
                "on several.",
            ),
            Finding("ok", "clock", "this host's own"),
            Finding("ok", "format", "none; it begins empty"),
        ]
