"""Reads schedules from a store, and reports the ones whose documents cannot be read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from tenure.core.schedules.documents import EVERYTHING, Schedule, read_schedule
from tenure.core.schedules.records import ScheduleRecord
from tenure.stores.contract import Store

__all__ = ["PAGE", "StoredSchedules", "read_or_report", "read_schedules"]

PAGE: Final = 1000
"""The most schedules in one read."""


class StoredSchedules(Struct, frozen=True):
    """Schedules with their documents, and the store's time of the read."""

    now: int
    all: list[Schedule]


async def read_schedules(
    store: Store, names: Sequence[str] | None = None, *, limit: int = PAGE, lines: int = 1
) -> StoredSchedules:
    """Return these schedules, or the first page of all by name. Leaves out unreadable ones.

    The freeze of all timers is included only if `names` has its name.
    """
    answer = await store.schedules.read(names, limit=limit, lines=lines)
    schedules = [read_or_report(store, record) for record in answer.records]
    is_named = names is not None
    return StoredSchedules(
        answer.now,
        [
            schedule
            for schedule in schedules
            if schedule is not None and (is_named or schedule.name != EVERYTHING)
        ],
    )


def read_or_report(store: Store, record: ScheduleRecord) -> Schedule | None:
    """Return a schedule. Reports a damaged one, and returns None if its standing is unreadable."""
    schedule = read_schedule(record)
    if schedule is None:
        why = "its state cannot be read; it starts anew"
        store.damage.report("timer", record.name, why, "its schedule")
    elif record.definition and not schedule.charter.digests:
        why = "its definition cannot be read; the next declared definition rules"
        store.damage.report("timer", record.name, why, "its schedule")
    return schedule
