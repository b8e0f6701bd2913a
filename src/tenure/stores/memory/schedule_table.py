"""The schedule record of the memory store: a versioned document, its last run and its history.

`schedules` decides which commit may write it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from msgspec.structs import replace

from tenure.core.durations import micros
from tenure.core.schedules.records import (
    DECISIONS_MAX,
    DECLARED_ANEW_AFTER,
    Expected,
    ScheduleHead,
    ScheduleRecord,
    TickLine,
    Write,
)

__all__ = ["Schedule"]


@dataclass(slots=True, eq=False)
class Schedule:
    """A schedule. `standing`, `definition` and `ruler` are opaque to the store."""

    name: str
    declared: int
    version: str = ""
    definition: str = ""
    standing: str = ""
    ruler: str = ""
    last_run: int = 0
    last_job: str = ""
    last_fence: int = 0
    """The highest fence of its runs that started without waiting."""
    history: deque[TickLine] = field(default_factory=lambda: deque(maxlen=DECISIONS_MAX))
    """Newest last."""

    def is_as(self, expected: Expected, now: int) -> bool:
        """Return whether it is what a commit was planned from.

        With `silent_for`, it must also not have been declared for that many seconds.
        """
        silent_for = expected.silent_for
        if silent_for is not None:
            self.declared = min(self.declared, now)  # the clock was set back
        is_silent = silent_for is None or now - self.declared >= micros(silent_for)
        return self.version == expected.version and is_silent

    def declare(self, now: int) -> None:
        """Note that a replica declares it, unless one did so a moment ago.

        The pause saves writes: many replicas declare the same schedules.
        """
        if not now - micros(DECLARED_ANEW_AFTER) < self.declared <= now:
            self.declared = now

    def write(self, write: Write, standing: str, version: str) -> None:
        """Write a document under the id of its commit as version."""
        self.version, self.standing, self.ruler = version, standing, write.ruler
        if write.definition is not None:
            self.definition = write.definition

    def go_on_from(self, other: Schedule) -> None:
        """Continue a schedule of another name: no tick runs again, and no fence comes again."""
        if other.last_run > self.last_run:
            self.last_run, self.last_job = other.last_run, other.last_job
        self.last_fence = max(self.last_fence, other.last_fence)

    def add_line(self, line: TickLine, now: int) -> None:
        """Add a line to the history, or extend the newest line if both tell the same."""
        newest = self.history[-1] if self.history else None
        if newest is not None and line.like and newest.like == line.like:
            ticks = newest.ticks + line.ticks
            self.history[-1] = replace(newest, last=line.last, ticks=ticks, at=now)
        else:
            self.history.append(replace(line, at=now))

    def as_record(self, live: int, lines: int) -> ScheduleRecord:
        return ScheduleRecord(
            name=self.name,
            version=self.version,
            definition=self.definition,
            standing=self.standing,
            ruler=self.ruler,
            declared=self.declared,
            last_run=self.last_run,
            last_job=self.last_job,
            live=live,
            lines=tuple(reversed(self.history))[:lines],
        )

    def as_head(self) -> ScheduleHead:
        return ScheduleHead(
            name=self.name,
            version=self.version,
            standing=self.standing,
            ruler=self.ruler,
            last_run=self.last_run,
            last_job=self.last_job,
        )
