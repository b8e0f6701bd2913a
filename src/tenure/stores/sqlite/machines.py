"""Keeps the traces of machines in the file, so that only one machine at a time uses it.

The ends of leases and replicas are instants of the boot clock, which mean nothing on another
machine. So rows of another boot id count as ended, which is right only if their machine is gone.
Each machine that writes leaves a trace, and none writes while another may be active.
`tenure.core.machines` decides that. This module stores the traces, and the writer calls it in each
of its transactions.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from tenure.core import bounds
from tenure.core.clock import Clock
from tenure.core.durations import micros
from tenure.core.machines import SILENCE, Now, Trace, Watch, judge
from tenure.errors import StoreError, StoreUnavailable
from tenure.stores.sqlite.statements import Speaker, Transaction
from tenure.stores.sqlite.tables import MACHINE, WATCH

__all__ = ["InUseElsewhere", "MaybeInUse", "Presence", "has_company", "others"]

# How often a program leaves a trace while it writes.
_TRACE_EVERY = 1_000_000

# How far in the future the last trace of this machine may seem to be. Programs on one clock agree
# much better.
_SKEW = 1_000_000


class InUseElsewhere(StoreError):
    """Another machine writes to the file."""


class MaybeInUse(StoreUnavailable):
    """Another machine may still write to the file. That is certain after SILENCE."""


# The other machines, and this one if its last trace is in its future: then two clocks have the same
# id. A scan, as there is one row for each machine that is not gone. Only sound rows count, because
# machines write no others. Text is read as bytes, which need not be UTF-8.
_OTHERS = f"""
    SELECT CAST(m.id AS BLOB), CAST(m.host AS BLOB), m.wall, m.boot, m.turn, w.turn, w.since,
           w.was_there
    FROM tenure_machine AS m
    LEFT JOIN tenure_watch AS w
        ON w.machine = :id AND w.other = m.id AND {WATCH.of("w")}
    WHERE (m.id <> :id OR m.boot > :latest) AND {MACHINE.of("m")}
    ORDER BY m.wall DESC
"""  # noqa: S608 - put together from constants

# By primary key.
_LEAVE_TRACE = f"""
    INSERT INTO tenure_machine (id, host, wall, boot, turn)
    VALUES (:id, :host, :wall, :boot, :wall)
    ON CONFLICT (id) DO UPDATE
    SET host = excluded.host, wall = excluded.wall, boot = excluded.boot,
        turn = iif(typeof(turn) = 'integer' AND turn BETWEEN 0 AND {bounds.INSTANT_MAX},
                   max(turn + 1, excluded.turn), excluded.turn)
"""  # noqa: S608 - put together from constants

# By primary key.
_WATCH = """
    INSERT INTO tenure_watch (machine, other, turn, since, was_there)
    VALUES (:id, :other, :turn, :boot, :was_there)
    ON CONFLICT (machine, other) DO UPDATE
    SET turn = excluded.turn, since = excluded.since, was_there = excluded.was_there
"""

# By primary key; the second one is a scan of a few rows.
_FORGET = "DELETE FROM tenure_machine WHERE id = :other AND id <> :id"
_FORGET_ITS_WATCHES = "DELETE FROM tenure_watch WHERE machine = :other AND machine <> :id"


class _File(Speaker, Protocol):
    def commit(self) -> None: ...


def others(execute: Callable[[str, Any], Any], now: Now) -> list[tuple[Trace, Watch | None]]:
    """Return the traces of other machines, the latest first, with the watch of each."""
    rows = execute(_OTHERS, {"id": now.id, "latest": now.boot + _SKEW}).fetchall()
    return [
        (_trace(*row[:5]), None if row[5] is None else Watch(row[5], row[6], bool(row[7])))
        for row in rows
    ]


def _trace(id_: bytes, host: bytes, wall: int, boot: int, turn: int) -> Trace:
    return Trace(id_.decode(errors="replace"), host.decode(errors="replace"), wall, boot, turn)


def has_company(tx: Transaction) -> bool:
    """Return whether there are traces of other machines, old or new."""
    return bool(tx.rows(_OTHERS, id=tx.boot_id, latest=tx.now + _SKEW))


class Presence:
    """Leaves the traces of one open store, and checks those of other machines."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        # When the last trace was left, and when that of the current transaction.
        self._left: int | None = None
        self._leaving: int | None = None

    def confirm(self, file: _File) -> None:
        """Leave a trace in the current transaction, which has the write lock.

        If another machine may be active, it records what was seen of it, ends the transaction and
        raises InUseElsewhere or MaybeInUse. One check per second is enough, because no other
        machine writes within SILENCE of a trace of this one.
        """
        if self._clock.virtual:
            return  # tests may use one file under many clocks, each of which starts again
        boot = micros(self._clock.boot())
        if self._left is not None and 0 <= boot - self._left < _TRACE_EVERY:
            return
        now = Now.on(self._clock)
        refusals = [
            refusal
            for trace, watch in others(file.execute, now)
            if (refusal := self._refusal(file, now, trace, watch)) is not None
        ]
        if refusals:
            file.commit()
            raise refusals[0]
        file.execute(_LEAVE_TRACE, {**now._asdict(), "host": platform.node()})
        self._leaving = now.boot

    def committed(self) -> None:
        """Record that the transaction was committed, and its trace with it."""
        self._left = self._leaving

    def _refusal(
        self, file: _File, now: Now, trace: Trace, watch: Watch | None
    ) -> StoreError | None:
        verdict = judge(trace, watch, now)
        about = {**now._asdict(), "other": trace.id}
        if verdict == "gone":
            file.execute(_FORGET, about)
            file.execute(_FORGET_ITS_WATCHES, about)
            return None
        if watch is None or watch.turn != trace.turn or watch.since > now.boot:
            seen = {"turn": trace.turn, "was_there": int(verdict == "there")}
            file.execute(_WATCH, {**about, **seen})
        if verdict == "there":
            return InUseElsewhere(
                f"{self._path} is in use by programs of another machine, or of a container with "
                f"another clock: {trace.host}. An SQLite file serves one machine at a time. Stop "
                "the programs there, or use redis:// or postgresql:// for several machines. Once "
                f"they have written nothing for {SILENCE // 1_000_000} s, this one goes on."
            )
        return MaybeInUse(
            f"{self._path} was written to by another machine, or by a container with another "
            f"clock, a short while ago: {trace.host}. If it was stopped, or the file was copied, "
            f"there is nothing to do: after {SILENCE // 1_000_000} s without another write the "
            "file is used here. If it is at work, stop one of the two, or use redis:// or "
            "postgresql:// for both."
        )
