"""The Redis store object: its three parts, and the calls about all of them."""

from __future__ import annotations

from tenure.core.clock import Clock
from tenure.core.jobs.records import Pruned
from tenure.core.leases import Finding
from tenure.stores.redis.connection import Connection
from tenure.stores.redis.doctor import Doctor
from tenure.stores.redis.jobs import Jobs
from tenure.stores.redis.leases import Leases
from tenure.stores.redis.schedules import Schedules

__all__ = ["RedisStore"]


class RedisStore(Connection):
    """Keeps all data on one Redis or Valkey server, or on the current primary of a group."""

    def __init__(self, url: str, *, namespace: str, clock: Clock) -> None:
        super().__init__(url, namespace=namespace, clock=clock)
        self.leases = Leases(self)
        self.jobs = Jobs(self)
        self.schedules = Schedules(self)

    async def prune(self, *, idle: float, limit: int = 1000) -> Pruned:
        leases = await self.leases.prune(idle, limit)
        jobs = await self.jobs.prune(limit)
        return Pruned(leases, jobs, more=limit in (leases, jobs))

    async def examine(self) -> list[Finding]:
        return await Doctor(self).examine()
