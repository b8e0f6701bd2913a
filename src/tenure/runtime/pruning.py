"""Removing what is over: finished jobs after their retention, timers that nobody has any more."""

from __future__ import annotations

from tenure.stores.contract import Store

__all__ = ["prune_finished", "prune_forgotten"]

# A slice of this size holds up nobody else on the store for long.
_SLICE = 1000
# Long enough for a service that is switched off over the holidays to go on where it was.
_FORGOTTEN_AFTER = 14 * 86_400.0


async def prune_finished(store: Store) -> int:
    """Remove all there is to remove, slice by slice; say how many."""
    total = 0
    while True:
        some = await store.prune_jobs(limit=_SLICE)
        total += some
        if some < _SLICE:
            return total
        await store.clock.sleep(0)  # a store may answer without waiting for anything


async def prune_forgotten(store: Store) -> int:
    """Remove timers and schedules that nobody has declared for two weeks; say how many."""
    return await store.prune_schedules(idle=_FORGOTTEN_AFTER, limit=_SLICE)
