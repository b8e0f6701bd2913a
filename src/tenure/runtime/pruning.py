"""Removing what is over: finished jobs, keys of locks that nobody uses, timers that are gone."""

from __future__ import annotations

from typing import Final

from tenure.runtime.timers.scheduling import Scheduling
from tenure.stores.contract import Store

__all__ = ["prune", "prune_forgotten"]

# A slice of this size holds up nobody else on the store for long.
_SLICE: Final = 1000
# A lock that is taken every few minutes keeps its record.
_IDLE: Final = 3600.0
# Long enough for a service that is switched off over the holidays to go on where it was.
_FORGOTTEN_AFTER: Final = 14 * 86_400.0


async def prune(store: Store) -> int:
    """Remove idle leases and finished jobs, slice by slice; say how many jobs."""
    jobs = 0
    while True:
        pruned = await store.prune(idle=_IDLE, limit=_SLICE)
        jobs += pruned.jobs
        if not pruned.more:
            return jobs
        await store.clock.sleep(0)  # a store may answer without waiting for anything


async def prune_forgotten(store: Store) -> int:
    """Remove timers and schedules that no replica has declared for two weeks; say how many."""
    return await Scheduling(store).forget(idle=_FORGOTTEN_AFTER)
