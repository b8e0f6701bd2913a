"""The life of a store object, and how it wakes the watchers of the others.

All store objects of one URL share one `Database`. A call about a topic wakes the watchers of that
topic in each store object of the same namespace, on the event loop that opened it.
"""

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
from tenure.stores.memory.database import Database, Namespace, named_database
from tenure.stores.transaction import no_transactions
from tenure.stores.watchers import Watchers

__all__ = ["Connection", "Part"]


class Connection:
    """A connection to a database in memory; the parts of a store share it."""

    traits = Traits(grade=Grade.D, scope="process", push=True, transactional=False)

    def __init__(
        self, url: str, *, namespace: str, clock: Clock, database: Database | None = None
    ) -> None:
        name = url.removeprefix("memory://").strip("/")
        self.url = url
        self.namespace = namespace
        self.clock = clock
        self.damage = Damage(url, namespace)
        self._database = database or (named_database(name) if name else Database())
        self._watchers = Watchers(clock)
        self._loop: asyncio.AbstractEventLoop | None = None

    async def open(self, migrate: Migrate = "auto") -> None:
        del migrate  # data that ends with the process has no older format
        self._loop = asyncio.get_running_loop()
        self._database.listeners.add(self._listen)

    async def close(self) -> None:
        self.abandon()

    def abandon(self) -> None:
        """Close without the event loop, which may be closed already."""
        self._database.listeners.discard(self._listen)
        self._loop = None

    def clone(self) -> Self:
        return type(self)(
            self.url, namespace=self.namespace, clock=self.clock, database=self._database
        )

    def within(self, connection: object, purpose: Purpose) -> NoReturn:
        del connection
        raise no_transactions(purpose, self.url)

    async def ping(self) -> Pong:
        return Pong(self.clock.wall(), self.data.incarnation)

    @asynccontextmanager
    async def watch(self, *topics: Topic) -> AsyncIterator[Watch]:
        async with self._watchers.watch(*topics) as armed:
            yield armed

    @property
    def data(self) -> Namespace:
        """The data of this namespace; raises StoreError if the store is not open."""
        if self._loop is None:
            msg = f"the store {self.url} is not open. Use it inside 'async with app:'."
            raise StoreError(msg)
        return self._database.namespace(self.namespace)

    @property
    def lock(self) -> threading.RLock:
        """Makes a call atomic: every call holds it from its first read to its last write."""
        return self._database.lock

    def _listen(self, namespace: str, topic: Topic) -> None:
        """Wake the watchers of a topic; called in the thread that made the change.

        Checking first is safe: a caller that starts to watch a moment later repeats its call after
        that, and sees the change.
        """
        loop = self._loop
        watched = namespace == self.namespace and self._watchers.is_watched(topic)
        if watched and loop is not None:
            # A loop that is closing raises; its waiters are gone anyway.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._watchers.wake, topic)

    def wake(self, topic: Topic) -> None:
        """Wake the watchers of a topic in all store objects of this namespace."""
        for listener in list(self._database.listeners):
            listener(self.namespace, topic)


class Part:
    """Leases, jobs or schedules of a store, on its connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._clock = connection.clock
        self._wake = connection.wake
        self._lock = connection.lock

    @property
    def _data(self) -> Namespace:
        return self._connection.data
