"""Reads what explains timers: see `core.why`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from tenure.core.jobs.records import BATCH_MAX, JobRecord
from tenure.core.schedules.definition import Plan
from tenure.core.schedules.documents import EVERYTHING, Decision, Schedule, decision_in
from tenure.core.why import TimerFacts
from tenure.runtime.timers.stored_schedules import StoredSchedules
from tenure.stores.contract import Store

__all__ = ["facts_of", "read_facts", "read_runs"]


async def read_facts(
    store: Store, plans: Mapping[str, Plan], stored: StoredSchedules
) -> list[TimerFacts]:
    """Return what explains these timers, with their last runs: one call for every 200 runs.

    `plans` are the timers that this process declares. `stored` includes the record EVERYTHING if
    there is one. Its schedules have up to as many lines as runs are to be found.
    """
    schedules = [schedule for schedule in stored.all if schedule.name != EVERYTHING]
    everything = next((each for each in stored.all if each.name == EVERYTHING), None)
    ids = [decision.job for schedule in schedules for decision in _decisions(schedule)]
    runs = await read_runs(store, [*ids, *(schedule.record.last_job for schedule in schedules)])
    return facts_of(schedules, everything, plans, runs.values())


def facts_of(
    schedules: Iterable[Schedule],
    everything: Schedule | None,
    plans: Mapping[str, Plan],
    runs: Iterable[JobRecord],
) -> list[TimerFacts]:
    """Return what explains these timers, from what was read already."""
    by_name: dict[str, list[JobRecord]] = {}
    for run in runs:
        by_name.setdefault(run.schedule, []).append(run)
    return [
        TimerFacts(
            schedule=schedule,
            everything=everything,
            latest=next(_decisions(schedule), None),
            runs=by_name.get(schedule.name, []),
            own_digest=_own_digest(plans.get(schedule.name)),
        )
        for schedule in schedules
    ]


async def read_runs(store: Store, ids: Iterable[str]) -> dict[str, JobRecord]:
    """Return runs as far as they are still there, by id. Empty ids are left out."""
    unique = [*dict.fromkeys(filter(None, ids))]
    batches = [
        await store.jobs.get(unique[first : first + BATCH_MAX])
        for first in range(0, len(unique), BATCH_MAX)
    ]
    return {run.id: run for batch in batches for run in batch if run is not None}


def _decisions(schedule: Schedule) -> Iterator[Decision]:
    read = (decision_in(line) for line in schedule.record.lines)
    return (decision for decision in read if decision is not None)


def _own_digest(plan: Plan | None) -> str:
    return "" if plan is None else plan.definition.digest
