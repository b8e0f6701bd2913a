"""Reports timers whose last tick lies in the store's future, each once.

The store's clock was ahead when that tick was decided, or it is behind now. Such a timer is silent
until that instant, because a decided tick never runs again. `Declarations` checks after each round.
"""

from __future__ import annotations

from collections.abc import Iterable

from tenure.core.schedules.pauses import seconds_ahead
from tenure.observe.events import Events
from tenure.observe.timers import TimerAhead
from tenure.runtime.timers.state import TimerState

__all__ = ["AheadTimers"]


class AheadTimers:
    """The timers of one worker that are ahead."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self._ahead: set[TimerState] = set()

    def __contains__(self, timer: TimerState) -> bool:
        """Return whether a timer was ahead at the last check."""
        return timer in self._ahead

    def look(self, timers: Iterable[TimerState], now: int) -> None:
        """Report the timers that are ahead now and were not at the last check."""
        for timer in timers:
            seconds = seconds_ahead(timer.cursor, now)
            if not seconds or not timer.ruler:
                self._ahead.discard(timer)
            elif timer not in self._ahead:
                self._ahead.add(timer)
                is_own = not timer.is_shared
                self._events.emit(TimerAhead(timer.plan.name, seconds, timer.cursor, is_own))
