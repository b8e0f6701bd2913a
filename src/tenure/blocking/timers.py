"""Timers for threads: what operators do with them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import tenure
from tenure.blocking.jobs import Job
from tenure.blocking.portal import Portal
from tenure.core.durations import Until
from tenure.core.why import Why

__all__ = ["TimerHandle"]


class TimerHandle:
    """One timer or schedule, by its name; see `tenure.TimerHandle`."""

    def __init__(self, portal: Portal, handle: tenure.TimerHandle) -> None:
        self._portal = portal
        self._handle = handle
        self.name = handle.name

    def __repr__(self) -> str:
        return repr(self._handle)

    def info(self) -> tenure.TimerInfo:
        """Return its state."""
        return self._portal.call(self._handle.info())

    def why(self) -> Why:
        """Return why it ticks or does not: one sentence and the next step."""
        return self._portal.call(self._handle.why())

    def pause(self, *, until: Until = None, reason: str = "") -> None:
        """Skip its ticks until an instant, for so long, or until `resume`. Runs go on."""
        self._portal.call(self._handle.pause(until=until, reason=reason))

    def resume(self) -> bool:
        """End a pause; ticks that came meanwhile stay skipped. False if there was none."""
        return self._portal.call(self._handle.resume())

    def reset(self) -> bool:
        """Let it tick from now on, after the store's clock was ahead when it ticked last."""
        return self._portal.call(self._handle.reset())

    def trigger(self) -> Job[Any]:
        """Have it run once, now, also while it is paused. The next tick comes as ever."""
        return Job(self._portal, self._portal.call(self._handle.trigger()))

    def preview(self, number: int = 5) -> list[datetime]:
        """Return when the next ticks are due."""
        return self._portal.call(self._handle.preview(number))

    def history(self, number: int = 20) -> list[tenure.TickRecord]:
        """Return the outcomes of the last ticks, newest first; at most 100 are kept."""
        return self._portal.call(self._handle.history(number))
