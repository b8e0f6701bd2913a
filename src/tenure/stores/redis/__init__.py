"""The Redis store: the contract as Lua scripts, for Redis (6.2 and later) and Valkey.

One connection carries all calls of a store object, batched while it is busy; a second one, made by
the first `watch`, receives wake-ups. All keys of a namespace start with `{tenure:<namespace>}:`.
"""

from __future__ import annotations

from tenure.core.records import Pruned
from tenure.stores.redis.deleting import Deleting
from tenure.stores.redis.examine import Examination
from tenure.stores.redis.job_views import JobViews
from tenure.stores.redis.jobs import Jobs
from tenure.stores.redis.leases import Leases
from tenure.stores.redis.replicas import Replicas
from tenure.stores.redis.schedules import Schedules

__all__ = ["RedisStore"]


class RedisStore(Leases, Replicas, Jobs, Deleting, JobViews, Schedules, Examination):
    """Keeps everything on one Redis or Valkey server, or on whichever is the primary now."""

    async def prune(self, *, idle: float, limit: int = 1000) -> Pruned:
        leases = await self._prune_leases(idle, limit)
        jobs = await self._prune_jobs(limit)
        return Pruned(leases, jobs, more=limit in (leases, jobs))
