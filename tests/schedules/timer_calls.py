"""From a step of a program about timers to the call that a ticker or operator would make."""

from collections.abc import Sequence
from itertools import count
from typing import Any

from tenure.core.durations import micros
from tenure.core.records import JobRecord
from tenure.core.schedules import (
    DECLARED_FOR,
    EVERYTHING,
    Advance,
    Advanced,
    Planted,
    ScheduleRecord,
)
from tenure.testing import ManualClock
from tests.contract.job_calls import id_of
from tests.model.schedule_pair import FIRST_RUN, lengths_of, move, planting
from tests.schedules.spec import Call


class TimerCalls:
    """What tickers know: where cursors were when they last looked."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        # Instants at which something ends, unless it is renewed.
        self.ends: set[int] = set()
        self._run_numbers = count(FIRST_RUN)
        self._moves: list[Advance] = []
        self._known: dict[str, tuple[int, int]] = {}
        self._first_cursors: dict[str, int] = {}
        self.names: set[str] = set()
        self.runs: list[str] = []

    def timer_looks(self) -> list[Call]:
        """Return the calls that show all there is about timers."""
        looks = [Call("schedules"), Call("schedules", ([EVERYTHING],))]
        return looks + [Call("decisions", (name,)) for name in sorted(self.names)]

    def learn_of_timers(self, call: Call, answer: object) -> list[JobRecord]:
        """Remember where cursors are; return the run that was born running, if one was."""
        if isinstance(answer, Advanced):
            self._know(call.arguments[0].name, answer.revision, answer.cursor)
            if answer.run is not None and answer.run.state == "running":
                return [answer.run]
        elif call.name in ("plant", "schedules") and isinstance(answer, list):
            names = [one.name for one in (call.arguments[0] if call.name == "plant" else answer)]
            for name, one in zip(names, answer, strict=True):
                assert isinstance(one, Planted | ScheduleRecord)
                self._know(name, one.revision, one.cursor)
        return []

    def _know(self, name: str, revision: int, cursor: int) -> None:
        self._first_cursors.setdefault(name, cursor)
        if revision:  # who is told 0 may not move it, and does not try
            self._known[name] = (revision, cursor)

    def _ends_after(self, *lengths: float) -> None:
        self.ends.update(self._clock.wall() + micros(length) for length in lengths)

    def _plant(self, schedules: Sequence[dict[str, Any]]) -> Call:
        self._ends_after(DECLARED_FOR)
        self.names.update(one["name"] for one in schedules)
        return Call("plant", ([planting(**one) for one in schedules],))

    def _advance(self, name: str, **details: Any) -> Call:
        revision, cursor = self._known.get(name, (1, 0))
        before = self._first_cursors.get(name, 0)
        number = next(self._run_numbers)
        cursors = {"here": cursor, "before": before}
        made = move(name, number, self._clock.wall(), revision, cursors, **details)
        self._ends_after(*lengths_of(details))
        self._moves.append(made)
        if made.run is not None:
            self.runs.append(id_of(number))
        return Call("advance", (made,))

    def _advance_again(self, which: int) -> Call | None:
        return (
            Call("advance", (self._moves[-1 - which % len(self._moves)],)) if self._moves else None
        )

    def _freeze(self, name: str, until_in: float | None, reason: str) -> Call:
        self._ends_after(until_in or 0.0)
        until = None if until_in is None else self._clock.wall() + micros(until_in)
        return Call("freeze", (name,), {"until": until, "reason": reason})

    def _thaw(self, name: str) -> Call:
        return Call("thaw", (name,))

    def _prune_schedules(self, idle: float) -> Call:
        return Call("prune_schedules", (), {"idle": idle})

    def _look_for(self, names: Sequence[str] | None, limit: int) -> Call:
        return Call("schedules", (names,), {"limit": limit})

    def _cancel_run(self, which: int, reason: str) -> Call | None:
        if not self.runs:
            return None
        return Call("cancel", ([self.runs[-1 - which % len(self.runs)]],), {"reason": reason})

    def _requeue_run(self, which: int) -> Call | None:
        return Call("requeue", ([self.runs[-1 - which % len(self.runs)]],)) if self.runs else None
