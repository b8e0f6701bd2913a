"""Decides which tick of a schedule is due, and which ones are missed or skipped.

A tick has a nominal instant, which follows from the rule, and a due instant, which may be later: by
the schedule's offset, or because a blackout defers it. Pure. The ticker asks `next_step` what to do
next; `ticks` decides whether the step is still possible in the store.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from tenure.core.calendar.blackouts import Blackout, clear_at
from tenure.core.durations import micros
from tenure.core.jobs.records import JobRecord, NewJob
from tenure.core.schedules.definition import Definition, Overlap, Plan, TickArguments
from tenure.core.schedules.documents import Decision, Schedule
from tenure.core.schedules.pauses import seconds_ahead
from tenure.core.schedules.ticks import Bound, Full

__all__ = [
    "CATCH_UP_MAX",
    "TICKS_COUNTED",
    "Step",
    "bounds",
    "coming_tick",
    "later",
    "left_of",
    "next_due",
    "next_step",
    "preview",
    "run_of",
    "still_runs",
]

CATCH_UP_MAX: Final = 10
"""With catch_up="all", how many missed ticks run; earlier ones do not."""
TICKS_COUNTED: Final = 1_000
"""The most missed ticks to count: counting a year of seconds would take too long."""
# A tick is on time until this much after it is due, or half of the way to the next one.
_ON_TIME = micros(10.0)
_FULL: dict[Overlap, Full] = {"skip": "skip", "queue_one": "hold", "cancel_previous": "cancel"}


class Step(Struct, frozen=True, kw_only=True):
    """A move of the cursor that is due."""

    to: int
    due: int
    runs: bool
    is_made_up: bool = False
    """Whether it is a missed tick that runs late (catch_up="all")."""
    passed: tuple[Decision, ...] = ()


def next_step(definition: Definition, cursor: int, now: int) -> Step | int | None:
    """Return the step to take now, or the instant to ask again; None if there is no tick left."""
    if definition.rests:
        due = cursor + micros(definition.rest)
        return Step(to=now, due=due, runs=True) if due <= now else due
    first = definition.rule.next_after(cursor)
    if first is None:
        return None
    if first + definition.offset > now:
        return first + definition.offset
    return _due_step(definition, cursor, now)


def _due_step(definition: Definition, cursor: int, now: int) -> Step | int:
    """Decide about the ticks between the cursor and now. There is at least one."""
    tick = _candidate(definition, cursor, now)
    earlier = _missed(definition, cursor, tick - 1)
    due = _due(definition, tick)
    if _is_skipped(definition, tick, due):
        skipped = Decision(outcome="skipped", reason="blackout", first=tick, last=tick)
        return Step(to=tick, due=tick, runs=False, passed=(*earlier, skipped))
    if due > now:
        return due
    if _is_too_late(definition, tick, due, now):
        missed = _missed(definition, cursor, tick)
        return Step(to=tick, due=tick, runs=False, passed=missed)
    is_made_up = definition.catch_up == "all" and not _is_on_time(definition, tick, due, now)
    return Step(to=tick, due=due, runs=True, is_made_up=is_made_up, passed=earlier)


def still_runs(
    definition: Definition, tick: int, *, cursor: int, now: int, only_newest: bool = True
) -> bool:
    """Return whether a tick that was to run after `cursor` would still run now.

    A store that hangs may carry out a commit long after it was sent. By then the tick may be too
    late, or a newer one may be due.

    Without `only_newest`, a tick that is late by a few seconds may run although a newer one is due.
    Otherwise a store that is always slower than the period would stop the timer.
    """
    if definition.rests:
        return True
    due = _due(definition, tick)
    if due > now:  # the store's clock was set back
        return True
    if definition.catch_up == "latest" and not only_newest and now - due <= _ON_TIME:
        return not _is_too_late(definition, tick, due, now)
    step = next_step(definition, cursor, now)
    return isinstance(step, Step) and step.runs and step.to == tick


def left_of(definition: Definition, decision: Decision, cursor: int) -> Decision | None:
    """Return the part of a decision that is about ticks after `cursor`; None if there is none."""
    if decision.first > cursor:
        return decision
    first = definition.rule.next_after(cursor)
    ticks = decision.ticks - definition.rule.count(decision.first - 1, cursor, decision.ticks)
    if first is None or decision.last <= cursor or ticks < 1:
        return None
    return replace(decision, first=first, ticks=ticks)


def _candidate(definition: Definition, cursor: int, now: int) -> int:
    """Return the tick to run next: the newest, or with catch_up="all" the oldest of a few."""
    tick = definition.rule.last_at(now - definition.offset)
    assert tick is not None
    if definition.catch_up == "all":
        for _ in range(CATCH_UP_MAX - 1):
            before = definition.rule.last_at(tick - 1)
            if before is None or before <= cursor:
                break
            tick = before
    return tick


def _due(definition: Definition, tick: int) -> int:
    """Return when a tick may run: later than its nominal instant with an offset or a blackout."""
    deferring = [blackout for blackout in definition.blackouts if blackout.action == "defer"]
    return clear_at(deferring, tick + definition.offset)


def _is_skipped(definition: Definition, tick: int, due: int) -> bool:
    """Return whether a blackout covers the nominal or the due instant of a tick."""
    return any(blackout.covers(at) for blackout in _skipping(definition) for at in (tick, due))


def _skipping(definition: Definition) -> list[Blackout]:
    return [blackout for blackout in definition.blackouts if blackout.action == "skip"]


def _is_too_late(definition: Definition, tick: int, due: int, now: int) -> bool:
    if definition.within is not None:
        return now - due > micros(definition.within)
    return definition.catch_up == "none" and not _is_on_time(definition, tick, due, now)


def _is_on_time(definition: Definition, tick: int, due: int, now: int) -> bool:
    following = definition.rule.next_after(tick)
    half_way = _ON_TIME if following is None else (following - tick) // 2
    return now - due <= min(_ON_TIME, half_way)


def _missed(definition: Definition, after: int, upto: int) -> tuple[Decision, ...]:
    """Return the decision about ticks that no replica ran in time, if there are any."""
    ticks = definition.rule.count(after, upto, TICKS_COUNTED)
    if not ticks:
        return ()
    first, last = definition.rule.next_after(after), definition.rule.last_at(upto)
    assert first is not None
    assert last is not None
    return (Decision(outcome="missed", reason="late", first=first, last=last, ticks=ticks),)


def bounds(definition: Definition, *, waits: bool = False) -> tuple[Bound | None, Bound | None]:
    """Return the bounds of all runs, and of the runs on the replica that advances the schedule.

    With `waits` the tick waits for an unfinished run, whatever `overlap` says.
    """
    overlap = _overlap_bound(definition, waits=waits)
    limit = _bound(definition.limit, "limit", "skip")
    if definition.each == "replica":
        return limit, overlap or _bound(definition.per_replica, "per_replica", "skip")
    # A replica at its limit leaves the tick to the others.
    return overlap or limit, _bound(definition.per_replica, "per_replica", "hold")


def _overlap_bound(definition: Definition, *, waits: bool) -> Bound | None:
    if definition.overlap == "allow":
        return None
    full = _FULL[definition.overlap]
    return Bound(most=1, reason="overlap", full="hold" if waits else full)


def _bound(most: int | None, reason: str, full: Full) -> Bound | None:
    return None if most is None else Bound(most=most, reason=reason, full=full)


def run_of(
    plan: Plan, id_: str, *, tick: int, due: int, previous: int = 0, chance: float = 0.0
) -> NewJob:
    """Return the job that runs a tick."""
    definition, run = plan.definition, plan.definition.run
    payload, timeout = run.payload, run.timeout
    if definition.kind == "timer":
        jitter = definition.jitter * chance
        begins = due + micros(jitter)
        timeout = None if timeout is None else timeout + jitter
        arguments = TickArguments(nominal=tick, scheduled=begins, previous=previous)
        payload = msgspec.json.encode(arguments)
    return NewJob(
        id=id_,
        task=run.task,
        queue=run.queue,
        priority=run.priority,
        payload=payload,
        tags=run.tags,
        timeout=timeout,
        retention=run.retention,
        retention_failed=run.retention_failed,
        options=run.options,
        schedule=plan.name,
    )


def next_due(definition: Definition, after: int) -> tuple[int, int] | None:
    """Return the nominal and due instants of the next tick that no blackout skips, or None.

    The search is bounded: a schedule whose blackouts cover everything was refused when declared.
    """
    skipping = _skipping(definition)
    tick = definition.rule.next_after(after)
    while tick is not None:
        due = _due(definition, tick)
        if not _is_skipped(definition, tick, due):
            return tick, due
        # Jump over the blackout instead of walking through it tick by tick.
        tick = definition.rule.next_after(max(tick, clear_at(skipping, tick) - 1))
    return None


def coming_tick(
    schedule: Schedule, definition: Definition, now: int, last: JobRecord | None
) -> int | None:
    """Return when the next tick is due, if nothing is in the way.

    None: there is none, or it counts from the end of a run that is not over. `last` is the last
    run, if the store still has it.
    """
    if schedule.standing.successor:
        return None
    if not definition.rests:
        tick = next_due(definition, later(schedule, definition, now))
        return None if tick is None else tick[1]
    if last is not None and not last.finished:
        return None
    ended = 0 if last is None else last.finished
    if seconds_ahead(ended, now):
        ended = 0  # the store's clock was wrong then
    return max(now, max(schedule.standing.cursor, ended) + micros(definition.rest))


def later(schedule: Schedule, definition: Definition, now: int) -> int:
    """Return the instant after which the next tick comes."""
    # The ticks of each replica leave the cursor where it was when the timer was declared.
    return max(schedule.standing.cursor, now) if definition.each == "cluster" else now


def preview(definition: Definition, after: int, number: int) -> list[tuple[int, int]]:
    """Return the nominal and due instants of the next ticks."""
    ticks: list[tuple[int, int]] = []
    while len(ticks) < number and (tick := next_due(definition, after)) is not None:
        ticks.append(tick)
        after = tick[0]
    return ticks
