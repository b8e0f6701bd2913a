"""Checks operators' actions: pauses begin and end as requested, and cursors are reset."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from tenure.core.durations import micros
from tests.sim.checks.rulers import Rulers
from tests.sim.checks.runs import Report
from tests.sim.commit_entries import EVERYTHING, FOR_EVER
from tests.sim.history import Entry

__all__ = ["Pauses"]


@dataclass(eq=False, slots=True)
class Pauses:
    """What was asked for, and came of it."""

    rulers: Rulers
    report: Report
    requests: defaultdict[tuple[str, str, str], set[float]] = field(
        default_factory=lambda: defaultdict(set)
    )
    """For how many seconds each process has asked for what, by the name of the timer."""

    def operates(self, entry: Entry) -> None:
        """Take note of what a process is about to ask for."""
        self.requests[entry.by, entry.detail, entry.key].add(entry.seconds)

    def frozen(self, entry: Entry) -> None:
        """See to it that a pause lasts as long as was asked for."""
        looks = self.rulers.instants_told(entry.holder)
        lengths = self.requests[entry.holder, "pause", entry.key]
        right = {look + micros(length) for look in looks for length in lengths if length}
        if entry.tick not in (right | {FOR_EVER} if 0.0 in lengths else right):
            self.report(entry, f"a pause of {sorted(lengths)} s was asked for")
        self._set(entry, entry.tick)

    def thawed(self, entry: Entry) -> None:
        """See to it that a pause ends when that was asked for, and not before."""
        is_asked = bool(self.requests[entry.holder, "resume", entry.key])
        if not is_asked or entry.tick not in self.rulers.instants_told(entry.holder, entry.key):
            self.report(entry, "nobody has asked for this end of a pause")
        self._set(entry, entry.tick)

    def _set(self, entry: Entry, until: int) -> None:
        self.rulers.mark_written(entry.key)
        if entry.key == EVERYTHING:
            self.rulers.stored.all_frozen_until = until
        # A name that was taken over can be frozen as well; its ticks are another's.
        elif (ruling := self.rulers.ruler_of(entry.key)) is not None:
            ruling[0].frozen_until = until

    def reset(self, entry: Entry) -> None:
        """See to it that a cursor only goes back from the future, and to the present."""
        looks = self.rulers.instants_told(entry.holder, entry.key)
        is_asked = bool(self.requests[entry.holder, "reset", entry.key])
        if not is_asked or entry.tick not in looks or entry.tick >= entry.seen:
            self.report(entry, "nobody has asked for this cursor")
        self.rulers.mark_written(entry.key)
        timer = self.rulers.stored.timers.get(entry.key)
        if timer is None or timer.names[entry.key].cursor != entry.seen:
            self.report(entry, "the cursor was elsewhere")
            return
        self.rulers.counts["resets"] += 1
        timer.names[entry.key].cursor = entry.tick
        if self.rulers.ruler_of(entry.key) is not None:
            # Ticks from here on may run again; that is why an operator has to ask for it.
            timer.last_run = min(timer.last_run, entry.tick)
