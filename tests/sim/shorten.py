"""Finds the smallest plan of a failing seed that still fails, and the command that replays it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from tests.sim.plan import Plan
from tests.sim.runner import planned, run

__all__ = ["Replay", "fails", "interpreter", "shorten"]

_RUNS_MAX = 80


class Replay(Struct, frozen=True, kw_only=True):
    """A seed, and the faults that are left out of its plan."""

    scenario: str
    seed: int
    without: tuple[str, ...] = ()
    """Kinds of faults."""
    dropped: tuple[int, ...] = ()
    """Events, by their numbers."""
    until: float | None = None

    @property
    def plan(self) -> Plan:
        whole = planned(self.seed, self.scenario)
        kept = {event.number for event in whole.events}.difference(self.dropped)
        plan = whole.only(kept).without(self.without)
        return plan if self.until is None else plan.until(self.until)

    @property
    def command(self) -> str:
        """The shell command that replays it."""
        words = f"{interpreter()} -m tests.sim"
        words += f" --scenario {self.scenario} --seed {self.seed}"
        if self.without:
            words += f" --without '{','.join(self.without)}'"
        if self.dropped:
            words += f" --drop {','.join(map(str, self.dropped))}"
        return words if self.until is None else f"{words} --until {self.until:g}"


def interpreter() -> str:
    """Return the command of this Python: a relative path if it is below the present folder."""
    path, here = Path(sys.executable), Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else "python"


def fails(cut: Replay) -> bool:
    """Return whether a run has violations."""
    return bool(run(cut.plan).wrong)


def shorten(cut: Replay, is_bad: Callable[[Replay], bool] = fails) -> Replay:
    """Leave out what a failing run does not need: kinds of faults, single events, its last part."""
    runs = 0

    def still_fails(smaller: Replay) -> bool:
        nonlocal runs
        runs += 1
        return runs <= _RUNS_MAX and is_bad(smaller)

    for fault in cut.plan.faults:
        smaller = replace(cut, without=(*cut.without, fault))
        cut = smaller if still_fails(smaller) else cut
    events = planned(cut.seed, cut.scenario).events
    for event in events:
        if event.what not in cut.without and event.number not in cut.dropped:
            smaller = replace(cut, dropped=(*cut.dropped, event.number))
            cut = smaller if still_fails(smaller) else cut
    for share in (0.2, 0.4, 0.6, 0.8):
        smaller = replace(cut, until=round(share * cut.plan.horizon, 3))
        if still_fails(smaller):
            return smaller
    return cut
