"""Events of timers and schedules: ticks that ran without the store, late, or not at all."""

from __future__ import annotations

import logging

from tenure.core.durations import duration
from tenure.core.jobs.view import as_datetime
from tenure.core.safe_text import safe
from tenure.core.schedules.steps import TICKS_COUNTED
from tenure.observe.base import BaseEvent, first_of

__all__ = ["TickSkipped", "TickUnlocked", "TicksMissed", "TimerAhead", "TimersFull"]


class TickSkipped(BaseEvent, frozen=True):
    """A tick of a timer or schedule did not run, because of its own options."""

    timer: str
    reason: str

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
