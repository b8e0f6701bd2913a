"""Timers for threads: what operators do with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import tenure
from tenure.blocking.jobs import Job
from tenure.blocking.portal import Portal
from tenure.core.durations import Duration
from tenure.timers import Timers as AsyncTimers

__all__ = ["TimerHandle", "Timers"]


class TimerHandle:
    """One timer or schedule, by its name; see `tenure.TimerHandle`."""

    def __init__(self, portal: Portal, handle: tenure.TimerHandle) -> None:
        self._portal = portal
        self._handle = handle
        self.name = handle.name

    def __repr__(self) -> str:
        return repr(self._handle)

    def info(self) -> tenure.TimerInfo:
        """Return how it stands."""
        return self._portal.call(self._handle.info())

    def pause(self, reason: str = "", until: datetime | Duration | None = None) -> None:
        """Skip its ticks until an instant, for so long, or until `resume`. Runs go on."""
        self._portal.call(self._handle.pause(reason, until))

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
        """Return what became of the last ticks, newest first; at most 100 are remembered."""
        return self._portal.call(self._handle.history(number))


class Timers:
    """Those declared in the app, and by name those that any process has declared."""

    def __init__(self, portal: Callable[[], Portal], timers: AsyncTimers) -> None:
        self._portal = portal
        self._timers = timers

    def __getitem__(self, name: str) -> TimerHandle:
        return TimerHandle(self._portal(), self._timers[name])

    def __iter__(self) -> Iterator[str]:
        """Go through the names of those that are declared in the app."""
        return iter(self._timers)

    def __len__(self) -> int:
        return len(self._timers)

    def __contains__(self, name: object) -> bool:
        return name in self._timers

    def all(self) -> list[tenure.TimerInfo]:
        """Return how all that the store knows stand, by name."""
        return self._portal().call(self._timers.all())

    def frozen(self) -> tenure.Pause | None:
        """Return the freeze of all of them, if there is one that has not ended."""
        return self._portal().call(self._timers.frozen())
