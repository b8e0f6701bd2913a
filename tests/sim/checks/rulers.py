"""Checks which definition of a timer rules and where it continues, by the writes of the store.

All names that a timer had are one timer here. What a process declares is known from the process
itself, and which instants it may go by from the answers that it was given.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from tenure.core.durations import micros
from tests.sim.checks.options import declared
from tests.sim.checks.runs import Report
from tests.sim.checks.timer_model import Name, Ruler, StoredTimers, Timer
from tests.sim.history import Entry

__all__ = ["Rulers", "Terms"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """After how many microseconds something happens."""

    declared_for: int
    """A definition that no process declares may be replaced by an older one."""
    declared_anew_after: int = 0
    """A declaration is written down once more."""
    forgotten_after: int = 0
    """A schedule that no process declares may be deleted."""


@dataclass(eq=False, slots=True)
class Rulers:
    """Which definition rules each timer, at a point of a history."""

    terms: Terms
    report: Report
    unfinished: Callable[[str], int]
    """Says how many runs of a name have not ended."""
    counts: Counter[str]
    stored: StoredTimers = field(default_factory=StoredTimers)
    declares: dict[tuple[str, str], Entry] = field(default_factory=dict)
    """What each process declares under a name."""
    looks: defaultdict[str, list[tuple[int, int]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    """The instants that each process was told, each with the number of steps until then."""
    steps: int = 0
    were_same: set[tuple[str, str]] = field(default_factory=set)
    """Pairs of names that were those of one timer before the store has lost or deleted some."""

    def may_run(self, process: str, name: str, made_as: str) -> bool:
        """Return whether a process that runs a timer may take a run of another name for its own."""
        declaration = self.declares.get((process, name))
        if made_as == name or (declaration is not None and made_as in declaration.ids):
            return True
        return (made_as, name) in self.were_same or self._are_same(made_as, name)

    def _are_same(self, name: str, other: str) -> bool:
        timers = self.stored.timers
        return name in timers and timers[name] is timers.get(other)

    def part(self) -> None:
        """Remember which names belong together: the store may not know it any more."""
        timers = self.stored.timers
        self.were_same |= {
            (name, other) for name in timers for other in timers if self._are_same(name, other)
        }

    def ruler_of(self, name: str) -> tuple[Timer, Ruler] | None:
        """Return a timer, and the definition that rules under this very name."""
        timer = self.stored.timers.get(name)
        if timer is None or timer.ruler is None or timer.ruler.name != name:
            return None
        return timer, timer.ruler

    def is_declared_by(self, process: str, ruler: Ruler) -> bool:
        """Return whether a process declares the ruling definition."""
        declaration = self.declares.get((process, ruler.name))
        return declaration is not None and declaration.detail == ruler.digest

    # What a process may go by.

    def looked(self, entry: Entry) -> None:
        """Take note of the time that a process is told."""
        self.steps += 1
        self.looks[entry.holder].append((self.steps, entry.now))

    def mark_written(self, *names: str) -> None:
        """Take note that these have another version from now on."""
        self.steps += 1
        self.stored.written |= dict.fromkeys(names, self.steps)

    def instants_told(self, process: str, *names: str) -> set[int]:
        """Return the instants that a process was told since these were last written.

        What it looked at before that, it was told to look at again.
        """
        since = max((self.stored.written.get(name, 0) for name in names), default=0)
        return {now for step, now in self.looks[process] if step > since}

    # Declarations.

    def declared(self, entry: Entry) -> None:
        """Take note of a process that has said that a definition is still run."""
        ruling = self.ruler_of(entry.key)
        rules = ruling is not None and ruling[1].digest == entry.detail
        if rules != entry.ok:
            self.report(entry, f"this one rules: {ruling and ruling[1]}")
        if ruling is None or not rules:
            return
        name, now = ruling[0].names[entry.key], entry.now
        if not now - self.terms.declared_anew_after < name.declared <= now:
            name.declared = now

    def refused(self, entry: Entry) -> None:
        """Take note of names whose silence was looked at."""
        for name in entry.ids:
            if name in self.stored.timers:
                self.stored.timers[name].names[name].see_clock(entry.now)

    def registered(self, entry: Entry) -> None:
        """See to it that a definition may rule from now on, and goes on at the right place."""
        declaration = self.declares.get((entry.holder, entry.key))
        if declaration is None or declaration.detail != entry.detail:
            self.report(entry, f"{entry.holder} does not declare this, but {declaration}")
            declaration = entry
        heads = self._heads(entry.key, declaration.ids)
        for head in (entry.key, *heads):
            if (name := self.stored.name(head)) is not None:
                name.see_clock(entry.now)
        own = self.stored.name(entry.key)
        if own is not None and self._must_yield(entry, own, declaration.ids):
            ruler = self.stored.timers[entry.key].ruler
            self.report(entry, f"it is not its turn, this one rules: {ruler}")
        self._check_revision(entry, own)
        self._check_cursor(entry, own, heads)
        self._take_over(entry, heads, declaration.ids)
        self.mark_written(entry.key, *entry.ids)

    def _heads(self, key: str, former: list[str]) -> list[str]:
        """Return the names that a name continues: its own successor, and those of former names.

        A name that is there takes nothing that another name has taken over.
        """
        stored = self.stored
        former_names = [name for name in former if name in stored.timers]
        if key not in stored.timers:
            return list(dict.fromkeys(stored.latest_name(name) for name in former_names))
        free = [name for name in former_names if stored.latest_name(name) == name]
        return list(dict.fromkeys([stored.latest_name(key), *free]))

    def _must_yield(self, entry: Entry, own: Name, former: list[str]) -> bool:
        successor, declared_for = self.stored.latest_name(entry.key), self.terms.declared_for
        is_older = entry.detail in own.ruled and entry.detail != own.digest
        names = [own] if is_older else []
        if successor not in (entry.key, *former):
            names.append(self.stored.timers[successor].names[successor])
        return any(name.is_declared(entry.now, declared_for) for name in names)

    def _check_revision(self, entry: Entry, own: Name | None) -> None:
        ruling = self.ruler_of(entry.key)
        if ruling is not None and own is not None and ruling[1].digest == entry.detail:
            if entry.revision != own.revision:
                self.report(entry, f"it rules already: {ruling[1]}")
        elif own is not None and entry.revision <= own.revision:
            self.report(entry, f"another definition had this revision; {ruling} ruled")

    def _check_cursor(self, entry: Entry, own: Name | None, heads: list[str]) -> None:
        """Demand that it goes on where the same ticks were decided; else now."""
        stored = self.stored
        names = [stored.timers[head].names[head] for head in heads]
        same = [name.cursor for name in names if name.calendar == entry.answer]
        left = [] if own is None else [own.cursor]
        # Then it is not known which ticks were decided.
        is_lost = any(map(stored.lost_its_successor, heads if own is None else heads[:1]))
        if same and not is_lost:
            right = {max(left + same)}
        else:
            left += [name.cursor for name in names]
            right = {
                max([now, *left]) for now in self.instants_told(entry.holder, entry.key, *heads)
            }
        if entry.tick not in right and not self._was_under_way(entry, heads):
            self.report(entry, f"the cursor should be at {sorted(right)[-3:]}")

    def _was_under_way(self, entry: Entry, heads: list[str]) -> bool:
        """Return whether a new name was registered by a commit from before it was forgotten.

        In earnest, such a commit is under way for two weeks.
        """
        if heads or entry.key not in self.stored.forgotten:
            return False
        made = self.stored.made[entry.key]
        before = {now for step, now in self.looks[entry.holder] if step <= made}
        return entry.tick in before - self.instants_told(entry.holder, entry.key)

    def _take_over(self, entry: Entry, heads: list[str], former: list[str]) -> None:
        key, timers = entry.key, self.stored.timers
        sources = list(dict.fromkeys(timers[name] for name in (key, *heads) if name in timers))
        if self._was_under_way(entry, heads):
            timer = Timer()
        else:
            timer = sources[0] if sources else self._new_timer(key, former)
        self._count(entry, sources)
        for source in sources[1:]:
            timer.absorb(source)
        if key not in timers:
            self.stored.made[key] = self.steps
        if entry.seen != timer.frozen_until:
            self.report(entry, f"its ticks are paused until {timer.frozen_until}")
        name = timer.names.setdefault(key, Name())
        others = [head for head in heads if head != key]
        if sorted(others) != sorted(entry.ids):
            self.report(entry, f"it should take over from {others}")
        for other in others:
            timer.names[other].successor = key
            name.continue_from(timer.names[other])
        timers |= dict.fromkeys(timer.names, timer)
        name.cursor, name.revision, name.declared = entry.tick, entry.revision, entry.now
        name.digest, name.calendar, name.successor = entry.detail, entry.answer, ""
        name.ruled.add(entry.detail)
        timer.ruler = Ruler(
            name=key,
            digest=entry.detail,
            calendar=entry.answer,
            period=micros(entry.seconds),
            options=declared(entry.definition),
        )

    def _new_timer(self, key: str, former: list[str]) -> Timer:
        """Return a timer that knows what has run under its names before they were forgotten."""
        forgotten = self.stored.forgotten
        records = [forgotten[name] for name in (key, *former) if name in forgotten]
        last_run = max((run for run, _ in records), default=0)
        last_fence = max((fence for _, fence in records), default=0)
        return Timer(last_run=last_run, last_fence=last_fence)

    def _count(self, entry: Entry, sources: list[Timer]) -> None:
        rulers = [source.ruler for source in sources if source.ruler is not None]
        if any(ruler.name != entry.key for ruler in rulers):
            self.counts["renames"] += 1
        elif rulers:
            self.counts["redefinitions"] += 1

    # Deletions.

    def forgotten(self, entry: Entry) -> None:
        """Report a deleted schedule that was still in use."""
        timer = self.stored.timers.get(entry.key)
        if timer is None:
            self.report(entry, "there is no such schedule")
            return
        self.counts["forgotten timers"] += 1
        name = timer.names[entry.key]
        name.see_clock(entry.now)
        if name.is_declared(entry.now, self.terms.forgotten_after):
            self.report(entry, f"it was declared at {name.declared}")
        if unfinished := self.unfinished(entry.key):
            self.report(entry, f"{unfinished} runs are unfinished")
        if name.successor in self.stored.timers:
            self.report(entry, f"its successor {name.successor!r} is there")
        self._delete(entry.key, timer)

    def _delete(self, key: str, timer: Timer) -> None:
        self.part()
        self.mark_written(key)
        self.stored.forgotten[key] = timer.last_run, timer.last_fence
        del self.stored.timers[key], timer.names[key]
        if timer.ruler is not None and timer.ruler.name == key:
            timer.ruler, timer.frozen_until = None, 0
