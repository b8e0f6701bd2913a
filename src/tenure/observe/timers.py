"""Events of timers and schedules: ticks that ran without the store, late, or not at all."""

from __future__ import annotations

import logging

from tenure.core.durations import duration
from tenure.core.jobs.view import as_datetime
from tenure.core.safe_text import safe
from tenure.core.schedules.steps import TICKS_COUNTED
from tenure.observe.base import BaseEvent, Detail, first_of

__all__ = [
    "TickRan",
    "TickSkipped",
    "TickUnlocked",
    "TicksMissed",
    "TimerAhead",
    "TimerRunsLong",
    "TimersFull",
]


class TickRan(Detail, BaseEvent, frozen=True):
    """A tick was decided to run: its run or its job is stored, and this process has won it."""

    timer: str
    nominal: int
    """The nominal instant of the tick, in microseconds."""
    job: str = ""
    """The id of its run, or of the job that the schedule has enqueued."""
    lateness: float = 0.0
    """Seconds from the instant at which it was due to the decision, by the store's clock.

    It is due at its nominal instant, or later: by its spread, or after a blackout that defers it.
    """


class TimerRunsLong(BaseEvent, frozen=True):
    """A run of a timer takes more than 1.5 times of what was expected. Once per run."""

    timer: str
    job: str
    """Empty in a run without the store."""
    seconds: float
    expected: float
    """The `expected` of the timer, by default its `timeout`."""

    def __str__(self) -> str:
        run = f"run {safe(self.job)}" if self.job else "a run without the store"
        return (
            f"{run} of timer {safe(self.timer)!r} has taken {duration(self.seconds)}; expected is "
            f"{duration(self.expected)}. Find out what it waits for, or raise expected."
        )


class TickSkipped(BaseEvent, frozen=True):
    """A tick of a timer or schedule did not run, because of its own options."""

    timer: str
    reason: str
    """"overlap", "limit", "per_replica", "blackout" or "paused"."""
    limit: int | None = None
    """How many unfinished runs its `limit` or `per_replica` allows, if that is the reason."""

    @property
    def level(self) -> int:
        return logging.DEBUG  # the timer's options ask for that, and its history records it


class TickUnlocked(BaseEvent, frozen=True):
    """A timer runs a tick although the store does not answer, as `on_unavailable` says.

    The run has no job, no fence and no limit. Other replicas may run the same tick.
    """

    timer: str
    nominal: int
    """The nominal instant of the tick, in microseconds."""

    @property
    def line(self) -> str:
        at = as_datetime(self.nominal).isoformat()
        return f"tick runs without the store: timer {safe(self.timer)}, tick {at}"


class TicksMissed(BaseEvent, frozen=True):
    """These ticks did not run in time: no worker was there, or the store did not answer."""

    timer: str
    ticks: int
    """How many ticks; counted up to 1,000."""
    reason: str
    """"late": so far the only one."""

    @property
    def line(self) -> str:
        more = " or more" if self.ticks >= TICKS_COUNTED else ""
        timer, reason = safe(self.timer), safe(self.reason)
        return f"ticks missed: timer {timer}, ticks {self.ticks}{more}, reason {reason}"


class TimersFull(BaseEvent, frozen=True):
    """A tick waits because all timer slots of this worker are taken. At most once a minute.

    Another worker may run it. Otherwise it runs when a slot is free, or counts as missed, as the
    `catch_up` and `within` of its timer say.
    """

    timer: str
    timer_concurrency: int
    running: tuple[str, ...]
    """Some of the timers that run in this worker."""

    def __str__(self) -> str:
        return (
            f"timer {safe(self.timer)!r} waits for a slot: this worker runs at most "
            f"{self.timer_concurrency} timers at a time ({first_of(self.running)}). Another worker "
            "may run it. If they are meant to be that long or that many, raise timer_concurrency."
        )


class TimerAhead(BaseEvent, frozen=True):
    """The last tick of a timer lies in the store's future, so the timer is silent until then.

    The store's clock was ahead when that tick was decided, or it is behind now. Once per worker.
    """

    timer: str
    seconds: float
    """How far in the future the last tick lies."""
    until: int
    """The earliest next tick, in microseconds."""
    is_own: bool = False
    """Whether only this worker is affected: a timer with each="replica"."""

    def __str__(self) -> str:
        name, until = safe(self.timer), as_datetime(self.until)
        remedy = (
            "Restart this worker"
            if self.is_own
            else f"Run 'tenure timers reset {name}' to let it tick again"
        )
        return (
            f"timer {name!r} does not tick until {until:%Y-%m-%d %H:%M:%S} UTC: its last tick is "
            f"{duration(self.seconds)} ahead of the store's clock. That clock was wrong when the "
            f"tick was decided, or is wrong now: check it first. {remedy}; ticks that have run "
            "ahead of their time may run again."
        )
