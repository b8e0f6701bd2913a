"""Checks the moves of cursors and the runs that came of them, by the answers of the store.

All names that a timer had are one timer here: a tick that has run under one of them must not run
under another. Which definition rules is checked by `rulers`, what operators do by `pauses`, the
options of a timer by `options`, and the life of its runs by `runs`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from copy import deepcopy
from dataclasses import dataclass, field

from msgspec.structs import replace

from tenure.core.durations import micros
from tests.sim.checks.options import against_its_options
from tests.sim.checks.pauses import Pauses
from tests.sim.checks.rulers import Rulers, Terms
from tests.sim.checks.runs import Runs
from tests.sim.checks.timer_model import Ruler, StoredTimers, Timer
from tests.sim.commit_entries import EVERYTHING
from tests.sim.history import Entry

__all__ = ["check_ticks", "without_runs"]


@dataclass(eq=False, slots=True)
class _Own:
    """A timer of which every replica has ticks of its own; what it knows no store can lose."""

    decided: dict[str, int] = field(default_factory=dict)
    """Up to where each process has decided."""
    begins: dict[str, int] = field(default_factory=dict)
    """The latest instant from which on each process may have counted its ticks."""
    begun: set[tuple[str, int]] = field(default_factory=set)


class _Model:
    """What is known of one store's schedules at a point of the history."""

    def __init__(self, terms: Terms) -> None:
        self.wrong: list[str] = []
        self.counts: Counter[str] = Counter()
        self._runs = Runs(self._report, self._may_run)
        self._rulers = Rulers(terms, self._report, self._runs.unfinished, self.counts)
        self._pauses = Pauses(self._rulers, self._report)
        self._writes: dict[str, Callable[[Entry], None]] = {
            "changed by a refusal": self._changed,
            "refused commit": self._rulers.refused,
            "declared": self._rulers.declared,
            "registered": self._registered,
            "forgotten": self._rulers.forgotten,
            "frozen": self._pauses.frozen,
            "thawed": self._pauses.thawed,
            "reset": self._pauses.reset,
        }
        self._copy = StoredTimers()
        self._has_lost = False
        self._owns: defaultdict[str, _Own] = defaultdict(_Own)
        self._tried: set[tuple[str, str]] = set()
        """Processes, and timers that they have asked for a tick of."""
        self._in_the_way: dict[tuple[str, str], Entry] = {}
        """The runs that a process was told of when its tick, of this name, had no room."""
        self._unreported: dict[tuple[str, str], str] = {}
        """The ids of ticks that a process knows to be left out and has not reported."""
        self._triggered: set[str] = set()
        """The runs that no tick has made."""
        self._held: set[str] = set()
        """The ids of ticks that had no room."""

    def _may_run(self, process: str, name: str, made_as: str) -> bool:
        return self._rulers.may_run(process, name, made_as)

    def see(self, entry: Entry) -> None:
        match entry.what:
            case "copied" | "rolled back" | "emptied":
                self._loses(entry.what)
            case "read schedules" | "read the time" | "declares" | "operates":
                self._see_process(entry)
            case "received full" | "sent cancel" | "received repeat":
                self._see_refused(entry)
            case "event" if entry.detail in ("TickSkipped", "TicksMissed"):
                self._unreported.pop((entry.by, entry.key), None)
            case "moved" if not entry.ok:
                self._see_move(entry)
            case what if what in self._writes:
                self._writes[what](entry)
            case "ticked" if entry.attempt == 1:
                self._began(entry)
                self._runs.see(entry)
            case _:
                self._runs.see(entry)

    def _changed(self, entry: Entry) -> None:
        self._report(entry, "a refused commit has changed something")

    def _registered(self, entry: Entry) -> None:
        self._may_begin(entry, entry.key)
        self._rulers.registered(entry)

    def _see_process(self, entry: Entry) -> None:
        """Take note of what a process knows, and wants."""
        match entry.what:
            case "read schedules":
                self._rulers.looked(entry)
                self._may_begin(entry, *self._looked_for(entry))
            case "read the time":
                self._rulers.looked(entry)
            case "declares":
                self._rulers.declares[entry.by, entry.key] = entry
            case "operates":
                self._pauses.operates(entry)

    def _see_refused(self, entry: Entry) -> None:
        """Take note of what a process has to do because its move was refused."""
        match entry.what:
            case "received repeat":
                self._unreported[entry.by, entry.key] = entry.job
            case "received full" if entry.job in self._held:
                self._in_the_way[entry.by, entry.key] = entry
            case "sent cancel":
                for place, refusal in list(self._in_the_way.items()):
                    if place[0] == entry.by and set(refusal.ids) <= set(entry.ids):
                        del self._in_the_way[place]

    def _looked_for(self, entry: Entry) -> list[str]:
        """Return the timers that a process may have looked for when it declares them.

        It looks for all of them together with the freeze of all, and then for their successors.
        """
        if EVERYTHING in entry.ids:
            return entry.ids
        return [name for process, name in self._rulers.declares if process == entry.holder]

    def _may_begin(self, entry: Entry, *names: str) -> None:
        """Take note that a process may count its own ticks from now on."""
        for name in names:
            if (entry.holder, name) not in self._tried:
                begins = self._owns[name].begins
                begins[entry.holder] = max(entry.now, begins.get(entry.holder, 0))

    def _loses(self, what: str) -> None:
        """Know what the store knows now. What processes were told before, they still know."""
        stored = self._rulers.stored
        if what == "copied":
            stored.runs = self._runs.stored()
            self._copy = deepcopy(stored)
            return
        self._has_lost = True
        self._rulers.part()
        self._rulers.stored = self._copy if what == "rolled back" else StoredTimers()
        self._runs.fall_back(self._rulers.stored.runs)

    # Decisions.

    def _see_move(self, entry: Entry) -> None:
        """Look at a move, whatever came of it."""
        if entry.answer != "trigger":
            self._tried.add((entry.holder, entry.key))
            self._makes_room(entry)
            self._tells_of_ticks(entry)
        if entry.outcome in ("done", "skipped", "held"):
            self._moved(entry)

    def _makes_room(self, entry: Entry) -> None:
        """Demand that who was told what is in the way of its tick cancels that, if it should."""
        refusal = self._in_the_way.get((entry.holder, entry.key))
        ruling = self._rulers.ruler_of(entry.key)
        if refusal is None or not _is_later(entry, refusal.job) or ruling is None:
            return
        del self._in_the_way[entry.holder, entry.key]
        if ruling[1].options.overlap == "cancel_previous":
            self._report(entry, f"{refusal.ids} should have been cancelled before")

    def _tells_of_ticks(self, entry: Entry) -> None:
        """Demand that who knows that a tick was left out tells of it before it goes on."""
        untold = self._unreported.get((entry.holder, entry.key))
        if untold is not None and _is_later(entry, untold):
            del self._unreported[entry.holder, entry.key]
            self._report(entry, f"the tick of {untold} was left out, and nobody is told")

    def _moved(self, entry: Entry) -> None:
        ruling = self._rulers.ruler_of(entry.key)
        if ruling is None:
            self._report(entry, f"this one rules: {self._rulers.stored.timers.get(entry.key)}")
            return
        timer, ruler = ruling
        if entry.answer != "trigger" and not self._rulers.is_declared_by(entry.holder, ruler):
            self._report(entry, f"its process does not declare what rules: {ruler}")
        # A process may have seen the end of a run that the store has lost.
        last_job = "" if self._has_lost else timer.names[entry.key].last_job
        for what in against_its_options(entry, ruler.options, self._runs, last_job):
            self._report(entry, what)
        if entry.outcome == "held":
            if entry.answer == "run":
                self._held.add(entry.ids[0])
            return
        if ruler.options.each == "cluster" or entry.answer == "trigger":
            self._rulers.mark_written(entry.key)
        if entry.answer != "trigger":
            timer.names[entry.key].declared = entry.now
            self._check_freeze(entry, timer)
            self._moved_cursor(entry, timer, ruler)
        else:
            self.counts["triggered runs"] += 1
            self._triggered.add(entry.job)
            if entry.seen:
                self._report(entry, "a trigger moves no cursor")
        self._check_lines(entry)
        if entry.job:
            self._born(entry, timer, rests=ruler.options.rests)

    def _check_freeze(self, entry: Entry, timer: Timer) -> None:
        if not entry.answer:
            return  # it was passed by, and had no run to be refused
        until = max(timer.frozen_until, self._rulers.stored.all_frozen_until)
        is_paused = entry.outcome == "skipped" and entry.detail == "paused"
        self.counts["paused ticks"] += is_paused
        if is_paused != (entry.tick < until):
            self._report(entry, f"ticks before {until} are paused")

    def _moved_cursor(self, entry: Entry, timer: Timer, ruler: Ruler) -> None:
        """See to it that no tick is left out, if it is known how far they are from each other."""
        name, period = timer.names[entry.key], ruler.period
        decided = entry.number + (entry.answer == "run")
        if ruler.options.each == "replica":
            self._moved_own(entry, period, decided)
            return
        if entry.seen != name.cursor or entry.tick <= name.cursor:
            self._report(entry, f"the cursor was at {name.cursor}")
        passed = entry.tick // period - name.cursor // period if period else decided
        if passed != decided:
            self._report(entry, f"{passed} ticks were passed and {decided} decided")
        name.cursor = entry.tick

    def _moved_own(self, entry: Entry, period: int, decided: int) -> None:
        """See to it that a process leaves out none of its own ticks.

        A move that was cut off may arrive late, when its process has decided once more.
        """
        own = self._owns[entry.key]
        if entry.seen:
            self._report(entry, "a replica's own tick moves no cursor")
        cursor = own.decided.get(entry.holder, own.begins.get(entry.holder, 0))
        if period and entry.tick // period - decided > cursor // period:
            self._report(entry, f"{decided} ticks are decided, and its cursor was at {cursor}")
        own.decided[entry.holder] = max(entry.tick, own.decided.get(entry.holder, 0))

    def _check_lines(self, entry: Entry) -> None:
        """See to it that every tick is in one line of the history, and none is in two."""
        before = entry.seen
        for outcome, _, first, last, ticks in entry.lines:
            if not before < first <= last or ticks < 1 or (first == last) != (ticks == 1):
                self._report(entry, f"a line from {first} to {last} follows {before}")
            if (outcome == "ran") != (entry.job != "" and last == entry.tick):
                self._report(entry, f"a line says {outcome!r} of {last}")
            before = last
        ticks = sum(line[-1] for line in entry.lines)
        decided = entry.number + (entry.answer != "")
        if before != entry.tick or ticks != decided:
            self._report(entry, f"the lines of its history are of {ticks} ticks, up to {before}")

    def _began(self, entry: Entry) -> None:
        own = self._owns[entry.key]
        if entry.by in own.decided and entry.job not in self._triggered:
            if (entry.by, entry.tick) in own.begun:
                self._report(entry, "this process has run this tick before")
            own.begun.add((entry.by, entry.tick))

    def _born(self, entry: Entry, timer: Timer, *, rests: bool) -> None:
        name = timer.names[entry.key]
        name.last_tick, name.last_job = entry.tick, entry.job
        if entry.seen:
            if entry.tick <= timer.last_run:
                self._report(entry, f"a tick at {timer.last_run} has run")
            timer.last_run = entry.tick
        # Who triggers asks for the time first; the clock may be set back before the run is made.
        # The tick of a pause after the last run is the replica's own time.
        is_exact = entry.answer != "trigger" and not rests
        if entry.now < entry.tick and is_exact:
            self._report(entry, "it is early")
        if entry.replica:
            if entry.fence <= timer.last_fence:
                self._report(entry, f"an earlier run had the fence {timer.last_fence}")
            timer.last_fence = entry.fence
        self._runs.born(entry)

    def _report(self, entry: Entry, what: str) -> None:
        self.wrong.append(f"{entry.at} s: {what}: {entry}")


def _is_later(entry: Entry, id_: str) -> bool:
    """Return whether a move was planned after another one of its process; it may arrive before.

    Ids of one process sort in the order in which they were made.
    """
    return entry.ids[0] > id_


def check_ticks(
    history: Iterable[Entry],
    *,
    declared_for: float,
    declared_anew_after: float = 0.0,
    forgotten_after: float = 0.0,
) -> tuple[list[str], Counter[str]]:
    """Return what is wrong with ticks and their runs, and how often what has happened to them.

    Ticks that run twice, early, while paused, beyond a limit, under a definition that does not
    rule, or are passed in silence; schedules that are deleted although they are needed; and runs
    that begin when they should not. What the store has lost, it may do once more, and its processes
    may go on with.
    """
    terms = Terms(
        declared_for=micros(declared_for),
        declared_anew_after=micros(declared_anew_after),
        forgotten_after=micros(forgotten_after),
    )
    model = _Model(terms)
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
        replace(entry, ids=[job for job in entry.ids if job not in runs]) if entry.ids else entry
        for entry in kept
    ]
