"""Moving the cursors of schedules in SQLite, and making their runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from tenure.core.durations import micros
from tenure.core.records import JobRecord, NewJob
from tenure.core.schedules import (
    DECISIONS_MAX,
    EVERYTHING,
    Advance,
    Advanced,
    Bound,
    Decision,
    Moved,
)
from tenure.core.soundness import sound
from tenure.stores.sqlite import job_statements as job_sql
from tenure.stores.sqlite import schedule_statements as sql
from tenure.stores.sqlite.inserting import store
from tenure.stores.sqlite.jobs import cancel
from tenure.stores.sqlite.looking import get
from tenure.stores.sqlite.transaction import Row, Transaction, as_json

__all__ = ["advance", "as_decision"]


class _Schedule(NamedTuple):
    """A schedule as a move finds it."""

    revision: int = 0
    cursor: int = 0
    last_run: int = 0
    last_job: str = ""
    last_fence: int = 0
    moved_by: str = ""
    outcome: Moved = "unknown"
    reason: str = ""
    successor: str = ""


# What a move finds where there is no schedule.
_NONE = _Schedule()


def advance(tx: Transaction, move: Advance) -> Advanced:
    """Move a cursor and make the run, or say why not.

    The transaction has the write lock from its beginning: nothing changes between what is looked at
    here and what is written.
    """
    return _Step(tx, move).take()


class _Step:
    """One move of a schedule's cursor."""

    def __init__(self, tx: Transaction, move: Advance) -> None:
        self._tx = tx
        self._move = move
        row = tx.row(sql.TO_MOVE, name=move.name)
        self._schedule = _NONE if row is None else _Schedule._make(row)
        self._holder: int | None = None
        """The number of the replica on which the run is born."""

    def take(self) -> Advanced:
        return (
            self._repeated()
            or self._refused()
            or self._without_a_place()
            or self._resting()
            or self._skipped()
            or self._done()
        )

    def _repeated(self) -> Advanced | None:
        move, schedule = self._move, self._schedule
        if move.run is not None:
            (job,) = get(self._tx, [move.id])
            if job is not None:
                return self._answer("done", run=job)
        if schedule.moved_by == move.id:
            return self._answer(schedule.outcome, schedule.reason)
        return None

    def _refused(self) -> Advanced | None:
        move, schedule = self._move, self._schedule
        if schedule is _NONE:
            return self._answer("unknown")
        if move.revision != schedule.revision or schedule.successor:
            return self._answer("passed")
        if move.seen is not None and not move.seen == schedule.cursor <= move.to:
            return self._answer("passed")
        if move.due > self._tx.wall:
            return self._early(move.due)
        return None

    def _without_a_place(self) -> Advanced | None:
        move = self._move
        if move.run is None or not move.replica:
            return None
        record = self._tx.row(job_sql.REPLICA, replica=move.replica)
        if record is None:
            return self._answer("gone")
        self._holder, _, lives = record
        return None if lives else self._answer("held", "expired")

    def _resting(self) -> Advanced | None:
        move = self._move
        if move.run is None or not move.rest:
            return None
        last = self._tx.row(sql.LAST_RUN, id=self._schedule.last_job)
        if last is None:
            return None
        unfinished, finished = last
        if unfinished:
            return self._answer("held", "running")
        ready = finished + micros(move.rest)
        return self._early(ready) if ready > self._tx.wall else None

    def _skipped(self) -> Advanced | None:
        move = self._move
        if move.run is None:
            return None
        if not move.forced and self._is_frozen():
            return self._skip("paused")
        if move.limit is not None and self._is_full(sql.COUNT_RUNS, move.limit):
            return self._full(sql.RUNS, move.limit)
        if move.own is not None and self._is_full(sql.COUNT_OWN_RUNS, move.own):
            return self._full(sql.OWN_RUNS, move.own)
        return None

    def _is_frozen(self) -> bool:
        move = self._move
        return (
            self._tx.row(sql.FROZEN, name=move.name, everything=EVERYTHING, tick=move.to)
            is not None
        )

    def _is_full(self, count: str, bound: Bound) -> bool:
        ((runs,),) = self._tx.rows(
            count, name=self._move.name, holder=self._holder, limit=bound.most
        )
        return bool(runs >= bound.most)

    def _full(self, runs: str, bound: Bound) -> Advanced:
        if bound.full == "skip":
            return self._skip(bound.reason)
        if bound.full == "cancel":
            found = self._tx.rows(runs, name=self._move.name, holder=self._holder)
            cancel(self._tx, [id_ for (id_,) in found], bound.reason)
        return self._answer("held", bound.reason)

    def _skip(self, reason: str) -> Advanced:
        to = self._move.to
        self._write("skipped", reason)
        self._remember(Decision(outcome="skipped", reason=reason, first=to, last=to))
        return self._answer("skipped", reason)

    def _done(self) -> Advanced:
        move = self._move
        self._write("done")
        if move.run is None:
            self._remember()
            return self._answer("done")
        self._remember(
            Decision(
                outcome="ran",
                reason="triggered" if move.forced else "",
                first=move.to,
                last=move.to,
                job=move.run.id,
                replica=move.replica,
            )
        )
        return self._answer("done", run=self._born(move.run))

    def _born(self, run: NewJob) -> JobRecord:
        tx, holder = self._tx, self._holder
        due = tx.wall if holder is None else self._move.due
        number = store(tx, [replace(run, at=due)], quietly=holder is not None)
        if holder is not None:
            # No claim has this number: to repeat the last one does not return it.
            start = {"holder": holder, "claim_no": 0, "least": self._schedule.last_fence}
            tx.change(job_sql.START, numbers=as_json([number]), **start)
        (born,) = get(tx, [run.id])
        assert born is not None
        return born

    def _write(self, outcome: Moved, reason: str = "") -> None:
        """Write down where the cursor is, and what this very move came to."""
        move = self._move
        now = self._schedule
        if move.seen is not None:
            now = now._replace(cursor=move.to)
        if outcome == "done" and move.run is not None:
            now = now._replace(last_run=move.to, last_job=move.run.id)
            if self._holder is not None:
                now = now._replace(last_fence=max(now.last_fence + 1, self._tx.wall))
        self._schedule = now
        self._tx.change(
            sql.MOVE,
            name=move.name,
            cursor=now.cursor,
            last_run=now.last_run,
            last_job=now.last_job,
            last_fence=now.last_fence,
            forced=move.forced,
            id=move.id,
            outcome=outcome,
            reason=reason,
        )

    def _remember(self, *decisions: Decision) -> None:
        """Add what became of ticks; like joins like, and the oldest are forgotten."""
        given = [*self._move.passed, *decisions]
        if not given:
            return
        tx, name = self._tx, self._move.name
        newest = tx.row(sql.DECISIONS, name=name, limit=1)
        first = 1 if newest is None else newest[0]
        # What cannot be read is replaced.
        before = [] if newest is None or not newest[-1] else [as_decision(newest)]
        now = _merged([*before, *(replace(one, at=tx.wall) for one in given)])
        last = first + len(now) - 1
        tx.change_each(
            sql.WRITE_DECISION,
            [
                (tx.namespace, name, number, *_values(one))
                for number, one in enumerate(now, first)
                if number > last - DECISIONS_MAX and not (before and one is before[0])
            ],
        )
        if last > DECISIONS_MAX:
            tx.change(sql.FORGET_DECISIONS, name=name, number=last - DECISIONS_MAX)

    def _early(self, ready: int) -> Advanced:
        return self._answer("early", ready_in=(ready - self._tx.wall) / 1e6)

    def _answer(
        self,
        outcome: Moved,
        reason: str = "",
        *,
        ready_in: float = 0.0,
        run: JobRecord | None = None,
    ) -> Advanced:
        return Advanced(
            outcome=outcome,
            cursor=self._schedule.cursor,
            revision=self._schedule.revision,
            last_run=self._schedule.last_run,
            now=self._tx.wall,
            reason=reason,
            ready_in=ready_in,
            run=run,
        )


def _merged(decisions: Sequence[Decision]) -> list[Decision]:
    """Return them, oldest first, with each that is like the one before it joined to that."""
    merged: list[Decision] = []
    for one in decisions:
        last = merged[-1] if merged else None
        if last is not None and _are_alike(last, one):
            merged[-1] = replace(last, last=one.last, at=one.at, ticks=last.ticks + one.ticks)
        else:
            merged.append(one)
    return merged


def _are_alike(one: Decision, other: Decision) -> bool:
    return one.outcome != "ran" and (one.outcome, one.reason) == (other.outcome, other.reason)


def _values(one: Decision) -> Row:
    return (
        *(one.outcome, one.reason, one.first, one.last, one.ticks),
        *(one.at, one.job, one.replica),
    )


def as_decision(row: Row) -> Decision:
    """Return a decision from the columns that DECISIONS names. Raises ValueError if it is none."""
    _, outcome, reason, first, last, ticks, at, job, replica, *_ = row
    return sound(
        Decision,
        {
            "outcome": outcome,
            "reason": reason,
            "first": first,
            "last": last,
            "ticks": ticks,
            "at": at,
            "job": job,
            "replica": replica,
        },
    )
