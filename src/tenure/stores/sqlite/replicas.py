"""Replicas in SQLite: who runs jobs, and what becomes of the jobs of those that are gone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tenure.core.clock import Clock
from tenure.core.codec import decode_meta, encode_meta
from tenure.core.durations import micros
from tenure.core.model import Meta
from tenure.core.records import (
    BATCH_MAX,
    CANCELS_MAX,
    RESERVED_FOR,
    RESTARTS_MAX,
    Beat,
    JobRecord,
    Orphans,
    ReplicaRecord,
    Stranded,
)
from tenure.core.soundness import UNREADABLE, sound
from tenure.stores.sqlite import replica_statements as sql
from tenure.stores.sqlite.claims import EmptyClaims
from tenure.stores.sqlite.connection import Connection
from tenure.stores.sqlite.database import Mode
from tenure.stores.sqlite.job_moves import set_aside
from tenure.stores.sqlite.looking import as_record
from tenure.stores.sqlite.transaction import Row, Transaction, as_json

__all__ = ["Replicas"]

# So many records at once still count as brief work.
_FEW = 4

# As a LIMIT: none.
_ALL = -1


class Replicas(Connection):
    """The part of the contract about replicas.

    Their records are of the kind of leases and need not reach the disk (decision 3): after a power
    loss they are void. Whatever moves a job does.
    """

    def __init__(self, url: str, *, namespace: str, clock: Clock, path: Path | None = None) -> None:
        super().__init__(url, namespace=namespace, clock=clock, path=path)
        self._empty_claims = EmptyClaims()

    async def join(self, replica: str, *, ttl: float, meta: Meta) -> None:
        values = {"replica": replica, "ttl": micros(ttl), "meta": encode_meta(meta)}

        def work(tx: Transaction) -> None:
            if tx.row(sql.NUMBER_OF, replica=replica) is None:
                self._empty_claims.forget(replica)  # a repeated join changes no number
            tx.change(sql.JOIN, **values)

        await self._run(work)

    async def beat(
        self, replicas: Sequence[str], *, ttl: float, ahead: float = 0.0, count: bool = True
    ) -> list[Beat | None]:
        del count  # it costs nothing here
        run = self._run_brief if len(replicas) <= _FEW else self._run
        return await run(lambda tx: _beat(tx, replicas, micros(ttl), micros(ahead)))

    async def replicas(self, *, limit: int = 1000) -> list[ReplicaRecord]:
        def work(tx: Transaction) -> list[ReplicaRecord]:
            rows = tx.rows(sql.REPLICAS, limit=limit)
            known = (_replica_in(tx, row) for row in rows)
            return [replica for replica in known if replica is not None]

        return await self._run(work, Mode.READ)

    async def stranded(
        self, ids: Sequence[str] | None = None, *, limit: int = 100
    ) -> list[Stranded]:
        return await self._run(lambda tx: _stranded(tx, ids, limit), Mode.READ)

    async def orphans(
        self,
        *,
        by: str,
        replica: str | None = None,
        grace: float = 0.0,
        limit: int = BATCH_MAX,
        as_of: int | None = None,
    ) -> Orphans:
        def work(tx: Transaction) -> Orphans:
            look = _Look(tx, by, limit)
            if replica is None:
                look.at_all(tx.now if as_of is None else min(tx.now, as_of), micros(grace))
            elif (row := tx.row(sql.NUMBER_OF, replica=replica)) is not None:
                look.at_replica(row[0])
            return look.answer()

        # A look changes records of replicas only, unless it sets a job aside.
        return await self._run(work)


def _stranded(tx: Transaction, ids: Sequence[str] | None, limit: int) -> list[Stranded]:
    wanted = None if ids is None else as_json(ids)
    found = [
        Stranded(
            id=id_ if isinstance(id_, str) else repr(id_),
            why="unreadable",
            where="tenure_aside",
            left=max(0, kept_until - tx.wall) / 1e6,
        )
        for id_, kept_until in tx.rows(sql.ASIDE, ids=wanted, limit=limit)
    ]
    orphans = (str(row[1]) for row in tx.rows(sql.ORPHANS, limit=_ALL))
    found += [
        Stranded(id=id_, why="orphan", where="tenure_live")
        for id_ in orphans
        if ids is None or id_ in ids
    ]
    return found[:limit]


def _beat(tx: Transaction, replicas: Sequence[str], ttl: int, ahead: int) -> list[Beat | None]:
    alive = [tx.row(sql.RENEW_REPLICA, replica=replica, ttl=ttl) for replica in replicas]
    if not any(alive):
        return [None] * len(alive)
    for row in filter(None, alive if ahead else ()):
        tx.change(sql.POSTPONE, holder=row[0], ahead=ahead)
    if restarted := tx.rows(sql.RESTART_PAUSES, limit=RESTARTS_MAX):
        tx.lasting = True
        tx.ring_all([("job", id_) for (id_,) in restarted])
    # Looked at after all of them were renewed: none of these needs recovery.
    _clamp(tx)
    ((expired,),) = tx.rows(sql.NEEDS_RECOVERY)
    more = len(restarted) == RESTARTS_MAX
    return [
        None if row is None else _as_beat(tx, row[0], expired=bool(expired), more=more)
        for row in alive
    ]


def _as_beat(tx: Transaction, holder: int, *, expired: bool, more: bool) -> Beat:
    ((held,),) = tx.rows(sql.COUNT_HELD, holder=holder)
    cancels = tx.rows(sql.CANCELS, holder=holder, limit=CANCELS_MAX) if held else []
    return Beat([id_ for (id_,) in cancels], held, expired, tx.now, more)


class _Look:
    """A look for jobs that run nowhere, or past their deadline."""

    def __init__(self, tx: Transaction, by: str, limit: int) -> None:
        self._tx = tx
        self._taker = {"taker": by, "reserved": micros(RESERVED_FOR)}
        self._limit = limit
        self._jobs: list[JobRecord] = []
        self._aside: dict[int, tuple[str, str]] = {}

    @property
    def _room(self) -> int:
        return self._limit - len(self._jobs) - len(self._aside)

    def at_all(self, until: int, grace: int) -> None:
        """Look at the replicas that have expired until an instant, and at what is overdue."""
        tx = self._tx
        _clamp(tx)
        for holder, id_, is_sound in tx.rows(sql.EXPIRED, by=until, **self._taker):
            if not self._room:
                return  # what was not touched may still revive
            if not is_sound:
                why = f"{UNREADABLE}; its jobs run elsewhere, and the record is removed"
                tx.damage.report("replica", str(id_), why, "tenure_replica")
            self.at_replica(holder)
        self._find(sql.OVERDUE, since=until - grace)
        self._find(sql.ORPHANS)

    def at_replica(self, holder: int) -> None:
        """Look at one replica, which is dead from now on."""
        self._tx.change(sql.MARK_DEAD, holder=holder, **self._taker)
        self._find(sql.HELD, holder=holder)
        self._tx.change(sql.REMOVE_IDLE, holder=holder)

    def _find(self, statement: str, **values: int) -> None:
        known = {job.id for job in self._jobs}
        broken: dict[int, object] = {}
        for number, id_, replica, is_sound, *record in self._tx.rows(
            statement, limit=self._room, **values
        ):
            job = _readable(self._tx, record) if is_sound else None
            if job is None:
                broken[number] = id_
                name = replica if isinstance(replica, str) else ""
                self._aside[number] = (id_ if isinstance(id_, str) else repr(id_), name)
            elif job.id not in known:
                self._jobs.append(job)
        if broken:
            self._tx.lasting = True
            set_aside(self._tx, broken)

    def answer(self) -> Orphans:
        return Orphans(self._tx.wall, self._jobs, list(self._aside.values()))


def _readable(tx: Transaction, row: Sequence[Any]) -> JobRecord | None:
    return tx.damage.read("job", "tenure_job", str(row[0]), as_record, tuple(row))


def _clamp(tx: Transaction) -> None:
    if not tx.boot_id:
        tx.change(sql.CLAMP_REPLICAS)


def _replica_in(tx: Transaction, row: Row) -> ReplicaRecord | None:
    return tx.damage.read("replica", "tenure_replica", str(row[0]), _as_replica, row, tx.now)


def _as_replica(row: Row, now: int) -> ReplicaRecord:
    id_, meta, joined, ttl, of_this_start, renewed, dead, held = row
    left = min(renewed, now) + ttl - now if of_this_start else 0
    return sound(
        ReplicaRecord,
        {
            "id": id_,
            "meta": decode_meta(meta),
            "joined": joined,
            "ttl": ttl / 1e6,
            "expires_in": left / 1e6,
            "dead": bool(dead),
            "held": held,
        },
    )
