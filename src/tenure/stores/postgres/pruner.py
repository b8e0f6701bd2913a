"""Removes what is over from PostgreSQL: idle lock keys, and jobs whose retention has ended."""

from __future__ import annotations

from tenure.core.durations import micros
from tenure.core.records import Pruned
from tenure.stores.postgres.connection import Connection

__all__ = ["Pruner"]

_PRUNE_LEASES = "SELECT tenure.lease_prune_v1($1, $2, $3, $4)"
_PRUNE_JOBS = "SELECT tenure.job_prune_v1($1, $2, $3)"


class Pruner(Connection):
    """The part of the contract that removes."""

    async def prune(self, *, idle: float, limit: int = 1000) -> Pruned:
        told = self.clock.for_server()
        # In two transactions: the locks of the first would hold up acquisitions during the second.
        [[leases]] = await self._fetch(_PRUNE_LEASES, self.namespace, micros(idle), limit, told)
        [[jobs]] = await self._fetch(_PRUNE_JOBS, self.namespace, limit, told)
        return Pruned(leases, jobs, more=max(leases, jobs) >= limit)
