"""The transaction in which a piece of work runs: statements, parameters, wake-ups."""

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

# Topics of one kind share this many bells, so that the table of wake-ups does not grow.
_BELLS = 64

# How far fences may run ahead of the host's clock before their commits are forced to the disk: less
# than a restart of the machine takes. See `keep_fence`.
_FENCE_LEAD = 1_000_000

# How many rows one statement takes. Measured: twice as many are hardly faster.
_SCORE = 20

# By primary key. The WHERE keeps SQLite from reading ON as part of a join. Topics share bells: a
# damaged count begins anew, as one past the largest integer would refuse all their calls.
RING = """
    INSERT INTO tenure_wake (namespace, bell, rung)
    SELECT :namespace, value, 1 FROM json_each(:bells) WHERE true
    ON CONFLICT (namespace, bell) DO UPDATE
    SET rung = iif(typeof(rung) = 'integer' AND rung < 1000000000000000, rung + 1, 1)
"""


@cache
def _for_rows(statement: str, rows: int, columns: int) -> str:
    """Return a statement with @rows replaced by this many rows of values."""
    row = f"({', '.join('?' * columns)})"
    return statement.replace("@rows", ", ".join([row] * rows))


def as_blob(value: bytes | None) -> bytearray | None:
    """Return bytes as a bytearray, which sqlite3 binds five times as fast.

    It looks up all types but int, float, str and bytearray among the adapters first. In statements
    that run for each job that takes a good part of the time.
    """
    return None if value is None else bytearray(value)


def as_json(values: Sequence[str] | Sequence[int]) -> str:
    """Return a list as a parameter of a statement, in JSON."""
    return msgspec.json.encode(values).decode()


def bells_of(topic: Topic) -> tuple[str, str]:
    """Return the bells that wake the watchers of a topic.

    The first one also wakes watchers of some other topics, the second one those of the whole kind.
    """
    kind, name = topic
    return f"{kind}:{crc32(name.encode()) % _BELLS}", f"{kind}:all"


def fetch(
    execute: Callable[[str, Any], Any], connection: Any, statement: str, values: Any
) -> list[Row]:
    """Return all rows. Text that is not UTF-8 comes as bytes, so that it does not fail the read.

    sqlite3 would raise for the whole statement. Decoding in Python is slower, so that is done only
    after such an error, by running the statement again. So it is only for statements that read.
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
    """An object that can run statements on an open file and returns a cursor."""

    @property
    def execute(self) -> Callable[[str, Any], Any]: ...
    @property
    def fetch(self) -> Callable[[str, Any], list[Row]]: ...


class Transaction:
    """Statements of one transaction, at one instant.

    The clock is read after the write lock was acquired, because waiting for the lock takes time.
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
        # Without the write lock. Work that finds something to write sets `lasting`, and is run
        # again.
        self.is_reading = is_reading
        self.lasting = False
        self.rings: list[Topic] = []

    def row(self, statement: str, **values: Any) -> Row | None:
        """Return the only row, or None. `:namespace :now :wall :boot_id` are always bound."""
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
        """Run a statement with `VALUES @rows` for many rows. It has no other parameters.

        Several rows share a statement, because starting one costs as much as a row.
        """
        for at in range(0, len(values), _SCORE):
            rows = values[at : at + _SCORE]
            text = _for_rows(statement, len(rows), len(rows[0]))
            self._execute(text, [*chain.from_iterable(rows)])

    def ring(self, *topics: Topic) -> None:
        """Wake watchers of topics: in this process after the commit, elsewhere at the next poll.

        Each bell is written once. With so many topics that most bells would ring, only the bell of
        the whole kind rings.
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
        """Force the commit to the disk if the clock alone does not protect this fence.

        Fences follow the host's clock, so after a power loss the clock has passed all of them, even
        those whose commits were lost. If the clock was set back, fences count on from the last one,
        and only the disk has it.
        """
        self.lasting = self.lasting or fence > self.wall + _FENCE_LEAD
