"""The watchers of one store object: who in this event loop waits for which topic."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tenure.core.clock import Clock
from tenure.core.leases import Topic
from tenure.core.policy import WAITER_LIFE, retry_after_error

__all__ = ["ARM_SECONDS", "Watchers", "pause_before_listening"]

ARM_SECONDS = WAITER_LIFE / 2
"""How long a watch waits for its connection: whoever waits in a line must ask again in time."""

# Rights, and room for one more connection, come back in minutes and not in moments.
_REFUSED_TIMES = 20.0

log = logging.getLogger("tenure")


def pause_before_listening(failures: int, chance: float, *, refused: bool) -> float:
    """Return the pause after the n-th attempt in a row that failed, or was refused."""
    return retry_after_error(failures, chance) * (_REFUSED_TIMES if refused else 1.0)


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
        # In order of arrival: sets would wake those of one topic in an order of their own.
        self._armed: dict[Topic, dict[_Armed, None]] = {}
        self._told = False

    @property
    def topics(self) -> list[Topic]:
        """What is being watched now."""
        return list(self._armed)

    def is_watched(self, topic: Topic) -> bool:
        """Whether anybody waits for the topic; any thread may ask."""
        return topic in self._armed

    @asynccontextmanager
    async def watch(self, *topics: Topic) -> AsyncIterator[_Armed]:
        armed = _Armed(self._clock)
        for topic in topics:
            self._armed.setdefault(topic, {})[armed] = None
        try:
            yield armed
        finally:
            for topic in topics:
                others = self._armed[topic]
                others.pop(armed, None)
                if not others:
                    del self._armed[topic]

    def ring(self, topic: Topic) -> None:
        for armed in self._armed.get(topic, ()):
            armed.bell.set()

    def ring_kind(self, kind: str) -> None:
        """Wake everybody who watches a topic of a kind."""
        for topic in list(self._armed):
            if topic[0] == kind:
                self.ring(topic)

    def ring_all(self) -> None:
        """Wake everybody: after a reconnect nobody knows what was missed."""
        for topic in self._armed:
            self.ring(topic)

    def cannot_hear(self, why: Exception) -> None:
        """Say, once for a store object, that wake-ups do not arrive for now."""
        if not self._told:
            self._told = True
            log.warning("no wake-ups for now; waiters poll about once a second: %s", why)
