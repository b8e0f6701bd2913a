"""The state of timers and schedules, and the outcomes of their ticks, for operators."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, TypeAlias

from msgspec import Struct

from tenure.core.why import TimerFacts

__all__ = ["TickOutcome", "TickRecord", "TimerInfo", "TimerPause", "TimerView", "TimerViews"]

TickOutcome: TypeAlias = Literal[
    "succeeded", "failed", "cancelled", "running", "waiting", "ran", "skipped", "missed"
]


class TickRecord(Struct, frozen=True, kw_only=True):
    """The outcome of a tick; or of several in a row that did not run for the same reason."""

    outcome: TickOutcome
    """How its run stands; "ran" if that is no longer known; or "skipped", or "missed"."""
    reason: str = ""
    """Why it did not run: overlap, limit, blackout, paused, late; or failed: error, lost..."""
    nominal: datetime
    """The instant that the rule gives; of several, the last one."""
    first: datetime
    ticks: int = 1
    decided: datetime
    job: str = ""
    replica: str = ""
    started: datetime | None = None
    finished: datetime | None = None
    attempts: int = 0
    error: str = ""


class TimerPause(Struct, frozen=True, kw_only=True):
    """Why and for how long ticks are skipped."""

    since: datetime
    until: datetime | None
    reason: str


class TimerInfo(Struct, frozen=True, kw_only=True):
    """The state of a timer or schedule."""

    name: str
    kind: Literal["timer", "schedule", "unknown"]
    """Unknown if this version of Tenure cannot read how it was declared."""
    rule: str
    """In words; empty if it cannot be read."""
    tz: str
    """The zone in which its cron expression is read; UTC for a period."""
    task: str
    next: datetime | None
    """When the next tick is due, if nothing is in the way.

    None if there is none; or if it counts from the end of a run that is not over.
    """
    previous: datetime | None
    """The nominal instant of the last run."""
    running: int
    """Its unfinished runs."""
    pause: TimerPause | None
    is_declared: bool
    """Whether a process that declares it was heard of within the last minute."""
    declared: datetime
    """When that was: workers report it every 20 seconds, and with each tick."""
    renamed_to: str
    """Its new name, if there is one; then no worker runs this one."""
    latest: TickRecord | None
    revision: int
    ahead: float = 0.0
    """Seconds by which its last tick lies in the future of the store's clock, which was wrong.

    It is silent until then, unless `reset` is called. Up to a minute counts as 0.0.
    """


class TimerView(Struct, frozen=True, kw_only=True):
    """A timer or schedule with its history and its next ticks, for a page about many of them."""

    info: TimerInfo
    history: list[TickRecord]
    """The outcomes of its last ticks, newest first."""
    next: list[datetime]
    """When its next ticks are due; one at most if they follow from when runs end."""
    facts: TimerFacts
    """What `core.why` explains it by."""


class TimerViews(Struct, frozen=True, kw_only=True):
    """Timers and schedules by name, and the pause of all of them."""

    timers: list[TimerView]
    pause: TimerPause | None
