"""The time-out of an attempt, which is paused while a child process starts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeAlias

from tenure.core.clock import Clock

__all__ = ["Alarm", "TimeLimit", "set_alarm"]

Alarm: TypeAlias = asyncio.TimerHandle | asyncio.Future[None]


class TimeLimit:
    """Calls `on_timeout` after `seconds`, not counting pauses. It runs from the start."""

    def __init__(
        self,
        clock: Clock,
        seconds: float,
        on_timeout: Callable[[], None],
        on_deadline: Callable[[float], None] | None = None,
    ) -> None:
        self._clock = clock
        self._left = seconds
        self._on_timeout = on_timeout
        self._on_deadline = on_deadline
        self._until = 0.0
        self._alarm: Alarm | None = None
        self.resume()

    def pause(self) -> None:
        """Stop counting time until `resume`."""
        if self._alarm is not None:
            self.cancel()
            self._left = max(0.0, self._until - self._clock.boot())
            if self._on_deadline is not None:
                self._on_deadline(0.0)

    def resume(self) -> None:
        """Count time again."""
        if self._alarm is None:
            self._until = self._clock.boot() + self._left
            self._alarm = set_alarm(self._clock, self._left, self._on_timeout)
            if self._on_deadline is not None:
                self._on_deadline(self._until)

    def cancel(self) -> None:
        """Cancel the time-out."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None


def set_alarm(clock: Clock, seconds: float, on_timeout: Callable[[], None]) -> Alarm:
    """Call `on_timeout` after `seconds`, also of a virtual clock. Returns a handle to cancel it."""
    if not clock.virtual:
        return asyncio.get_running_loop().call_later(seconds, on_timeout)

    async def wait_and_call() -> None:
        await clock.sleep(seconds)
        on_timeout()

    return asyncio.ensure_future(wait_and_call())
