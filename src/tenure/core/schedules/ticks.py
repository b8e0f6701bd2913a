"""What a tick may do: run, be skipped, be held, or be left to another replica. Pure.

`advance` turns a move of a cursor into a commit, from what is known of the schedule. `outcome_of`
turns the store's answer into the answer to the move; None means that the schedule has changed
meanwhile, and that it has to be decided again.
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
    Found,
    Room,
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
    """How many unfinished runs there may be, and what happens to a tick that is one too many."""

    most: int
    reason: str
    full: Full
    """Skip it; or hold it, so that it is tried again; or cancel the others, and hold it."""


class Advance(Struct, frozen=True, kw_only=True):
    """A move of a schedule's cursor, together with what it causes."""

    id: str
    """Names this very move, so that a repeat is recognised; that of `run`, if there is one."""
    name: str
    ruler: str
    """The definition that it was planned under, and its revision."""
    revision: int
    seen: int | None = None
    """The cursor that it was planned from. None: the cursor does not count, and stays."""
    to: int
    """The nominal instant of the tick: the new cursor, not before `seen`."""
    due: int
    """Refused before this instant."""
    run: NewJob | None = None
    replica: str = ""
    """The replica on which the run starts at once; empty: it waits in its queue."""
    rest: float = 0.0
    """Refused until the last run has finished, and so long after that."""
    limit: Bound | None = None
    """Over all unfinished runs of the schedule."""
    own: Bound | None = None
    """Over those that run on `replica`."""
    passed: tuple[Decision, ...] = ()
    """Ticks that do not run, and why; oldest first."""
    forced: bool = False
    """Whether it runs although the schedule is frozen, and declares nothing: a trigger."""
    records: bool = False
    """Whether `passed` has happened already, wherever the cursor is: runs without the store, and
    ticks that did not run meanwhile. The cursor moves to `to` unless it is behind that; without
    `seen` it stays."""


class Advanced(Struct, frozen=True, kw_only=True):
    """The answer to a move.

    done: it happened. skipped: the cursor has moved, the run was not made; `reason` says why.
    Nothing has changed otherwise - held: there is no room now (or the replica has expired), try
    again. passed: another replica has moved the cursor, or another definition rules. early: try
    again in `ready_in` seconds. gone: there is no such replica. unknown: nor such a schedule.
    """

    outcome: Moved
    cursor: int = 0
    """Where it is now."""
    ruler: str = ""
    """The definition that rules, and its revision."""
    revision: int = 0
    last_run: int = 0
    now: int
    reason: str = ""
    ready_in: float = 0.0
    run: JobRecord | None = None
    blocking: tuple[str, ...] = ()
    """If it is held: runs that have to be cancelled first."""


class Move(Struct, frozen=True, kw_only=True):
    """A move as it is sent to the store."""

    commit: Commit
    is_paused: bool = False
    """Whether the run was left out, because ticks are paused."""
    bounds: tuple[Bound, ...] = ()
    """What the rooms of the commit stand for."""


def advance(
    move: Advance,
    found: Found | None,
    everything: Found | None,
    *,
    last: JobRecord | None = None,
    now: int = 0,
) -> Move | Advanced:
    """Decide about a move: what to commit, or why nothing happens.

    `found` is what is known of the schedule, `everything` of the freeze of all, `last` is the last
    run if `move.rest` counts from its end. All of it may be out of date: the commit says so then.
    """
    standing = None if found is None else read_standing(found.standing)
    if found is None or standing is None:
        return Advanced(outcome="unknown", now=now)
    if _has_passed(move, found, standing):
        return _answer("passed", found, standing, now)
    not_before = move.due
    if move.run is not None and move.rest and last is not None:
        if last.state not in FINISHED:
            return _answer("held", found, standing, now, reason="running")
        if not now or not seconds_ahead(last.finished, now):  # else the clock was wrong then
            not_before = max(not_before, last.finished + micros(move.rest))
    commit = Commit(
        id=move.id,
        name=move.name,
        expects=(Expected(move.name, found.version),),
        writes=_writes(move, found, standing),
        declares=not move.forced,
        not_before=not_before,
        lines=tuple(line_of(decision) for decision in _to_record(move, standing)),
    )
    if move.run is None:
        return Move(commit=commit)
    if not move.forced:
        version = "" if everything is None else everything.version
        commit = replace(commit, expects=(*commit.expects, Expected(EVERYTHING, version)))
        if is_frozen(move.to, found, everything):
            lines = (*commit.lines, _skip_line(move, "paused"))
            return Move(commit=replace(commit, lines=lines), is_paused=True)
    return _with_run(move, commit)


def outcome_of(move: Advance, sent: Move, answer: Committed, found: Found) -> Advanced | None:
    """Return what came of a move; None if it has to be decided again, on what `answer` found.

    `found` is how the schedule stands now, as far as it is known.
    """
    standing = read_standing(found.standing) or Standing(cursor=0)
    now = answer.now
    match answer.outcome:
        case "done":
            outcome = _carried_out(sent, found, standing, now, run=answer.run)
        case "stale":
            return _repeated(move, sent, found, standing, now)
        case "instead":
            reason = sent.bounds[answer.room].reason
            outcome = _answer("skipped", found, standing, now, reason=reason)
        case "full":
            bound = sent.bounds[answer.room]
            outcome = _answer("held", found, standing, now, reason=bound.reason)
            if bound.full == "cancel":
                outcome = replace(outcome, blocking=answer.blocking)
        case "early":
            ready_in = (sent.commit.not_before - now) / 1e6
            outcome = _answer("early", found, standing, now, ready_in=ready_in)
        case "gone":
            outcome = _answer("gone", found, standing, now)
        case _:
            outcome = _answer("held", found, standing, now, reason="expired")
    return outcome


def after_commit(sent: Commit, answer: Committed, found: Found) -> Found:
    """Return how the schedule of a commit stands after it, as far as that is known here."""
    if answer.outcome == "stale":
        return next((news for news in answer.found if news.name == sent.name), found)
    if answer.outcome not in {"done", "instead"}:
        return found
    version, standing, ruler = found.version, found.standing, found.ruler
    for write in sent.writes:
        if write.name == sent.name and write.standing is not None:
            version, standing, ruler = sent.id, write.standing, write.ruler
    last_run, last_job = found.last_run, found.last_job
    if answer.outcome == "done" and sent.run is not None:
        last_run, last_job = sent.tick, sent.run.id
    return Found(sent.name, version, standing, ruler, last_run, last_job)


def _has_passed(move: Advance, found: Found, standing: Standing) -> bool:
    if (move.ruler, move.revision) != (found.ruler, standing.revision):
        return True
    if standing.successor or not standing.is_ours:
        return True
    if move.records:
        return False
    return move.seen is not None and not move.seen == standing.cursor <= move.to


def _to_record(move: Advance, standing: Standing) -> Iterable[Decision]:
    """Return the decisions to record.

    Of ticks that did not run in an outage only those about which no other replica has decided:
    every replica missed the same ones.
    """
    for decision in move.passed:
        is_decided = move.records and move.seen is not None and decision.last <= standing.cursor
        if decision.outcome == "ran" or not is_decided:
            yield decision


def _writes(move: Advance, found: Found, standing: Standing) -> tuple[Write, ...]:
    """Return the new standing: a move of the cursor, or a trigger, which others must notice.

    A replica's own ticks write nothing: a hundred replicas would only refuse one another. A record
    always writes, once for an outage: its id in the document is how a repeat is recognised.
    """
    if move.seen is None and not (move.forced or move.records):
        return ()
    ran = standing.ran if standing.ran > found.last_run else 0
    if move.records:
        ran = max([ran, *(one.last for one in move.passed if one.outcome == "ran")])
    cursor = standing.cursor if move.seen is None else max(standing.cursor, move.to)
    text = write_document(replace(standing, cursor=cursor, ran=ran))
    return (Write(move.name, text, ruler=found.ruler),)


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
    move: Advance, sent: Move, found: Found, standing: Standing, now: int
) -> Advanced | None:
    """Return what came of a move that was carried out before, and whose reply was lost.

    Its run would have been found, so it is over and pruned, or there was none: it was left out, or
    a room was full. Only a bound over all runs skips a tick that writes.
    """
    if found.version != move.id:
        return None
    if sent.commit.run is None or found.last_job == move.id:
        return _carried_out(sent, found, standing, now)
    reason = next((bound.reason for bound in sent.bounds if bound.full == "skip"), "paused")
    return _answer("skipped", found, standing, now, reason=reason)


def _carried_out(
    sent: Move, found: Found, standing: Standing, now: int, run: JobRecord | None = None
) -> Advanced:
    if sent.is_paused:
        return _answer("skipped", found, standing, now, reason="paused")
    return replace(_answer("done", found, standing, now), run=run)


def _answer(
    outcome: Moved,
    found: Found,
    standing: Standing,
    now: int,
    *,
    reason: str = "",
    ready_in: float = 0.0,
) -> Advanced:
    return Advanced(
        outcome=outcome,
        cursor=standing.cursor,
        # As with another definition: this release has to leave it alone.
        ruler=found.ruler if standing.is_ours and not standing.successor else "",
        revision=standing.revision,
        last_run=max(found.last_run, standing.ran),
        now=now,
        reason=reason,
        ready_in=ready_in,
    )
