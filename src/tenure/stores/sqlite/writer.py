"""The one thread of an open store that talks to SQLite.

Calls queue up while a transaction runs; what has queued up then runs in the next one, with one
commit (group commit). Each call gets its own answer, after the commit.
"""

from __future__ import annotations

import asyncio
import logging
import os
import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, TypeVar
from zlib import crc32

from tenure.core.clock import Clock
from tenure.core.durations import micros
from tenure.core.model import Topic
from tenure.errors import StoreError
from tenure.stores.contract import Migrate
from tenure.stores.sqlite.database import Database, Mode
from tenure.stores.sqlite.failures import is_busy, is_of_file, said
from tenure.stores.watching import Watchers

__all__ = ["Transaction", "Writer"]

T = TypeVar("T")
Row: TypeAlias = tuple[Any, ...]

log = logging.getLogger("tenure")

# A waiter in another process notices within this time. One look takes 3 µs, so 40 of them a second
# cost nothing, and only a store in which somebody waits looks at all.
_LOOK_EVERY = 0.025

# Keeps a transaction, and with it everybody else's wait, below about 10 ms.
_BATCH_MAX = 256

# How far fences may run ahead of the host's clock before they are forced to the disk: less than
# it takes to start a machine again. See `Transaction.must_last`.
_FENCE_LEAD = 1_000_000

# Topics share this many bells per kind, so that the table of wake-ups cannot grow.
_BELLS = 64

_RING = """
    INSERT INTO tenure_wake (namespace, bell, rung) VALUES (:namespace, :bell, 1)
    ON CONFLICT (namespace, bell) DO UPDATE SET rung = rung + 1 -- by primary key
"""
_RUNG = "SELECT bell, rung FROM tenure_wake WHERE namespace = :namespace -- by primary key"


def bell_of(topic: Topic) -> str:
    kind, name = topic
    return f"{kind}:{crc32(name.encode()) % _BELLS}"


class Transaction:
    """What a piece of work sees of the transaction it runs in, at one instant.

    The clock is read after the write lock was got: an instant from before could be old by as long
    as the wait for the lock took.
    """

    __slots__ = ("_common", "_execute", "boot_id", "lasting", "now", "rings", "wall")

    def __init__(self, db: Database, namespace: str, clock: Clock, rings: list[Topic]) -> None:
        self._execute = db.execute
        self.now = micros(clock.boot())
        self.wall = clock.wall()
        self.boot_id = clock.boot_id
        self.rings = rings
        self.lasting = False
        self._common = {"namespace": namespace, "now": self.now, "boot_id": self.boot_id}

    def row(self, statement: str, **values: Any) -> Row | None:
        """Return the only row, or None. `:namespace`, `:now` and `:boot_id` are always known."""
        found: Row | None = self._execute(statement, {**self._common, **values}).fetchone()
        return found

    def rows(self, statement: str, **values: Any) -> list[Row]:
        return self._execute(statement, {**self._common, **values}).fetchall()

    def change(self, statement: str, **values: Any) -> int:
        """Return how many rows were changed."""
        return self._execute(statement, {**self._common, **values}).rowcount

    def ring(self, topic: Topic) -> None:
        """Wake who watches the topic, here at once and in other processes when they look."""
        self.rings.append(topic)
        self.change(_RING, bell=bell_of(topic))

    def keep_fence(self, fence: int) -> None:
        """Force the commit to the disk if time alone does not carry the fence over a power loss.

        Fences follow the host's clock; after a restart it has moved on past all fences given out,
        also those whose commits were lost. Not so if it was set back and fences count on from the
        last one: then only the disk knows how far they have come.
        """
        self.lasting = self.lasting or fence > self.wall + _FENCE_LEAD


Work: TypeAlias = Callable[[Transaction], T]


@dataclass(slots=True)
class _Request:
    work: Work[Any]
    mode: Mode
    future: asyncio.Future[Any]
    answer: Any = None
    error: Exception | None = None


@dataclass(slots=True)
class _Stop:
    future: asyncio.Future[None]
