"""Decides whether a tick runs, is skipped, waits, or is left to another replica.

`advance` turns a move of a cursor into a commit, based on the head of the schedule. `outcome_of`
turns the store's answer into the answer to the move, or None if the schedule has changed meanwhile:
then the caller decides again, with the new head. Pure; `runtime.timers.scheduling` calls both.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from tenure.core.durations import micros
from tenure.core.jobs.records import JobRecord, NewJob
from tenure.core.jobs.states import FINISHED
from tenure.core.schedules.documents import (
    EVERYTHING,
    Decision,
    Standing,
    is_frozen,
    line_of,
    read_standing,
    write_document,
)
from tenure.core.schedules.pauses import seconds_ahead
from tenure.core.schedules.records import (
    Commit,
    Committed,
    Expected,
    Room,
    ScheduleHead,
    TickLine,
    Write,
)

__all__ = [
    "Advance",
    "Advanced",
    "Bound",
    "Full",
    "Move",
    "Moved",
    "advance",
    "after_commit",
    "outcome_of",
]

Full: TypeAlias = Literal["skip", "hold", "cancel"]
Moved: TypeAlias = Literal["done", "skipped", "held", "passed", "early", "gone", "unknown"]


class Bound(Struct, frozen=True, kw_only=True):
    """A limit of unfinished runs, and what happens to a tick that would exceed it."""

    most: int
    reason: str
    full: Full
    """Skip it; or hold it, so that it is tried again; or cancel the others, and hold it."""


class Advance(Struct, frozen=True, kw_only=True):
    """A move of a schedule's cursor, together with the run that it starts."""

    id: str
    """Identifies the move, so that a repeat is recognised; the id of `run`, if there is one."""
    name: str
    ruler: str
    """The digest of the definition that planned it, and its revision."""
    revision: int
    seen: int | None = None
    """The cursor that it was planned from. None: the cursor does not matter, and stays."""
    to: int
    """The nominal instant of the tick: the new cursor, not before `seen`."""
    due: int
    """Refused before this instant."""
    run: NewJob | None = None
    replica: str = ""
    """The replica on which the run starts at once; empty: it waits in its queue."""
    rest: float = 0.0
    """Seconds that must pass after the end of the last run; refused before."""
    limit: Bound | None = None
    """Limits all unfinished runs of the schedule."""
    own: Bound | None = None
    """Limits those that run on `replica`."""
    passed: tuple[Decision, ...] = ()
    """Ticks that do not run, and why; oldest first."""
    forced: bool = False
    """A trigger: it runs although ticks are paused, and does not count as a declaration."""
    records: bool = False
    """Records `passed` afterwards, wherever the cursor is: ticks that ran while the store was down,
    and those that did not. The cursor moves to `to` unless it is past it; without `seen` it stays.
    """


class Advanced(Struct, frozen=True, kw_only=True):
    """The answer to a move, by `outcome`.

    - done: the cursor has moved, and the run exists.
    - skipped: the cursor has moved without a run; `reason` says why.

    With all others nothing has changed:

    - held: there is no room now, or the replica has expired. Try again.
    - passed: another replica has moved the cursor, or another definition rules.
    - early: try again in `ready_in` seconds.
    - gone: the store does not know the replica.
    - unknown: the store does not know the schedule.
    """

    outcome: Moved
    cursor: int = 0
    """The cursor of the schedule now."""
    ruler: str = ""
    """The digest of the definition that rules, and its revision."""
    revision: int = 0
    last_run: int = 0
    now: int
    reason: str = ""
    ready_in: float = 0.0
    run: JobRecord | None = None
    blocking: tuple[str, ...] = ()
    """If it is held by overlap="cancel_previous": the runs to cancel first."""


class Move(Struct, frozen=True, kw_only=True):
    """A move as it is sent to the store."""

    commit: Commit
    is_paused: bool = False
    """Whether the run was left out because ticks are paused."""
    bounds: tuple[Bound, ...] = ()
    """The bounds behind the commit's rooms, in the same order."""


def advance(
    move: Advance,
    head: ScheduleHead | None,
    everything: ScheduleHead | None,
    *,
    last: JobRecord | None = None,
    now: int = 0,
) -> Move | Advanced:
    """Return the commit of a move, or the answer if there is nothing to commit.

    `head` is the last known state of the schedule, `everything` that of the pause of all timers,
    and `last` is the last run if `move.rest` counts from its end. If they are out of date, the
    store refuses the commit as stale.
    """
    standing = None if head is None else read_standing(head.standing)
    if head is None or standing is None:
        return Advanced(outcome="unknown", now=now)
    if _has_passed(move, head, standing):
        return _answer("passed", head, standing, now)
    not_before = move.due
    if move.run is not None and move.rest and last is not None:
        if last.state not in FINISHED:
            return _answer("held", head, standing, now, reason="running")
        if not now or not seconds_ahead(last.finished, now):  # else the clock was wrong then
            not_before = max(not_before, last.finished + micros(move.rest))
    commit = Commit(
        id=move.id,
        name=move.name,
        expects=(Expected(move.name, head.version),),
        writes=_writes(move, head, standing),
        declares=not move.forced,
        not_before=not_before,
        lines=tuple(line_of(decision) for decision in _to_record(move, standing)),
    )
    if move.run is None:
        return Move(commit=commit)
    if not move.forced:
        version = "" if everything is None else everything.version
        commit = replace(commit, expects=(*commit.expects, Expected(EVERYTHING, version)))
        if is_frozen(move.to, head, everything):
            lines = (*commit.lines, _skip_line(move, "paused"))
            return Move(commit=replace(commit, lines=lines), is_paused=True)
    return _with_run(move, commit)


def outcome_of(move: Advance, sent: Move, answer: Committed, head: ScheduleHead) -> Advanced | None:
    """Return the answer to a move; None if it must be decided again, with the heads in `answer`.

    `head` is the last known state of the schedule, `answer` included.
    """
    standing = read_standing(head.standing) or Standing(cursor=0)
    now = answer.now
    match answer.outcome:
        case "done":
            outcome = _carried_out(sent, head, standing, now, run=answer.run)
        case "stale":
            return _repeated(move, sent, head, standing, now)
        case "instead":
            reason = sent.bounds[answer.room].reason
            outcome = _answer("skipped", head, standing, now, reason=reason)
        case "full":
            bound = sent.bounds[answer.room]
            outcome = _answer("held", head, standing, now, reason=bound.reason)
            if bound.full == "cancel":
                outcome = replace(outcome, blocking=answer.blocking)
        case "early":
            ready_in = (sent.commit.not_before - now) / 1e6
            outcome = _answer("early", head, standing, now, ready_in=ready_in)
        case "gone":
            outcome = _answer("gone", head, standing, now)
        case _:
            outcome = _answer("held", head, standing, now, reason="expired")
    return outcome


def after_commit(sent: Commit, answer: Committed, head: ScheduleHead) -> ScheduleHead:
    """Return the head of a schedule after a commit, as far as the answer tells."""
    if answer.outcome == "stale":
        return next((news for news in answer.heads if news.name == sent.name), head)
    if answer.outcome not in {"done", "instead"}:
        return head
    version, standing, ruler = head.version, head.standing, head.ruler
    for write in sent.writes:
        if write.name == sent.name and write.standing is not None:
            version, standing, ruler = sent.id, write.standing, write.ruler
    last_run, last_job = head.last_run, head.last_job
    if answer.outcome == "done" and sent.run is not None:
        last_run, last_job = sent.tick, sent.run.id
    return ScheduleHead(sent.name, version, standing, ruler, last_run, last_job)


def _has_passed(move: Advance, head: ScheduleHead, standing: Standing) -> bool:
    if (move.ruler, move.revision) != (head.ruler, standing.revision):
        return True
    if standing.successor or not standing.is_ours:
        return True
    if move.records:
        return False
    return move.seen is not None and not move.seen == standing.cursor <= move.to


def _to_record(move: Advance, standing: Standing) -> Iterable[Decision]:
    """Yield the decisions to record.

    Every replica misses the same ticks in an outage. So those that did not run are recorded only if
    no other replica has recorded them.
    """
    for decision in move.passed:
        is_decided = move.records and move.seen is not None and decision.last <= standing.cursor
        if decision.outcome == "ran" or not is_decided:
            yield decision


def _writes(move: Advance, head: ScheduleHead, standing: Standing) -> tuple[Write, ...]:
    """Return the new standing if the cursor moves, or if others must notice a trigger.

    Ticks with each="replica" write nothing: with a hundred replicas nearly all commits would be
    stale. A record of an outage always writes: its id in the document makes a repeat recognisable.
    """
    if move.seen is None and not (move.forced or move.records):
        return ()
    ran = standing.ran if standing.ran > head.last_run else 0
    if move.records:
        ran = max([ran, *(decision.last for decision in move.passed if decision.outcome == "ran")])
    cursor = standing.cursor if move.seen is None else max(standing.cursor, move.to)
    text = write_document(replace(standing, cursor=cursor, ran=ran))
    return (Write(move.name, text, ruler=head.ruler),)


def _with_run(move: Advance, commit: Commit) -> Move:
    pairs = [(move.limit, ""), (move.own, move.replica)]
    bounds = [(bound, on) for bound, on in pairs if bound is not None]
    ran = Decision(
        outcome="ran",
        reason="triggered" if move.forced else "",
        first=move.to,
        last=move.to,
        job=move.id,
        replica=move.replica,
    )
    commit = replace(
        commit,
        run=move.run,
        tick=move.to,
        start_on=move.replica,
        rooms=tuple(_room(move, bound, on) for bound, on in bounds),
        run_line=line_of(ran),
    )
    return Move(commit=commit, bounds=tuple(bound for bound, _ in bounds))


def _room(move: Advance, bound: Bound, on: str) -> Room:
    is_skipped = bound.full == "skip"
    return Room(bound.most, on, _skip_line(move, bound.reason) if is_skipped else None)


def _skip_line(move: Advance, reason: str) -> TickLine:
    return line_of(Decision(outcome="skipped", reason=reason, first=move.to, last=move.to))


def _repeated(
    move: Advance, sent: Move, head: ScheduleHead, standing: Standing, now: int
) -> Advanced | None:
    """Return the answer to a move that was committed before, and whose reply was lost.

    The store answers a repeat with its run. There is none: it has finished and was pruned, ticks
    were paused, or a room was full. Only a bound over all runs skips a tick that writes.
    """
    if head.version != move.id:
        return None
    if sent.commit.run is None or head.last_job == move.id:
        return _carried_out(sent, head, standing, now)
    reason = next((bound.reason for bound in sent.bounds if bound.full == "skip"), "paused")
    return _answer("skipped", head, standing, now, reason=reason)


def _carried_out(
    sent: Move, head: ScheduleHead, standing: Standing, now: int, run: JobRecord | None = None
) -> Advanced:
    if sent.is_paused:
        return _answer("skipped", head, standing, now, reason="paused")
    return replace(_answer("done", head, standing, now), run=run)


def _answer(
    outcome: Moved,
    head: ScheduleHead,
    standing: Standing,
    now: int,
    *,
    reason: str = "",
    ready_in: float = 0.0,
) -> Advanced:
    return Advanced(
        outcome=outcome,
        cursor=standing.cursor,
        # As if another definition ruled: this release must leave the schedule alone.
        ruler=head.ruler if standing.is_ours and not standing.successor else "",
        revision=standing.revision,
        last_run=max(head.last_run, standing.ran),
        now=now,
        reason=reason,
        ready_in=ready_in,
    )
