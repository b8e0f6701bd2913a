"""Two stores under one clock, each with two replicas that register, tick, freeze and forget.

These are the calls of `Scheduling`: what Tenure builds on the calls of the contract. Each replica
knows what it has heard itself, so what it decides from may be out of date. The documents, and their
versions, must be the same on both stores.
"""

from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from typing import Any, TypeVar

import pytest
from msgspec.structs import replace

from tenure.core.clock import Clock
from tenure.core.durations import micros
from tenure.core.jobs.records import NewJob
from tenure.core.schedules.documents import (
    DECLARED_FOR,
    Decision,
    decision_in,
    read_schedule,
)
from tenure.core.schedules.registration import Registration
from tenure.core.schedules.ticks import Advance, Advanced, Bound
from tenure.errors import StoreUnavailable
from tenure.runtime.timers.scheduling import Scheduling
from tenure.stores.contract import Store
from tenure.testing import Faults, FaultyStore
from tests.contract.job_calls import id_of
from tests.model.job_pair import equal
from tests.model.pair import CLOSE
from tests.model.schedule_pair import RunPair

T = TypeVar("T")

HANDS = 2  # replicas of each store
NEVER = 2**62
_FIRST_ID = 100_000  # of commits without a run
_HEARD_OF = ("outcome", "cursor", "ruler", "revision", "last_run", "now", "reason")


class SchedulingPair(RunPair):
    """A memory store, which is right by definition, and another one, with the same replicas."""

    def __init__(self, connect_to: Callable[[Clock], Store]) -> None:
        super().__init__(connect_to)
        self._hands = {store: [Hand(store, n) for n in range(HANDS)] for store in self._stores}
        self._moves: list[tuple[int, Advance]] = []
        self._cursors: list[int] = []
        self.answers: list[Advanced] = []
        """The answers of the specification."""
        self.lost = 0
        """The number of lost replies."""

    @property
    def _stores(self) -> tuple[Store, Store]:
        return self._spec, self._other

    # Steps. A step that refers to something that does not exist yet does nothing.

    def register(self, by: int, schedules: Sequence[dict[str, Any]], lost: str = "") -> None:
        self._ends_after(DECLARED_FOR)
        registrations = list(
            {fields["name"]: registration(**fields) for fields in schedules}.values()
        )
        self._same_by(by, lambda hand: hand.register(registrations), lost)

    def declare(self, by: int, rulers: Sequence[tuple[str, str]]) -> None:
        self._ends_after(DECLARED_FOR)
        ours, theirs = self._both_by(by, lambda hand: hand.declare(rulers))
        equal(sorted(theirs or []), sorted(ours or []))

    def advance(self, by: int, name: str, lost: str, **details: Any) -> None:
        """Move a cursor from where it is; `details` say in which way it may go wrong."""
        self._advance(by, self._move(name, **details), lost)

    def advance_again(self, which: int, *, is_asked_only: bool, by_another: bool) -> None:
        """Repeat a move whose answer may be lost, as tickers do, or only ask for its result."""
        if not self._moves:
            return
        by, move = self._moves[-1 - which % len(self._moves)]
        due = NEVER if is_asked_only else move.due
        self._advance((by + by_another) % HANDS, replace(move, due=due), "")

    def freeze(self, by: int, name: str, until_in: float | None, reason: str, lost: str) -> None:
        self._ends_after(until_in or 0.0)
        until = None if until_in is None else self._clock.wall() + micros(until_in)
        self._same_by(by, lambda hand: hand.freeze(name, until=until, reason=reason), lost)

    def thaw(self, by: int, name: str, lost: str) -> None:
        self._same_by(by, lambda hand: hand.thaw(name), lost)

    def reset(self, by: int, name: str, lost: str) -> None:
        self._same_by(by, lambda hand: hand.reset(name), lost)

    def forget(self, by: int, idle: float, lost: str) -> None:
        self._same_by(by, lambda hand: hand.forget(idle=idle), lost)

    # Comparisons after every step.

    def look(self, prefix: str = "", limit: int = 1000) -> None:
        super().look(prefix, limit)
        # Every document can be read back.
        for store in self._stores:
            for record in self._run(store.schedules.read()).records:
                assert read_schedule(record) is not None, record
                assert record.latest is None or decision_in(record.latest) is not None
            assert not [*store.damage]

    # Calls on both stores.

    def _advance(self, by: int, move: Advance, lost: str) -> None:
        ours, theirs = self._both_by(by, lambda hand: hand.advance(move), lost)
        if (by, move) not in self._moves:
            self._moves.append((by, move))
        if move.run is not None:
            self._inserted[move.id] = move.run
        if ours is None or theirs is None:
            equal(theirs, ours)
            return
        self.answers.append(ours)
        for field in _HEARD_OF:
            equal(getattr(theirs, field), getattr(ours, field), field)
        equal(sorted(theirs.blocking), sorted(ours.blocking), "blocking")
        assert theirs.ready_in == pytest.approx(ours.ready_in, abs=CLOSE), "ready_in"
        if ours.run is None or theirs.run is None:
            equal(theirs.run, ours.run, "the run")
            return
        self._compare_records(ours.run, theirs.run)
        if ours.run.state == "running":
            self._claimed.append((ours.run, theirs.run))

    def _same_by(self, by: int, call: Callable[[Scheduling], Awaitable[T]], lost: str) -> None:
        ours, theirs = self._both_by(by, call, lost)
        equal(theirs, ours)

    def _both_by(
        self, by: int, call: Callable[[Scheduling], Awaitable[T]], lost: str = ""
    ) -> tuple[T | None, T | None]:
        """Let the same replica of both stores make a call; None: there was no answer."""
        ours, theirs = [self._run(self._hands[store][by].do(call, lost)) for store in self._stores]
        self.lost += ours is None
        return ours, theirs

    def _move(self, name: str, **details: Any) -> Advance:
        """Return a move, planned from a current or an earlier answer of the specification."""
        schedules = [
            read_schedule(record) for record in self._run(self._spec.schedules.read([name])).records
        ]
        schedule = schedules[0] if schedules else None
        rules, cursor = ("a", 1), 0
        if schedule is not None:
            rules = schedule.record.ruler, schedule.standing.revision
            cursor = schedule.standing.cursor
        self._cursors.append(cursor)
        self._ends_after(*lengths_of(details))
        cursors = {"here": cursor, "before": self._cursors[0]}
        return moved(name, next(self._run_numbers), self._clock.wall(), rules, cursors, **details)


class Hand:
    """A replica that registers and ticks on a store, and may lose its answers."""

    def __init__(self, store: Store, number: int) -> None:
        self._faults = Faults()
        self._scheduling = Scheduling(FaultyStore(store, self._faults))
        # The same ids on both stores, so that versions compare.
        self._scheduling._ids = Ids(_FIRST_ID * (number + 1))  # type: ignore[assignment]

    async def do(self, call: Callable[[Scheduling], Awaitable[T]], lost: str) -> T | None:
        """Make a call. `lost` names what is lost of its first commit, if it makes one, and then
        maybe "again": the call is repeated at once.
        """
        if lost.startswith("request"):
            self._faults.lose_request("commit")
        elif lost.startswith("reply"):
            self._faults.lose_reply("commit")
        try:
            return await call(self._scheduling)
        except StoreUnavailable:
            return await call(self._scheduling) if lost.endswith("again") else None
        finally:
            self._faults.heal()


class Ids:
    """Makes ids in a row."""

    def __init__(self, first: int) -> None:
        self._numbers = count(first)

    def make(self) -> str:
        return id_of(next(self._numbers))


def moved(
    name: str,
    number: int,
    now: int,
    rules: tuple[str, int],
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
    ruler, revision = rules
    to = max(cursors["here"] + 1, now + micros(to_in))
    return Advance(
        id=id_of(number),
        name=name,
        ruler=ruler,
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
    """Return the durations after which something about a move may end."""
    return details["due_in"], details["rest"], (details["run"] or {}).get("timeout") or 0.0


def registration(digest: str, **details: Any) -> Registration:
    calendar = {"a": "same", "b": "same"}.get(digest, "other")
    definition = f'{{"is":"{digest}"}}'.encode()
    return Registration(digest=digest, calendar=calendar, definition=definition, **details)


def _bound(bound: tuple[int, str, Any] | None) -> Bound | None:
    if bound is None:
        return None
    most, reason, full = bound
    return Bound(most=most, reason=reason, full=full)
