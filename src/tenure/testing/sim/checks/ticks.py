"""Checks the moves of cursors and the runs that came of them, by the answers of the store.

All names that a timer had are one timer here: a tick that has run under one of them must not run
under another.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass, field

from msgspec.structs import replace

from tenure.core.durations import micros
from tenure.core.schedules import EVERYTHING
from tenure.core.ticking import Definition
from tenure.testing.sim.checks.options import against_its_options, declared
from tenure.testing.sim.checks.runs import Runs, StoredRuns
from tenure.testing.sim.history import Entry

__all__ = ["check_ticks", "without_runs"]

_FOR_EVER = 2**62


@dataclass(frozen=True, slots=True)
class _Definition:
    """One of the definitions that a timer had, as it was planted."""

    name: str
    revision: int
    digest: str
    calendar: str
    period: int
    options: Definition


@dataclass(eq=False, slots=True)
class _Timer:
    """A timer under all its names."""

    ruler: _Definition | None = None
    cursor: int = 0
    declared: int = 0
    """When the ruling definition was last heard of."""
    frozen_until: int = 0
    last_run: int = 0
    """The latest tick that has run."""
    last_fence: int = 0
    """Of the runs that were born running."""
    ruled: set[tuple[str, str]] = field(default_factory=set)
    """Names and digests that have ruled."""
    revisions: dict[str, int] = field(default_factory=dict)
    """The highest of each name."""


@dataclass(eq=False, slots=True)
class _Own:
    """A timer of which every replica has ticks of its own; what it knows no store can lose."""

    decided: dict[str, int] = field(default_factory=dict)
    """Up to where each process has decided."""
    begins: dict[str, int] = field(default_factory=dict)
    """The latest instant from which on each process may have counted its ticks."""
    begun: set[tuple[str, int]] = field(default_factory=set)


@dataclass(slots=True)
class _Stored:
    """What the store knows, as far as its answers tell."""

    timers: dict[str, _Timer] = field(default_factory=dict)
    all_frozen_until: int = 0
    runs: StoredRuns = field(default_factory=StoredRuns)


class _Model:
    """What is known of one store's schedules at a point of the history."""

    def __init__(self, declared_for: int) -> None:
        self._declared_for = declared_for
        self.wrong: list[str] = []
        self.counts: Counter[str] = Counter()
        self._stored = self._copy = _Stored()
        self._owns: defaultdict[str, _Own] = defaultdict(_Own)
        self._were_same: set[tuple[str, str]] = set()
        """Pairs of names that were those of one timer before the store has lost something."""
        self._declares: dict[tuple[str, str], str] = {}
        """The digest of what each process has declared under a name."""
        self._has_lost = False
        self._lost_track = False
        self._runs = Runs(self._say, self._are_same)

    def _are_same(self, one: str, other: str) -> bool:
        timers = self._stored.timers
        return timers.get(one) is timers.get(other) or (one, other) in self._were_same

    def see(self, entry: Entry) -> None:
        match entry.what:
            case _ if self._lost_track:
                pass
            case "copied":
                self._stored.runs = self._runs.stored()
                self._copy = deepcopy(self._stored)
            case "fell back":
                self._fall_back(self._copy)
            case "emptied":
                self._fall_back(_Stored())
            case "planted":
                self._planted(entry)
            case "moved" if entry.outcome in ("done", "skipped", "held") and not entry.ok:
                self._moved(entry)
            case "frozen" if entry.ok:
                self._frozen(entry, entry.tick or _FOR_EVER)
            case "thawed" if entry.ok:
                self._frozen(entry, entry.now)
            case "ticked" if entry.attempt == 1:
                self._began(entry)
                self._runs.see(entry)
            case _:
                self._runs.see(entry)

    # What the store loses.

    def _fall_back(self, stored: _Stored) -> None:
        """Know what the store knows now. What processes were told before, they still know."""
        self._has_lost = True
        timers = self._stored.timers
        self._were_same |= {
            (one, two) for one in timers for two in timers if self._are_same(one, two)
        }
        self._stored = stored
        self._runs.fall_back(stored.runs)

    def _may_be_mistaken(self, entry: Entry, ruler: _Definition) -> bool:
        """Whether who moves may take another definition for the ruling one.

        A store that has lost revisions gives them out again.
        """
        is_sure = self._declares.get((entry.holder, entry.key)) == ruler.digest
        return self._has_lost and (entry.answer == "trigger" or not is_sure)

    # Which definition rules.

    def _planted(self, entry: Entry) -> None:
        timer = self._timer(entry.key, entry.ids)
        timers = self._stored.timers
        if any(timers.get(one, timer) is not timer for one in entry.ids):
            # Only after a loss: a name comes before the one that it had, and takes over both.
            self._lost_track = True
            return
        timer.declared = min(timer.declared, entry.now)  # the clock was set back
        begins = self._owns[entry.key].begins
        begins[entry.holder] = max(entry.now, begins.get(entry.holder, 0))
        self._declares[entry.holder, entry.key] = entry.detail
        ruler = timer.ruler
        rules = ruler is not None and (ruler.name, ruler.digest) == (entry.key, entry.detail)
        if ruler is not None and rules:
            if entry.revision != ruler.revision or entry.tick != timer.cursor:
                self._say(entry, f"it rules, and is at {timer.cursor}: {ruler}")
        elif entry.revision:
            self._takes_over(entry, timer)
        if entry.revision:
            timer.declared = entry.now

    def _timer(self, name: str, former: Iterable[str] = ()) -> _Timer:
        timers = self._stored.timers
        for one in former:
            if one in timers:
                timers.setdefault(name, timers[one])
        return timers.setdefault(name, _Timer())

    def _takes_over(self, entry: Entry, timer: _Timer) -> None:
        """See to it that a definition may rule from now on, and goes on at the right place."""
        ruler = timer.ruler
        if ruler is not None:
            self.counts["renames" if ruler.name != entry.key else "redefinitions"] += 1
            if not self._may_take_over(entry, timer, ruler):
                self._say(entry, f"it is not its turn, this one rules: {ruler}")
        if entry.revision <= timer.revisions.get(entry.key, 0):
            self._say(entry, f"another definition had this revision; {ruler} ruled")
        is_same = ruler is not None and ruler.calendar == entry.answer
        cursor = timer.cursor if is_same else max(timer.cursor, entry.now)
        if entry.tick != cursor:
            self._say(entry, f"the cursor was at {timer.cursor}, and should be at {cursor}")
        period = micros(entry.seconds)
        timer.ruler = _Definition(
            name=entry.key,
            revision=entry.revision,
            digest=entry.detail,
            calendar=entry.answer,
            period=period,
            options=declared(entry.definition),
        )
        timer.cursor = entry.tick
        timer.ruled.add((entry.key, entry.detail))
        timer.revisions[entry.key] = entry.revision

    def _may_take_over(self, entry: Entry, timer: _Timer, ruler: _Definition) -> bool:
        if timer.declared + self._declared_for <= entry.now:
            return True
        if entry.key != ruler.name:
            return ruler.name in entry.ids or entry.key not in timer.revisions
        return (entry.key, entry.detail) not in timer.ruled

    # Freezes.

    def _frozen(self, entry: Entry, until: int) -> None:
        if entry.key == EVERYTHING:
            self._stored.all_frozen_until = until
            return
        timer = self._timer(entry.key)
        # A name that was taken over can be frozen as well; its ticks are another's.
        if timer.ruler is not None and timer.ruler.name == entry.key:
            timer.frozen_until = until

    # Decisions.

    def _moved(self, entry: Entry) -> None:
        timer = self._timer(entry.key)
        ruler = timer.ruler
        if ruler is None or (ruler.name, ruler.revision) != (entry.key, entry.revision):
            self._say(entry, f"this one rules: {ruler}")
            return
        is_mistaken = self._may_be_mistaken(entry, ruler)
        if not is_mistaken:
            for what in against_its_options(entry, ruler.options, self._runs):
                self._say(entry, what)
        if entry.outcome == "held":
            return
        if entry.answer != "trigger":
            timer.declared = entry.now
            self._check_freeze(entry, timer)
            self._moved_cursor(entry, timer, 0 if is_mistaken else ruler.period)
        else:
            self.counts["triggered runs"] += 1
        if entry.job:
            self._born(entry, timer)

    def _check_freeze(self, entry: Entry, timer: _Timer) -> None:
        if not entry.answer:
            return  # it was passed by, and had no run to be refused
        until = max(timer.frozen_until, self._stored.all_frozen_until)
        is_paused = entry.outcome == "skipped" and entry.detail == "paused"
        self.counts["paused ticks"] += is_paused
        if is_paused != (entry.tick < until):
            self._say(entry, f"ticks before {until} are paused")

    def _moved_cursor(self, entry: Entry, timer: _Timer, period: int) -> None:
        """See to it that no tick is left out, if it is known how far they are from each other."""
        decided = entry.number + (entry.answer == "run")
        if not entry.seen:
            self._moved_own(entry, period, decided)
            return
        if entry.seen != timer.cursor or entry.tick <= timer.cursor:
            self._say(entry, f"the cursor was at {timer.cursor}")
        passed = entry.tick // period - timer.cursor // period if period else decided
        if passed != decided:
            self._say(entry, f"{passed} ticks were passed and {decided} decided")
        timer.cursor = entry.tick

    def _moved_own(self, entry: Entry, period: int, decided: int) -> None:
        """See to it that a process leaves out none of its own ticks.

        A move that was cut off may arrive late, when its process has decided once more.
        """
        own = self._owns[entry.key]
        cursor = own.decided.get(entry.holder, own.begins.get(entry.holder, 0))
        if period and entry.tick // period - decided > cursor // period:
            self._say(entry, f"{decided} ticks are decided, and its cursor was at {cursor}")
        own.decided[entry.holder] = max(entry.tick, own.decided.get(entry.holder, 0))

    def _began(self, entry: Entry) -> None:
        own = self._owns[entry.key]
        if entry.by in own.decided:
            if (entry.by, entry.tick) in own.begun:
                self._say(entry, "this process has run this tick before")
            own.begun.add((entry.by, entry.tick))

    def _born(self, entry: Entry, timer: _Timer) -> None:
        if entry.seen:
            if entry.tick <= timer.last_run:
                self._say(entry, f"a tick at {timer.last_run} has run")
            timer.last_run = entry.tick
        # Who triggers asks for the time first; the clock may be set back before the run is made.
        if entry.now < entry.tick and entry.answer != "trigger":
            self._say(entry, "it is early")
        if entry.replica:
            if entry.fence <= timer.last_fence:
                self._say(entry, f"an earlier run had the fence {timer.last_fence}")
            timer.last_fence = entry.fence
        self._runs.born(entry)

    def _say(self, entry: Entry, what: str) -> None:
        self.wrong.append(f"{entry.at} s: {what}: {entry}")


def check_ticks(history: Iterable[Entry], *, declared_for: float) -> tuple[list[str], Counter[str]]:
    """Return what is wrong with ticks and their runs, and how often what has happened to them.

    Ticks that run twice, early, while paused, beyond a limit, under a definition that does not
    rule, or are passed in silence; and runs that begin when they should not. What the store has
    lost, it may do once more, and its processes may go on with.
    """
    model = _Model(micros(declared_for))
    for entry in history:
        model.see(entry)
    return model.wrong, model.counts


def without_runs(history: Iterable[Entry]) -> list[Entry]:
    """Return a history without the jobs that are runs of timers: other rules hold for those."""
    entries = list(history)
    runs = {entry.job for entry in entries if entry.what == "moved" and entry.job}
    if not runs:
        return entries
    kept = (entry for entry in entries if entry.job not in runs or not entry.job)
    return [
        replace(one, ids=[job for job in one.ids if job not in runs]) if one.ids else one
        for one in kept
    ]
