"""Two stores under one clock that are asked the same about schedules, and compared after each step.

Runs are jobs, so all that is done with jobs is done with runs as well.
"""

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import pytest

from tenure.core.clock import Clock
from tenure.core.durations import micros
from tenure.core.records import NewJob
from tenure.core.schedules import (
    DECLARED_FOR,
    EVERYTHING,
    Advance,
    Advanced,
    Bound,
    Decision,
    Planting,
)
from tenure.stores.contract import Store
from tests.contract.job_calls import id_of
from tests.model.job_pair import JobPair, equal
from tests.model.pair import CLOSE

FIRST_RUN = 1000  # ordinary jobs have smaller numbers


class SchedulePair(JobPair):
    """A memory store, which is right by definition, and another one."""

    def __init__(self, connect_to: Callable[[Clock], Store]) -> None:
        super().__init__(connect_to)
        self._run_numbers = count(FIRST_RUN)
        self._moves: list[Advance] = []
        self._cursors: list[int] = []
        self.answers: list[Advanced] = []
        """What the specification said."""

    # Steps. What refers to something that is not there yet does nothing.

    def plant(self, schedules: Sequence[dict[str, Any]]) -> None:
        self._ends_after(DECLARED_FOR)
        plantings = [planting(**one) for one in schedules]
        self._same(lambda store: store.plant(plantings))

    def advance(self, name: str, **details: Any) -> None:
        """Move a cursor from where it is; `details` say in which way it may go wrong."""
        self._advance(self._move(name, **details))

    def advance_again(self, which: int) -> None:
        if self._moves:
            self._advance(self._moves[-1 - which % len(self._moves)])

    def freeze(self, name: str, until_in: float | None, reason: str) -> None:
        self._ends_after(until_in or 0.0)
        until = None if until_in is None else self._clock.wall() + micros(until_in)
        self._same(lambda store: store.freeze(name, until=until, reason=reason))

    def thaw(self, name: str) -> None:
        self._same(lambda store: store.thaw(name))

    def prune_schedules(self, idle: float) -> None:
        self._same(lambda store: store.prune_schedules(idle=idle))

    def look_for(self, names: Sequence[str] | None, limit: int) -> None:
        self._same(lambda store: store.schedules(names, limit=limit))
        for name in names or ():
            self._same(lambda store, name=name: store.decisions(name, limit=limit))

    def cancel_run(self, which: int, reason: str) -> None:
        if ids := self._recent_run(which):
            self._same(lambda store: store.cancel(ids, reason=reason))

    def requeue_run(self, which: int) -> None:
        if ids := self._recent_run(which):
            self._same(lambda store: store.requeue(ids))

    # What is looked at after every step.

    def look(self, prefix: str = "", limit: int = 1000) -> None:
        super().look(prefix, limit)
        self._same(lambda store: store.schedules([EVERYTHING]))
        ours, theirs = self._both(lambda store: store.schedules())
        equal([one.name for one in theirs], [one.name for one in ours])
        for one, two in zip(ours, theirs, strict=True):
            equal(two, one, f"the schedule {one.name}")
            self._same(lambda store, name=one.name: store.decisions(name))

    # How they are asked.

    def _advance(self, move: Advance) -> None:
        ours, theirs = self._both(lambda store: store.advance(move))
        self._moves.append(move)
        self.answers.append(ours)
        for field in ("outcome", "cursor", "revision", "last_run", "now", "reason"):
            equal(getattr(theirs, field), getattr(ours, field), field)
        assert theirs.ready_in == pytest.approx(ours.ready_in, abs=CLOSE), "ready_in"
        if ours.run is None or theirs.run is None or move.run is None:
            equal(theirs.run, ours.run, "the run")
            return
        self._inserted[ours.run.id] = move.run
        self._compare_records(ours.run, theirs.run)
        if ours.run.state == "running":
            self._claimed.append((ours.run, theirs.run))

    def _recent_run(self, which: int) -> list[str]:
        runs = [job.id for job in self._inserted.values() if job.schedule]
        return [runs[-1 - which % len(runs)]] if runs else []

    def _move(self, name: str, **details: Any) -> Advance:
        """Return a move; it is planned from what the specification says now, or said before."""
        known = self._run(self._spec.schedules([name]))
        revision, cursor = (known[0].revision, known[0].cursor) if known else (1, 0)
        self._cursors.append(cursor)
        self._ends_after(*lengths_of(details))
        cursors = {"here": cursor, "before": self._cursors[0]}
        return move(name, next(self._run_numbers), self._clock.wall(), revision, cursors, **details)


def move(
    name: str,
    number: int,
    now: int,
    revision: int,
    cursors: dict[str, int],
    *,
    to_in: float,
    due_in: float,
    seen: str,
    behind: int,
    run: dict[str, Any] | None,
    limit: tuple[int, str, Any] | None,
    own: tuple[int, str, Any] | None,
    passed: Sequence[tuple[Any, str, int]],
    **details: Any,
) -> Advance:
    """Return the move of a step, planned from where the cursor is, or was."""
    to = max(cursors["here"] + 1, now + micros(to_in))
    return Advance(
        id=id_of(number),
        name=name,
        revision=revision - behind,
        seen=cursors.get(seen),
        to=to,
        due=now + micros(due_in),
        run=None if run is None else NewJob(id=id_of(number), schedule=name, **run),
        limit=_bound(limit),
        own=_bound(own),
        passed=tuple(
            Decision(outcome=outcome, reason=reason, first=to - ticks, last=to - 1, ticks=ticks)
            for outcome, reason, ticks in passed
        ),
        **details,
    )


def lengths_of(details: dict[str, Any]) -> tuple[float, ...]:
    """Return after how many seconds something about a move may end."""
    return details["due_in"], details["rest"], (details["run"] or {}).get("timeout") or 0.0


def _bound(given: tuple[int, str, Any] | None) -> Bound | None:
    if given is None:
        return None
    most, reason, full = given
    return Bound(most=most, reason=reason, full=full)


def planting(digest: str, **details: Any) -> Planting:
    calendar = {"a": "same", "b": "same"}.get(digest, "other")
    return Planting(digest=digest, calendar=calendar, definition=b"\0" + digest.encode(), **details)
