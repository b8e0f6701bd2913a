"""The job part of the SQLite store: runs the work of each call, with its durability."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from tenure.core.durations import micros
from tenure.core.jobs.records import (
    BATCH_MAX,
    Cancelled,
    Claimed,
    Deleted,
    Inserted,
    JobRecord,
    NewJob,
    Note,
    Page,
    QueueCounts,
    Requeued,
    Settled,
    Settlement,
    Tagged,
)
from tenure.core.jobs.replicas import Beat, Orphans, ReplicaRecord, Stats
from tenure.core.jobs.states import JobState
from tenure.core.leases import Meta
from tenure.core.meta import encode_meta
from tenure.stores.sqlite.claims import Claim, EmptyClaims, claim
from tenure.stores.sqlite.connection import Connection, Part
from tenure.stores.sqlite.database import Mode
from tenure.stores.sqlite.finished import delete, requeue
from tenure.stores.sqlite.inserts import insert
from tenure.stores.sqlite.lists import count_tagged, find
from tenure.stores.sqlite.orphans import Look, stranded
from tenure.stores.sqlite.queues import counts, pause
from tenure.stores.sqlite.records import get
from tenure.stores.sqlite.replicas import beat, join, leave_stats, listed, stats_of
from tenure.stores.sqlite.settlements import cancel, note, settle
from tenure.stores.sqlite.statements import Transaction, as_json

__all__ = ["Jobs"]

# Up to this many records count as brief work.
_FEW = 4


class Jobs(Part):
    """The job part of the contract. Every change of a job is on the disk before its answer."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self._empty_claims = EmptyClaims()

    async def beat(
        self,
        replicas: Sequence[str],
        *,
        ttl: float,
        meta: Meta | None = None,
        ahead: float = 0.0,
        count: bool = True,
        stats: Stats | None = None,
    ) -> list[Beat | None]:
        del count  # it costs nothing here

        def work(tx: Transaction) -> list[Beat | None]:
            for replica in () if meta is None else replicas:
                if join(tx, replica, micros(ttl), encode_meta(meta or {})):
                    self._empty_claims.pop(replica, None)  # a repeated join changes no number
            if stats is not None:
                leave_stats(tx, stats)
            return beat(tx, replicas, micros(ttl), micros(ahead))

        run = self._run_brief if meta is None and len(replicas) <= _FEW else self._run
        return await run(work)

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
            look = Look(tx, by, limit)
            if replica is not None:
                return look.at_replica(replica)
            return look.at_all(tx.now if as_of is None else min(tx.now, as_of), micros(grace))

        # It changes records of replicas only, unless it sets a job aside.
        return await self._run(work)

    async def replicas(self, *, limit: int = 1000) -> list[ReplicaRecord]:
        return await self._run(lambda tx: listed(tx, limit), Mode.READ)

    async def stats(self) -> list[bytes]:
        return await self._run(stats_of, Mode.READ)

    async def insert(self, jobs: Sequence[NewJob]) -> list[Inserted]:
        return await self._run(lambda tx: insert(tx, jobs), Mode.DURABLE)

    async def claim(
        self, replica: str, claim_no: int, queues: Sequence[str], limit: int
    ) -> Claimed | None:
        request = Claim(replica, claim_no, as_json(list(dict.fromkeys(queues))), limit)

        def work(tx: Transaction) -> Claimed | None:
            return claim(tx, self._empty_claims, request)

        # It reads first. If there are jobs to start, the writer runs it again in DURABLE mode.
        return await self._run(work, Mode.READ)

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        return await self._run(lambda tx: settle(tx, settlements), Mode.DURABLE)

    async def note(self, notes: Sequence[Note]) -> list[bool]:
        return await self._run(lambda tx: note(tx, notes), Mode.DURABLE)

    async def cancel(self, ids: Sequence[str], *, reason: str = "") -> list[Cancelled | None]:
        return await self._run(lambda tx: cancel(tx, ids, reason), Mode.DURABLE)

    async def requeue(self, ids: Sequence[str]) -> list[Requeued | None]:
        return await self._run(lambda tx: requeue(tx, ids), Mode.DURABLE)

    async def delete(self, ids: Sequence[str]) -> list[Deleted | None]:
        return await self._run(lambda tx: delete(tx, ids), Mode.DURABLE)

    async def get(self, ids: Sequence[str]) -> list[JobRecord | None]:
        return await self._run(lambda tx: get(tx, ids), Mode.READ)

    async def find(
        self,
        *,
        state: JobState | Literal["stranded"] | None = None,
        queue: str | None = None,
        task: str | None = None,
        tag: str | None = None,
        replica: str | None = None,
        id_end: str | None = None,
        error: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page:
        filters = {"state": state, "queue": queue, "task": task, "tag": tag, "replica": replica}
        filters |= {"id_end": id_end, "error": error}

        def work(tx: Transaction) -> Page:
            if state == "stranded":
                return Page([], None, stranded(tx, limit))
            return find(tx, limit, cursor, **filters)

        return await self._run(work, Mode.READ)

    async def counts(self) -> list[QueueCounts]:
        return await self._run(counts, Mode.READ)

    async def count_tagged(
        self, tag: str, *, unfinished: int, recent: int, within: float
    ) -> Tagged:
        def work(tx: Transaction) -> Tagged:
            return count_tagged(tx, tag, unfinished, recent, within)

        return await self._run(work, Mode.READ)

    async def pause(self, queue: str, *, seconds: float | None = None, reason: str = "") -> None:
        await self._run(lambda tx: pause(tx, queue, seconds, reason), Mode.DURABLE)
