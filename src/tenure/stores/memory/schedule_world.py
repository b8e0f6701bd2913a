"""What a memory store remembers about schedules."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from msgspec.structs import replace

from tenure.core.durations import micros
from tenure.core.schedules import (
    DECISIONS_MAX,
    DECLARED_FOR,
    DIGESTS_MAX,
    EVERYTHING,
    Decision,
    Freeze,
    Moved,
    Planting,
    ScheduleRecord,
)

__all__ = ["Schedule", "ScheduleSpace"]


@dataclass(slots=True, eq=False)
class Schedule:
    """A schedule as the store sees it."""

    name: str
    definition: bytes
    calendar: str
    digests: tuple[str, ...]
    """Of the definitions that have ruled, the present one last."""
    cursor: int
    planted: int
    declared: int
    revision: int = 1
    successor: str = ""
    last_run: int = 0
    last_job: str = ""
    last_fence: int = 0
    last_move: tuple[str, Moved, str] = ("", "done", "")
    """Its id, what came of it, and why."""
    decisions: deque[Decision] = field(default_factory=lambda: deque(maxlen=DECISIONS_MAX))
    """Newest last."""

    def is_declared(self, now: int) -> bool:
        self.declared = min(self.declared, now)  # the clock was set back
        return self.declared + micros(DECLARED_FOR) > now

    def rules(self, digest: str) -> bool:
        return self.digests[-1] == digest

    def redefine(self, planting: Planting) -> None:
        earlier = [one for one in self.digests if one != planting.digest]
        self.digests = (*earlier, planting.digest)[-DIGESTS_MAX:]
        self.definition = planting.definition
        self.revision += 1
        self.calendar = planting.calendar

    def take_over(self, other: Schedule) -> None:
        """Go on where another one was, which rests from now on."""
        if other.last_run > self.last_run:
            self.last_run, self.last_job = other.last_run, other.last_job
        self.last_fence = max(self.last_fence, other.last_fence)
        other.successor = self.name
        other.revision += 1

    def remember(self, decision: Decision, now: int) -> None:
        decision = replace(decision, at=now)
        newest = self.decisions[-1] if self.decisions else None
        if newest is not None and _alike(newest, decision):
            ticks = newest.ticks + decision.ticks
            self.decisions[-1] = replace(newest, last=decision.last, at=now, ticks=ticks)
        else:
            self.decisions.append(decision)

    def as_record(self, live: int, freeze: Freeze | None) -> ScheduleRecord:
        return ScheduleRecord(
            name=self.name,
            revision=self.revision,
            definition=self.definition,
            cursor=self.cursor,
            last_run=self.last_run,
            last_job=self.last_job,
            live=live,
            planted=self.planted,
            declared=self.declared,
            successor=self.successor,
            freeze=freeze,
            latest=self.decisions[-1] if self.decisions else None,
        )


def _alike(one: Decision, other: Decision) -> bool:
    return one.outcome != "ran" and (one.outcome, one.reason) == (other.outcome, other.reason)


@dataclass(slots=True)
class ScheduleSpace:
    """The schedules of one namespace."""

    schedules: dict[str, Schedule] = field(default_factory=dict)
    freezes: dict[str, Freeze] = field(default_factory=dict)

    def is_frozen(self, name: str, tick: int) -> bool:
        freezes = (self.freezes.get(one) for one in (name, EVERYTHING))
        return any(one and (one.until is None or tick < one.until) for one in freezes)
