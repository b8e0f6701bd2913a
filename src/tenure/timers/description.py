"""The state of timers and the outcomes of their ticks in words for users, from what a store has."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from msgspec.structs import replace

from tenure.core.jobs.view import as_datetime
from tenure.core.schedules.definition import Definition, Plan
from tenure.core.schedules.documents import (
    ANSWERED_LATE,
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
from tenure.timers.facts import facts_of, read_runs
from tenure.timers.info import TickOutcome, TickRecord, TimerInfo, TimerPause, TimerView

__all__ = ["described", "pause_of", "runs_of", "tick_record", "views_of"]

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
) -> list[TimerView]:
    """Return the state of schedules with their histories and next ticks.

    Looks up the newest 2,000 runs in all histories together; older ones "ran".
    """
    histories = {schedule.name: _decisions(schedule) for schedule in stored.all}
    decisions = [decision for history in histories.values() for decision in history]
    decisions.sort(key=lambda decision: decision.at, reverse=True)
    last_jobs = {schedule.record.last_job for schedule in stored.all}
    runs = await runs_of(store, jobs, decisions[:_RUNS_MAX], last_jobs)
    records = [run.record for run in runs.values()]
    return [
        _view(facts, histories[facts.name], stored.now, runs, previews)
        for facts in facts_of(stored.all, everything, plans, records)
    ]


def _view(
    facts: TimerFacts,
    history: list[Decision],
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
    records = [tick_record(decision, runs.get(decision.job)) for decision in history]
    # It may be kept for a second, and payloads of runs may be large.
    facts = replace(facts, runs=[replace(run, payload=b"", result=None) for run in facts.runs])
    return TimerView(info=info, history=records, next=ticks, facts=facts)


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


def tick_record(decision: Decision, job: Job[Any] | None) -> TickRecord:
    """Return the outcome of a tick, with what became of its run if that is still there."""
    ran: dict[str, Any] = {}
    outcome: TickOutcome = decision.outcome
    reason = decision.reason
    if job is not None:
        record = job.record
        outcome, reason = job.state, job.reason or decision.reason
        if (outcome, reason) == ("cancelled", ANSWERED_LATE):
            outcome, reason = "missed", "late"
        ran = {
            "started": as_datetime(record.started) if record.started else None,
            "finished": as_datetime(record.finished) if record.finished else None,
            "attempts": job.attempt,
            "error": job.error or "",
        }
    return TickRecord(
        outcome=outcome,
        reason=reason,
        nominal=as_datetime(decision.last),
        first=as_datetime(decision.first),
        ticks=decision.ticks,
        decided=as_datetime(decision.at),
        job=decision.job,
        replica=decision.replica,
        **ran,
    )
