"""Removing finished jobs whose retention is over."""

from __future__ import annotations

from tenure.stores.contract import Store

__all__ = ["prune_finished"]

# A slice of this size holds up nobody else on the store for long.
_SLICE = 1000


async def prune_finished(store: Store) -> int:
    """Remove all there is to remove, slice by slice; say how many."""
    total = 0
    while True:
        some = await store.prune_jobs(limit=_SLICE)
        total += some
        if some < _SLICE:
            return total
        await store.clock.sleep(0)  # a store may answer without waiting for anything
