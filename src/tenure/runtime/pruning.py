"""Removes finished jobs whose retention is over, and the keys of locks that are idle.

Workers, lock keepers and `app.prune()` call it. Timers that no replica declares any more are
removed by the janitor, which has to read all of them for it.
"""

from __future__ import annotations

from typing import Final

from tenure.stores.contract import Store

__all__ = ["prune"]

# A slice of this size does not delay other calls to the store for long.
_SLICE: Final = 1000
# A lock that is taken every few minutes keeps its record.
_IDLE: Final = 3600.0


async def prune(store: Store) -> int:
    """Remove idle leases and finished jobs, slice by slice. Returns how many jobs it removed."""
    jobs = 0
    while True:
        pruned = await store.prune(idle=_IDLE, limit=_SLICE)
        jobs += pruned.jobs
        if not pruned.more:
            return jobs
        await store.clock.sleep(0)  # a store may answer without waiting for anything
