"""The connection of a store object to its file: opening, closing, wake-ups, running work."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Self, TypeVar

from tenure.core.clock import Clock
from tenure.core.leases import Grade, Pong, Topic, Traits
from tenure.errors import ConfigError, StoreError
from tenure.stores.contract import Migrate, Watch
from tenure.stores.damage import Damage
from tenure.stores.sqlite.database import Mode
from tenure.stores.sqlite.files import locate, refuse_network
from tenure.stores.sqlite.machines import InUseElsewhere, MaybeInUse, has_company
from tenure.stores.sqlite.schema import READ_INCARNATION
from tenure.stores.sqlite.statements import Transaction
from tenure.stores.sqlite.writer import Work, Writer
from tenure.stores.watchers import Watchers

__all__ = ["Connection", "Part"]

T = TypeVar("T")

log = logging.getLogger("tenure")

# Seconds between two checks of the traces of another machine.
_LOOK_AGAIN = 0.5


class Connection:
    """The connection that the parts of an SQLite store share."""

    traits = Traits(grade=Grade.A, scope="host", push=False, transactional=True)

    def __init__(self, url: str, *, namespace: str, clock: Clock, path: Path | None = None) -> None:
        self.url = url
        self.namespace = namespace
        self.clock = clock
        self.damage = Damage(url, namespace)
        self.path = path or locate(url)
        self._watchers = Watchers(clock)
        self._writer: Writer | None = None

    async def open(self, migrate: Migrate = "auto") -> None:
        if self._writer is not None and not self._writer.forked:
            return
        refuse_network(self.url, self.path)
        writer = Writer(
            self.path,
            migrate,
            namespace=self.namespace,
            clock=self.clock,
            watchers=self._watchers,
            damage=self.damage,
        )
        try:
            if await writer.run(_nothing if migrate == "skip" else has_company, Mode.READ):
                await self._be_admitted(writer)
        except Exception:
            await writer.stop()
            raise
        except BaseException:
            writer.end()  # cancelled: do not wait for it
            raise
        self._writer = writer
        if migrate != "skip":  # the original of a clone has logged it
            log.info("the store is %s (SQLite %s).", self.path, sqlite3.sqlite_version)

    async def _be_admitted(self, writer: Writer) -> None:
        """Return once no other machine uses the file. Raises ConfigError if one does.

        It waits while that is unclear, which is rare: the wall clock was wrong when the machine
        was started, or the file has just been copied from an active machine.
        """
        has_warned = False
        while True:
            try:
                await writer.run(_nothing, Mode.WRITE)
            except InUseElsewhere as error:
                raise ConfigError(str(error)) from error
            except MaybeInUse as error:
                if not has_warned:
                    log.warning("%s", error)
                has_warned = True
                await self.clock.sleep(_LOOK_AGAIN)
            else:
                return

    async def close(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            await writer.stop()

    def abandon(self) -> None:
        """Close without the event loop, which is closed: end the thread, which closes the file."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.end()

    def clone(self) -> Self:
        return type(self)(self.url, namespace=self.namespace, clock=self.clock, path=self.path)

    async def ping(self) -> Pong:
        return await self.run(_pong, Mode.READ)

    @asynccontextmanager
    async def watch(self, *topics: Topic) -> AsyncIterator[Watch]:
        writer = self._opened
        async with self._watchers.watch(*topics) as armed:
            with writer.watched():
                try:
                    # The writer reads the bells before it answers, so it knows those rung until
                    # now.
                    await writer.run(_nothing, Mode.READ)
                except StoreError as error:
                    if writer.forked:
                        raise
                    self._watchers.warn_no_wake_ups(error)
                # The caller repeats its call after this, which covers all earlier changes.
                armed.event.clear()
                yield armed

    async def run(self, work: Work[T], mode: Mode = Mode.WRITE) -> T:
        """Return what `work` returns, once its transaction has been committed."""
        return await self._opened.run(work, mode)

    async def run_brief(self, work: Work[T]) -> T:
        """Do the same for work that takes microseconds and need not reach the disk."""
        return await self._opened.run_brief(work)

    @property
    def _opened(self) -> Writer:
        if self._writer is None:
            msg = f"the store {self.url} is not open. Use it inside 'async with app:'."
            raise StoreError(msg)
        return self._writer


class Part:
    """Leases, jobs or schedules of a store, on its connection."""

    def __init__(self, connection: Connection) -> None:
        self._run = connection.run
        self._run_brief = connection.run_brief


def _pong(tx: Transaction) -> Pong:
    # If the id of the data was removed by hand, '' differs from it as well.
    row = tx.row(READ_INCARNATION)
    return Pong(tx.wall, "" if row is None else str(row[0]))


def _nothing(transaction: Transaction) -> bool:
    """Do nothing. The answer comes once the file is open and checked."""
    del transaction
    return False
