"""The store object: its parts, and the two calls that concern all of them.

Apps make it from a `memory://` URL. The contract tests and the simulator compare the other stores
with it.
"""

from __future__ import annotations

from tenure.core.clock import Clock
from tenure.core.jobs.records import Pruned
from tenure.core.leases import Finding
from tenure.stores.memory.connection import Connection
from tenure.stores.memory.database import Database
from tenure.stores.memory.jobs import Jobs
from tenure.stores.memory.leases import Leases
from tenure.stores.memory.schedules import Schedules

__all__ = ["MemoryStore"]


class MemoryStore(Connection):
    """Keeps everything in this process; gone when the process ends."""

    def __init__(
        self, url: str, *, namespace: str, clock: Clock, database: Database | None = None
    ) -> None:
        super().__init__(url, namespace=namespace, clock=clock, database=database)
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
                "only this process; other processes do not see its leases and jobs",
                "Good for tests. Replicas need sqlite:// on one host, redis:// or postgresql:// "
                "on several.",
            ),
            Finding("ok", "clock", "the clock of this host"),
            Finding("ok", "format", "none; the data starts empty"),
        ]
