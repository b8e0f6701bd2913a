"""What a piece of work sees of the transaction it runs in."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from functools import cache
from itertools import chain
from typing import Any, Protocol, TypeAlias
from zlib import crc32

import msgspec

from tenure.core.clock import Clock
from tenure.core.durations import micros
from tenure.core.leases import Topic
from tenure.stores.damage import Damage

__all__ = ["Row", "Speaker", "Transaction", "as_blob", "as_json", "bells_of", "fetch"]

Row: TypeAlias = tuple[Any, ...]

# Topics share this many bells per kind, so that the table of wake-ups cannot grow.
_BELLS = 64

# How far fences may run ahead of the host's clock before their commits are forced to the disk:
# less than it takes to start a machine again. See `keep_fence`.
_FENCE_LEAD = 1_000_000

# How many rows go into a statement at once. Twice as many make it hardly any faster.
_SCORE = 20

# By primary key. The WHERE keeps SQLite from reading ON as part of a join.
RING = """
    INSERT INTO tenure_wake (namespace, bell, rung)
    SELECT :namespace, value, 1 FROM json_each(:bells) WHERE true
    ON CONFLICT (namespace, bell) DO UPDATE SET rung = rung + 1
"""


@cache
def _for_rows(statement: str, rows: int, columns: int) -> str:
    """Return a statement for so many rows of values, which stand for @rows in it."""
    row = f"({', '.join('?' * columns)})"
    return statement.replace("@rows", ", ".join([row] * rows))


def as_blob(value: bytes | None) -> bytearray | None:
    """Return bytes in the form in which sqlite3 binds them five times as fast.

    Everything but int, float, str and bytearray it first looks up among the adapters. In statements
    that run for each job that is a good part of the time.
    """
    return None if value is None else bytearray(value)


def as_json(values: Sequence[str] | Sequence[int]) -> str:
    """Return a list in the form in which a statement takes it."""
    return msgspec.json.encode(values).decode()


def bells_of(topic: Topic) -> tuple[str, str]:
    """Return the bells that wake the watchers of a topic.

    The first one wakes those of some other topics, too; the second one those of the whole kind.
    """
    kind, name = topic
    return f"{kind}:{crc32(name.encode()) % _BELLS}", f"{kind}:all"


def fetch(
    execute: Callable[[str, Any], Any], connection: Any, statement: str, values: Any
) -> list[Row]:
    """Return all rows. Text that is not UTF-8 comes as bytes, so that one value fails no read.

    sqlite3 would raise for the whole statement. To decode text in Python takes longer, so that is
    done only where it is needed. What writes and returns text must not come here.
    """
    try:
        rows: list[Row] = execute(statement, values).fetchall()
    except sqlite3.OperationalError as error:
        if "Could not decode to UTF-8" not in str(error):
            raise
    else:
        return rows
    liked = connection.text_factory
    connection.text_factory = _text_or_bytes
    try:
        rows = execute(statement, values).fetchall()
    finally:
        connection.text_factory = liked
    return rows


def _text_or_bytes(stored: bytes) -> str | bytes:
    try:
        return stored.decode()
    except UnicodeDecodeError:
        return stored


class Speaker(Protocol):
    """Whoever can run statements on an open file; what they return is a cursor."""

    @property
    def execute(self) -> Callable[[str, Any], Any]: ...
    @property
    def fetch(self) -> Callable[[str, Any], list[Row]]: ...


class Transaction:
    """Statements of one transaction, at one instant.

    The clock is read after the write lock was got; an instant from before could be old by as much
    as the wait for the lock.
    """

    def __init__(
        self,
        db: Speaker,
        namespace: str,
        clock: Clock,
        damage: Damage,
        *,
        is_reading: bool = False,
    ) -> None:
        self._execute = db.execute
        self._fetch = db.fetch
        self.namespace = namespace
        self.damage = damage
        self.now = micros(clock.boot())
        self.wall = clock.wall()
        self.boot_id = clock.boot_id
        self._common = {
            "namespace": namespace,
            "now": self.now,
            "wall": self.wall,
            "boot_id": self.boot_id,
        }
        # Without the write lock. Work that finds something to write sets `lasting`, and runs again.
        self.is_reading = is_reading
        self.lasting = False
        self.rings: list[Topic] = []

    def row(self, statement: str, **values: Any) -> Row | None:
        """Return the only row, or None. `:namespace :now :wall :boot_id` are always known."""
        rows = self._fetch(statement, {**self._common, **values})
        return rows[0] if rows else None

    def rows(self, statement: str, **values: Any) -> list[Row]:
        """Return all rows."""
        return self._fetch(statement, {**self._common, **values})

    def change(self, statement: str, **values: Any) -> int:
        """Return how many rows were changed."""
        changed: int = self._execute(statement, {**self._common, **values}).rowcount
        return changed

    def change_each(self, statement: str, values: Sequence[Row]) -> None:
        """Run a statement with `VALUES @rows` for many rows. Nothing else is known to it.

        The rows go in by the score: to start a statement takes as long as to run it for a row.
        """
        for at in range(0, len(values), _SCORE):
            rows = values[at : at + _SCORE]
            text = _for_rows(statement, len(rows), len(rows[0]))
            self._execute(text, [*chain.from_iterable(rows)])

    def ring(self, *topics: Topic) -> None:
        """Wake who watches topics of one kind: here after the commit, elsewhere at the next look.

        Each bell is written to once. So many topics that most bells would ring anyway ring the one
        that stands for all of the kind.
        """
        if not topics:
            return
        self.rings += topics
        if len(topics) > _BELLS:
            bells = {bells_of(topics[0])[1]}
        else:
            bells = {bells_of(topic)[0] for topic in topics}
        self.change(RING, bells=as_json([*bells]))

    def keep_fence(self, fence: int) -> None:
        """Have the commit forced to the disk if time alone does not carry this fence.

        Fences follow the host's clock, so after a power loss it has passed all of them, also
        those whose commits were lost. Not so if the clock was set back and fences count on from
        the last one: then only the disk knows how far they have come.
        """
        self.lasting = self.lasting or fence > self.wall + _FENCE_LEAD
