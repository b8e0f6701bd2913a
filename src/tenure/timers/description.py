"""The state of timers in words for users, from what a store has."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from tenure.core.jobs.view import as_datetime
from tenure.core.schedules.definition import Definition, Plan
from tenure.core.schedules.documents import (
    Decision,
    Schedule,
    decision_in,
    read_definition,
)
from tenure.core.schedules.pauses import current_freeze, silent_for
from tenure.core.schedules.steps import coming_tick, later, preview
from tenure.core.why import TimerFacts
from tenure.jobs import Job, Jobs
from tenure.runtime.timers.stored_schedules import StoredSchedules
from tenure.stores.contract import Store
from tenure.timers.ended_runs import EndedRuns
from tenure.timers.facts import facts_of, read_runs
from tenure.timers.info import TickRecord, TimerInfo, TimerPause, TimerView
from tenure.timers.tick_records import tick_record

__all__ = ["described", "pause_of", "runs_of", "views_of"]

# Of very many timers, the older runs in their histories are not looked up.
_RUNS_MAX = 2000


async def views_of(
    store: Store,
    jobs: Jobs,
    stored: StoredSchedules,
    everything: Schedule | None,
    *,
    plans: Mapping[str, Plan],
    previews: int,
    ended: EndedRuns,
) -> list[TimerView]:
    """Return the state of schedules with their histories and next ticks.

    Looks up the newest 2,000 runs in all histories together; older ones "ran".
    """
    histories = {schedule.name: _decisions(schedule) for schedule in stored.all}
    decisions = [decision for history in histories.values() for decision in history]
    decisions.sort(key=lambda decision: decision.at, reverse=True)
    last_jobs = {schedule.record.last_job for schedule in stored.all}
    ids = [*(decision.job for decision in decisions[:_RUNS_MAX]), *last_jobs]
    records = await ended.read(store, ids)
    runs = {id_: jobs.handle(record) for id_, record in records.items()}
    views: list[TimerView] = []
    for facts in facts_of(stored.all, everything, plans, records.values()):
        history = [ended.tick(each, runs.get(each.job)) for each in histories[facts.name]]
        views.append(_view(facts, history, stored.now, runs, previews))
    return views


def _view(
    facts: TimerFacts,
    history: list[TickRecord],
    now: int,
    runs: Mapping[str, Job[Any]],
    previews: int,
) -> TimerView:
    schedule = facts.schedule
    info = _info(schedule, _latest(schedule), now, runs)
    definition = read_definition(schedule.charter)
    ticks = [] if info.next is None else [info.next]
    if ticks and definition is not None and not definition.rests:
        after = later(schedule, definition, now)
        ticks = [as_datetime(due) for _, due in preview(definition, after, previews)]
    return TimerView(info=info, history=history, next=ticks, facts=facts)


def _decisions(schedule: Schedule) -> list[Decision]:
    read = (decision_in(line) for line in schedule.record.lines)
    return [decision for decision in read if decision is not None]


async def described(store: Store, jobs: Jobs, stored: StoredSchedules) -> list[TimerInfo]:
    """Return the state of schedules in words for users."""
    latest = {schedule.name: _latest(schedule) for schedule in stored.all}
    decisions = [decision for decision in latest.values() if decision is not None]
    last_jobs = {schedule.record.last_job for schedule in stored.all}
    runs = await runs_of(store, jobs, decisions, last_jobs)
    return [_info(schedule, latest[schedule.name], stored.now, runs) for schedule in stored.all]


def _latest(schedule: Schedule) -> Decision | None:
    return None if schedule.record.latest is None else decision_in(schedule.record.latest)


async def runs_of(
    store: Store, jobs: Jobs, decisions: list[Decision], others: Collection[str] = ()
) -> dict[str, Job[Any]]:
    """Return the runs that were decided on, as far as they are still there, by id."""
    ids = [*(line.job for line in decisions), *others]
    return {id_: jobs.handle(record) for id_, record in (await read_runs(store, ids)).items()}


def _info(
    schedule: Schedule, latest: Decision | None, now: int, runs: Mapping[str, Job[Any]]
) -> TimerInfo:
    record, standing = schedule.record, schedule.standing
    definition = read_definition(schedule.charter)
    last = runs.get(record.last_job)
    coming = None
    if definition is not None:
        coming = coming_tick(schedule, definition, now, None if last is None else last.record)
    return TimerInfo(
        name=schedule.name,
        kind="unknown" if definition is None else definition.kind,
        rule="" if definition is None else _words(definition),
        tz="UTC" if definition is None else getattr(definition.rule, "zone", "UTC"),
        task="" if definition is None else definition.run.task,
        next=None if coming is None else as_datetime(coming),
        previous=as_datetime(schedule.last_run) if schedule.last_run else None,
        running=record.live,
        pause=pause_of(schedule, now),
        is_declared=schedule.is_declared(now) and not standing.successor,
        declared=as_datetime(record.declared),
        renamed_to=standing.successor,
        latest=None if latest is None else tick_record(latest, runs.get(latest.job)),
        revision=standing.revision,
        ahead=silent_for(schedule, now),
    )


def _words(definition: Definition) -> str:
    rule = definition.rule.words()
    return f"{rule.removeprefix('every ')} after each run" if definition.rests else rule


def pause_of(schedule: Schedule, now: int) -> TimerPause | None:
    """Return the pause of a schedule, unless it has ended."""
    freeze = current_freeze(schedule, now)
    if freeze is None:
        return None
    until = None if freeze.until is None else as_datetime(freeze.until)
    return TimerPause(since=as_datetime(freeze.since), until=until, reason=freeze.reason)
