"""Look-ups that tests make often, in the words of a test."""

from __future__ import annotations

from collections.abc import Sequence

from tenure.core.jobs.records import Stranded
from tenure.core.schedules.records import DECISIONS_MAX, TickLine
from tenure.stores.contract import Store

__all__ = ["decisions", "stranded"]


async def decisions(store: Store, name: str, *, limit: int = DECISIONS_MAX) -> list[TickLine]:
    """Return the history of a schedule, newest line first; empty if there is no such schedule."""
    page = await store.schedules.read([name], lines=limit)
    return [line for record in page.records for line in record.lines]


async def stranded(
    store: Store, ids: Sequence[str] | None = None, *, limit: int = 1000
) -> list[Stranded]:
    """Return the jobs that no worker can finish, or those of them with these ids."""
    page = await store.jobs.find(state="stranded", limit=limit)
    return [job for job in page.stranded if ids is None or job.id in ids]
