"""The connection of a store object to its server, which its parts share."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Self

import asyncpg

from tenure.core.clock import Clock
from tenure.core.leases import Grade, Pong, Topic, Traits
from tenure.errors import ConfigError, StoreError, TenureError
from tenure.stores.contract import Migrate, Purpose, UserTransaction, Watch
from tenure.stores.damage import Damage
from tenure.stores.postgres.address import Address
from tenure.stores.postgres.connector import Connector
from tenure.stores.postgres.errors import translate
from tenure.stores.postgres.listener import Listener
from tenure.stores.postgres.notifier import Notifier, channel_of, kind_in, topics_in
from tenure.stores.postgres.pool import Pool, Row, Subject
from tenure.stores.postgres.schema import migrate as migrate_schema
from tenure.stores.postgres.server import CONNECTIONS_LEAST, POOLER_ADVICE, Server, shares_sessions
from tenure.stores.postgres.transaction import PostgresTransaction
from tenure.stores.watchers import Watchers

__all__ = ["Connection", "Part"]

log = logging.getLogger("tenure")

# The id of the first format that was created here. Later formats add rows.
_PING = """
SELECT tenure.now($1), (SELECT f.incarnation FROM tenure.format f ORDER BY f.number LIMIT 1)
"""
# A notification need not wait for the disk. For this transaction only.
_NOTIFY = """
SELECT pg_notify($1, payload)
FROM set_config('synchronous_commit', 'off', true), unnest($2::text[]) AS payload
"""


class Connection:
    """The connection that the parts of a PostgreSQL store share."""

    def __init__(
        self,
        url: str,
        *,
        namespace: str,
        clock: Clock,
        grade: Grade = Grade.D,
        place: str = "",
    ) -> None:
        self._address = Address.parse(url)
        self.namespace = namespace
        self.clock = clock
        self.damage = Damage(self._address.shown, namespace)
        self._grade = grade
        self._place = place
        self._watchers = Watchers(clock)
        self._connector = Connector(self._address.options, clock.random)
        self._pool: Pool | None = None
        self._listener: Listener | None = None
        self._notifier: Notifier | None = None

    @property
    def url(self) -> str:
        return self._address.shown

    @property
    def traits(self) -> Traits:
        push = not self._address.shares_sessions
        return Traits(grade=self._grade, scope="fleet", push=push, transactional=True)

    async def open(self, migrate: Migrate = "auto") -> None:
        if self._pool is not None:
            return
        try:
            connection = await self._connector.dial()
            try:
                # A clone saves eight round trips. The keeper opens its clone while the first lease
                # runs out, perhaps beside a thread that leaves it little time.
                if migrate != "skip":
                    await self._get_to_know(connection, migrate)
            except BaseException:
                connection.terminate()
                raise
        except TenureError:
            raise
        except Exception as error:  # noqa: BLE001 - the driver may raise anything
            fault = translate(error, self.url, opening=True)
            raise fault from fault.__cause__
        size = self._address.pool_size
        self._pool = Pool(self._connector.dial, self.url, self.clock, connection, size)
        self._notifier = Notifier(self.namespace, partial(self._pool.fetch, _NOTIFY))
        self._listener = Listener(
            self._connector.dial,
            self.clock,
            shared_channel=channel_of(self.namespace),
            heard=self._heard,
            resumed=self._watchers.wake_all,
            failed=lambda error: self._watchers.warn_no_wake_ups(translate(error, self.url)),
        )

    async def _get_to_know(self, connection: asyncpg.Connection, migrate: Migrate) -> None:
        server = await Server.ask(connection)
        server.check(self.url)
        if not self._address.shares_sessions:
            await self._refuse_shared_sessions(connection, server)
            self._warn_of_few_connections(server)
        await migrate_schema(connection, migrate, self.url)
        self._grade, self._place = server.grade, server.place

    async def _refuse_shared_sessions(self, connection: asyncpg.Connection, server: Server) -> None:
        """Raise ConfigError behind a pooler in transaction mode that the URL does not mention.

        Some poolers reject the settings of sessions, and the error says what to do. Others drop
        them, and calls work until two of them share a session.
        """
        if connection.get_server_pid() == server.pid:
            return
        other = await self._connector.dial()
        try:
            if await shares_sessions(connection, other):
                raise ConfigError(f"the store {self.url} is behind a pooler. {POOLER_ADVICE}")
        finally:
            other.terminate()

    def _warn_of_few_connections(self, server: Server) -> None:
        if server.connections_left < CONNECTIONS_LEAST - 1:
            log.warning(
                "the store %s has %d more connections for this process, beside the first. A "
                "process with a worker or locks needs %d in all: for calls, for wake-ups, and for "
                "renewals. Raise %s.",
                self.url,
                server.connections_left,
                CONNECTIONS_LEAST,
                server.connections_limit,
            )

    async def close(self) -> None:
        pool, self._pool = self._pool, None
        listener, self._listener = self._listener, None
        notifier, self._notifier = self._notifier, None
        async with AsyncExitStack() as last_first:
            last_first.push_async_callback(self._connector.close)
            for part in (pool, listener, notifier):
                if part is not None:
                    last_first.push_async_callback(part.close)

    def abandon(self) -> None:
        """Close without the event loop, which is closed: cut the connections of the pool.

        The listener's task closes its connection, because closing a loop cancels its tasks first.
        """
        pool, self._pool = self._pool, None
        self._listener = self._notifier = None
        if pool is not None:
            pool.abandon()

    def clone(self) -> Self:
        return type(self)(
            self._address.url(),
            namespace=self.namespace,
            clock=self.clock,
            grade=self._grade,
            place=self._place,
        )

    def within(self, connection: object, purpose: Purpose) -> UserTransaction:
        return PostgresTransaction(
            connection,
            purpose,
            namespace=self.namespace,
            url=self.url,
            place=self._place,
            test_now=self.clock.for_server(),
        )

    async def ping(self) -> Pong:
        [[now, incarnation]] = await self.fetch(_PING, self.clock.for_server())
        return Pong(now, "" if incarnation is None else str(incarnation))

    @asynccontextmanager
    async def watch(self, *topics: Topic) -> AsyncIterator[Watch]:
        listener = self._listener
        if listener is None:
            raise self._not_open()
        async with self._watchers.watch(*topics) as armed:
            if self.traits.push:
                await listener.ready()
            yield armed

    async def fetch(
        self, statement: str, *arguments: object, about: Sequence[Subject] = ()
    ) -> list[Row]:
        """Run one statement. Every call of the store uses this.

        `about` names the things it decides about: it runs after earlier calls about the same
        things.
        """
        if self._pool is None:
            raise self._not_open()
        return list(await self._pool.fetch(statement, *arguments, about=about))

    @property
    def ear(self) -> str:
        """The channel of this store object's waiters; empty if notifications would not arrive."""
        return self._listener.channel if self._listener and self.traits.push else ""

    def _heard(self, payload: str) -> None:
        if (kind := kind_in(payload, self.namespace)) is not None:
            self._watchers.wake_kind(kind)
            return
        for topic in topics_in(payload, self.namespace):
            self._watchers.wake(topic)

    def tell(self, topics: Collection[Topic]) -> None:
        """Wake the watchers of these topics, in any process."""
        if self._notifier is not None:
            self._notifier.tell(topics)
        if not self.traits.push:  # the listener would not get its own notifications then
            for topic in topics:
                self._watchers.wake(topic)

    def _not_open(self) -> StoreError:
        return StoreError(f"the store {self.url} is not open. Use it inside 'async with app:'.")


class Part:
    """Leases, jobs or schedules of a store, on its connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._clock = connection.clock
        self._damage = connection.damage
        self._tell = connection.tell

    async def _read(
        self, statement: str, *arguments: object, about: Sequence[Subject] = ()
    ) -> list[Row]:
        """Run a statement that takes the namespace before its arguments."""
        return await self._connection.fetch(
            statement, self._connection.namespace, *arguments, about=about
        )

    async def _decide(
        self, statement: str, *arguments: object, about: Sequence[Subject] = ()
    ) -> list[Row]:
        """Run a statement that also takes, after its arguments, the instant to decide at."""
        return await self._read(statement, *arguments, self._clock.for_server(), about=about)
