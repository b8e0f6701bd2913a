"""Notices from outside when an event loop does not turn, and shows what keeps it."""

from __future__ import annotations

import asyncio
import sys
import threading
import traceback
from contextlib import suppress

from tenure.core.clock import Clock
from tenure.observe.events import Events, LoopBlocked

__all__ = ["LoopWatch"]

_LOOK_EVERY = 0.5
# Below this it is a busy machine or a large result, and nobody can do much about it.
_BLOCKED_AFTER = 2.0
_STACK_MAX = 4000


class LoopWatch:
    """Watches the loop it is made on. `run` belongs on the host."""

    def __init__(self, clock: Clock, events: Events) -> None:
        self._clock = clock
        self._events = events
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._turned = True

    async def run(self) -> None:
        asked_at = self._clock.boot()
        told = False
        while True:
            now = self._clock.boot()
            if self._turned:
                self._turned, told, asked_at = False, False, now
                with suppress(RuntimeError):  # closed: whoever watches it ends soon
                    self._loop.call_soon_threadsafe(self._turn)
            elif now - asked_at >= _BLOCKED_AFTER and not told:
                told = True
                self._events.emit(LoopBlocked(round(now - asked_at, 1), self._stack()))
            await self._clock.sleep(_LOOK_EVERY)

    def _turn(self) -> None:
        self._turned = True

    def _stack(self) -> str:
        frame = sys._current_frames().get(self._thread)  # noqa: SLF001 - there is no other way
        return "".join(traceback.format_stack(frame))[-_STACK_MAX:]
