"""Decides how many ticks of one worker go to the store together when many are due at once.

The first batch is small: it leaves before the rest is decided, so that the first runs start early.
Later ones grow quickly, so that 500 ticks take four calls. In a large fleet the first batches of
all replicas contain nearly every tick: timers wake up in an order that differs between replicas.
"""

from __future__ import annotations

import asyncio
from typing import Final

from tenure.core.jobs.records import BATCH_MAX

__all__ = ["TickBatches"]

_FIRST: Final = 20
# Each batch is so many times as large as the last one, up to the most that a call takes.
_GROWTH: Final = 4


class TickBatches:
    """A semaphore that is small at first, and grows with each answer while ticks wait outside."""

    def __init__(self) -> None:
        self._present = 0
        self._begin()

    def _begin(self) -> None:
        self._size = _FIRST
        self._room = asyncio.Semaphore(_FIRST)

    async def __aenter__(self) -> None:
        self._present += 1
        try:
            await self._room.acquire()
        except BaseException:
            self._leave()
            raise

    async def __aexit__(self, *error: object) -> None:
        self._room.release()
        self._leave()
        for _ in range(_GROWTH - 1):
            if self._present >= self._size and self._size < BATCH_MAX:  # some wait outside
                self._size += 1
                self._room.release()

    def _leave(self) -> None:
        self._present -= 1
        if not self._present:
            self._begin()
