"""The watchers of one store object: who in this event loop waits for which topic."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tenure.core.clock import Clock
from tenure.core.model import Topic

__all__ = ["Watchers"]


class _Armed:
    """One armed wake-up; rung at most once per wait."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.bell = asyncio.Event()

    async def wait(self, timeout: float | None) -> bool:
        rung = await self._clock.wait(self.bell, timeout)
        self.bell.clear()
        return rung


class Watchers:
    """Rings armed wake-ups by topic. Use it on one event loop only."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._armed: dict[Topic, set[_Armed]] = {}

    @property
    def topics(self) -> list[Topic]:
        """What is being watched now."""
        return list(self._armed)

    @asynccontextmanager
    async def watch(self, *topics: Topic) -> AsyncIterator[_Armed]:
        armed = _Armed(self._clock)
        for topic in topics:
            self._armed.setdefault(topic, set()).add(armed)
        try:
            yield armed
        finally:
            for topic in topics:
                others = self._armed[topic]
                others.discard(armed)
                if not others:
                    del self._armed[topic]

    def ring(self, topic: Topic) -> None:
        for armed in self._armed.get(topic, ()):
            armed.bell.set()

    def ring_all(self) -> None:
        """Wake everybody: after a reconnect nobody knows what was missed."""
        for topic in self._armed:
            self.ring(topic)
