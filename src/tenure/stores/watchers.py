"""Wakes the tasks of one event loop that wait for a topic: a lease, a queue, a job, a replica.

Every store object has one `Watchers`. Its listener calls `wake` for each notification, and the
runtime waits inside `watch`. A wake-up is only a hint: a waiter that misses one looks again about
a second later, so a wake-up may be sent twice or too early, and none has to arrive.

A store without push keeps the newest wake-ups beside its data, each with a number, and polls them
while there are watchers. Its own calls ring in the same way, as `wake` reaches one store object.
`close` cancels the poller and sets `_armed`:

    @asynccontextmanager
    async def watch(self, *topics: Topic) -> AsyncIterator[Watch]:
        async with self._watchers.watch(*topics) as watch:
            if self._poller is None or self._poller.done():
                self._armed = asyncio.Event()
                self._poller = asyncio.create_task(self._poll(self._armed))
            await self._armed.wait()
            yield watch

    async def _poll(self, armed: asyncio.Event) -> None:
        number = None  # of the newest wake-up that was read; the first call returns no holders
        while self._watchers.topics:
            with suppress(StoreError):  # no wake-ups for now
                number, holders = await self._read_wake_ups(number)
                for holder in holders:
                    self._watchers.wake(("lease", holder))
            armed.set()
            await self.clock.sleep(0.05)

If the newest number is smaller than the one that was read last, the data was replaced: its wake-ups
count from there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tenure.core.clock import Clock
from tenure.core.lease_policy import WAITER_LIFE
from tenure.core.leases import Topic
from tenure.core.store_policy import retry_after_error

__all__ = ["ARM_SECONDS", "Watchers", "pause_before_listening"]

ARM_SECONDS = WAITER_LIFE / 2
"""How long a watch waits for its connection: a waiter in a queue must poll again in time."""

# Missing rights and a full server last for minutes rather than moments.
_REFUSED_TIMES = 20.0

log = logging.getLogger("tenure")


def pause_before_listening(failures: int, chance: float, *, refused: bool) -> float:
    """Return the pause after the n-th failure in a row; longer if the server refused."""
    return retry_after_error(failures, chance) * (_REFUSED_TIMES if refused else 1.0)


class _Watcher:
    """One task that waits. Wake-ups that arrive before it waits again count as one."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.event = asyncio.Event()

    async def wait(self, timeout: float | None) -> bool:
        is_woken = await self._clock.wait(self.event, timeout)
        self.event.clear()
        return is_woken


class Watchers:
    """The watchers of one store object, by topic. Use it on one event loop only."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # Dictionaries keep the order of arrival; sets would wake watchers in an arbitrary order.
        self._watchers: dict[Topic, dict[_Watcher, None]] = {}
        self._has_warned = False

    @property
    def topics(self) -> list[Topic]:
        """The topics that are being watched now."""
        return list(self._watchers)

    def is_watched(self, topic: Topic) -> bool:
        """Return whether a task waits for the topic. Safe to call from any thread."""
        return topic in self._watchers

    @asynccontextmanager
    async def watch(self, *topics: Topic) -> AsyncIterator[_Watcher]:
        """Yield a watcher that is woken by each of the topics from now on."""
        watcher = _Watcher(self._clock)
        for topic in topics:
            self._watchers.setdefault(topic, {})[watcher] = None
        try:
            yield watcher
        finally:
            for topic in topics:
                others = self._watchers[topic]
                others.pop(watcher, None)
                if not others:
                    del self._watchers[topic]

    def wake(self, topic: Topic) -> None:
        """Wake the watchers of a topic."""
        for watcher in self._watchers.get(topic, ()):
            watcher.event.set()

    def wake_kind(self, kind: str) -> None:
        """Wake all watchers of topics of a kind."""
        for topic in list(self._watchers):
            if topic[0] == kind:
                self.wake(topic)

    def wake_all(self) -> None:
        """Wake all watchers: notifications may have been lost before a reconnect."""
        for topic in self._watchers:
            self.wake(topic)

    def warn_no_wake_ups(self, error: Exception) -> None:
        """Log, once for a store object, that notifications do not arrive for now."""
        if not self._has_warned:
            self._has_warned = True
            log.warning(
                "No wake-ups for now, so waiters poll about once a second: %s",
                error,
                extra={"outage": "wake-ups"},
            )
