"""The PostgreSQL store object: its parts, and the calls about all of them."""

from __future__ import annotations

from typing import Any

from tenure.core.durations import micros
from tenure.core.jobs.records import Pruned
from tenure.core.leases import Finding
from tenure.stores.postgres.connection import Connection
from tenure.stores.postgres.doctor import Doctor
from tenure.stores.postgres.jobs import Jobs
from tenure.stores.postgres.leases import Leases
from tenure.stores.postgres.schedules import Schedules

__all__ = ["PostgresStore"]

_PRUNE_LEASES = "SELECT tenure.lease_prune($1, $2, $3, $4)"
_PRUNE_JOBS = "SELECT tenure.job_prune($1, $2, $3)"


class PostgresStore(Connection):
    """Keeps all data in one PostgreSQL database, for any number of machines."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.leases = Leases(self)
        self.jobs = Jobs(self)
        self.schedules = Schedules(self)

    async def prune(self, *, idle: float, limit: int = 1000) -> Pruned:
        instant = self.clock.for_server()
        # In two transactions, so that the locks of the first do not block acquisitions during the
        # second.
        [[leases]] = await self.fetch(_PRUNE_LEASES, self.namespace, micros(idle), limit, instant)
        [[jobs]] = await self.fetch(_PRUNE_JOBS, self.namespace, limit, instant)
        return Pruned(leases, jobs, more=max(leases, jobs) >= limit)

    async def examine(self) -> list[Finding]:
        doctor = Doctor(self._address, self.namespace, self.clock)
        findings = await doctor.examine()
        self._grade = doctor.grade or self._grade
        return findings
