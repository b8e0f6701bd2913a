"""Queues inside a process: of all tasks that wait for one key, only the first polls the store.

So a process with a thousand waiting tasks is one waiter in the store, and serves its tasks in the
order of their arrival.
"""

from __future__ import annotations

import asyncio
from collections import deque

from tenure.core.clock import Clock

__all__ = ["LocalQueue"]


class LocalQueue:
    """One queue per key. It exists only while a task waits in it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lines: dict[str, deque[asyncio.Event]] = {}

    async def enter(self, key: str, timeout: float | None) -> bool:
        """Return True at the head of the queue, or False after `timeout` seconds.

        After True the caller must `leave`.
        """
        line = self._lines.setdefault(key, deque())
        turn = asyncio.Event()
        line.append(turn)
        if line[0] is turn:
            return True
        try:
            reached = await self._clock.wait(turn, timeout)
        except BaseException:
            self._step_out(key, turn)
            raise
        if not reached:
            self._step_out(key, turn)
        return reached

    def leave(self, key: str) -> None:
        """Leave the queue, and wake the next task."""
        self._step_out(key, self._lines[key][0])

    def _step_out(self, key: str, turn: asyncio.Event) -> None:
        line = self._lines[key]
        was_head = line[0] is turn
        line.remove(turn)
        if not line:
            del self._lines[key]
        elif was_head:
            line[0].set()
