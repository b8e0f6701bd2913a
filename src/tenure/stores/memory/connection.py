"""The world a memory store lives in, and the store object's ties to it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import NoReturn, Self

from tenure.core.clock import Clock
from tenure.core.leases import Grade, Pong, Topic, Traits
from tenure.errors import StoreError
from tenure.stores.contract import Migrate, Purpose, Watch
from tenure.stores.damage import Damage
from tenure.stores.memory.world import Space, World, named_world
from tenure.stores.watchers import Watchers
from tenure.stores.within import no_transactions

__all__ = ["Connection", "Part"]


class Connection:
    """What the parts of a memory store share."""

    traits = Traits(grade=Grade.D, scope="process", push=True, transactional=False)

    def __init__(
        self, url: str, *, namespace: str, clock: Clock, world: World | None = None
    ) -> None:
        name = url.removeprefix("memory://").strip("/")
        self.url = url
        self.namespace = namespace
        self.clock = clock
        self.damage = Damage(url, namespace)
        self._world = world or (named_world(name) if name else World())
        self._watchers = Watchers(clock)
        self._loop: asyncio.AbstractEventLoop | None = None

    async def open(self, migrate: Migrate = "auto") -> None:
        del migrate  # there is no older format of what dies with the process
        self._loop = asyncio.get_running_loop()
        self._world.listeners.add(self._listen)

    async def close(self) -> None:
        self.abandon()

    def abandon(self) -> None:
        """Close without the event loop, which may be closed itself."""
        self._world.listeners.discard(self._listen)
        self._loop = None

    def clone(self) -> Self:
        return type(self)(self.url, namespace=self.namespace, clock=self.clock, world=self._world)

    def within(self, connection: object, purpose: Purpose) -> NoReturn:
        del connection
        raise no_transactions(purpose, self.url)

    async def ping(self) -> Pong:
        return Pong(self.clock.wall(), self.space.incarnation)

    @asynccontextmanager
    async def watch(self, *topics: Topic) -> AsyncIterator[Watch]:
        async with self._watchers.watch(*topics) as armed:
            yield armed

    @property
    def space(self) -> Space:
        if self._loop is None:
            msg = f"the store {self.url} is not open. Use it inside 'async with app:'."
            raise StoreError(msg)
        return self._world.space(self.namespace)

    @property
    def lock(self) -> threading.RLock:
        return self._world.lock

    def _listen(self, namespace: str, topic: Topic) -> None:
        loop = self._loop
        # Who begins to watch now asks once more afterwards, and sees what this was about.
        watched = namespace == self.namespace and self._watchers.is_watched(topic)
        if watched and loop is not None:
            # A loop that is closing refuses; its waiters are gone anyway.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._watchers.wake, topic)

    def ring(self, topic: Topic) -> None:
        for listener in list(self._world.listeners):
            listener(self.namespace, topic)


class Part:
    """Leases, jobs or schedules of a store, on its connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._clock = connection.clock
        self._ring = connection.ring
        self._lock = connection.lock

    @property
    def _space(self) -> Space:
        return self._connection.space
