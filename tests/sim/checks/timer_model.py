"""The timers of a store at one point of a history, rebuilt from its entries."""

from __future__ import annotations

from dataclasses import dataclass, field

from tenure.core.schedules.definition import Definition
from tests.sim.checks.runs import StoredRuns

__all__ = ["Name", "Ruler", "StoredTimers", "Timer"]


@dataclass(frozen=True, slots=True)
class Ruler:
    """The definition that rules a timer, as it was planted."""

    name: str
    digest: str
    calendar: str
    period: int
    options: Definition


@dataclass(eq=False, slots=True)
class Name:
    """One of the names of a timer."""

    cursor: int = 0
    revision: int = 0
    """The highest under which it was planted."""
    declared: int = 0
    """When the definition that ruled under it was last heard of."""
    digest: str = ""
    calendar: str = ""
    ruled: set[str] = field(default_factory=set)
    """The digests of all definitions that have ruled under it."""
    successor: str = ""
    last_tick: int = 0
    last_job: str = ""
    """The last run, also a triggered one."""

    def see_clock(self, now: int) -> None:
        """Take a declaration of the future for one of now: the clock was set back."""
        self.declared = min(self.declared, now)

    def is_declared(self, now: int, declared_for: int) -> bool:
        return self.declared + declared_for > now

    def continue_from(self, other: Name) -> None:
        if other.last_tick > self.last_tick:
            self.last_tick, self.last_job = other.last_tick, other.last_job


@dataclass(eq=False, slots=True)
class Timer:
    """A timer under all its names."""

    ruler: Ruler | None = None
    """None: the name that ruled was forgotten."""
    names: dict[str, Name] = field(default_factory=dict)
    frozen_until: int = 0
    last_run: int = 0
    """The latest tick that has run."""
    last_fence: int = 0
    """Of the runs that were started at once."""

    def absorb(self, other: Timer) -> None:
        """Be both from now on."""
        self.names |= other.names
        self.frozen_until = max(self.frozen_until, other.frozen_until)
        self.last_run = max(self.last_run, other.last_run)
        self.last_fence = max(self.last_fence, other.last_fence)


@dataclass(slots=True)
class StoredTimers:
    """All that it knows."""

    timers: dict[str, Timer] = field(default_factory=dict)
    """By each of their names."""
    forgotten: dict[str, tuple[int, int]] = field(default_factory=dict)
    """The latest run and the highest fence under names that were deleted."""
    made: dict[str, int] = field(default_factory=dict)
    """When each name was last new, by the number of steps until then."""
    written: dict[str, int] = field(default_factory=dict)
    """When each name was last written or deleted, likewise."""
    all_frozen_until: int = 0
    runs: StoredRuns = field(default_factory=StoredRuns)

    def name(self, key: str) -> Name | None:
        return self.timers[key].names[key] if key in self.timers else None

    def latest_name(self, key: str) -> str:
        """Return the last of its successors that is there; itself if there is none."""
        while (following := self.timers[key].names[key].successor) in self.timers:
            key = following
        return key

    def lost_its_successor(self, key: str) -> bool:
        """Return whether a name that is there was taken over by one that is not, any more."""
        return self.timers[key].names[key].successor not in ("", *self.timers)
