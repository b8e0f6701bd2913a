"""Replicas on Redis: their records and beats, and the recovery of their jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tenure.core.bounds import UNREADABLE, sound
from tenure.core.durations import micros
from tenure.core.jobs.records import BATCH_MAX, JobRecord
from tenure.core.jobs.replicas import (
    RESERVED_FOR,
    STATS_FOR,
    STATS_MAX,
    Beat,
    Orphans,
    ReplicaRecord,
    Stats,
)
from tenure.core.leases import Meta
from tenure.core.meta import decode_meta, encode_meta
from tenure.stores.redis.job_part import JobPart
from tenure.stores.redis.records import read_orphan
from tenure.stores.redis.wire import Word, text

__all__ = ["Replicas"]


class Replicas(JobPart):
    """The calls about replicas. Each is one script; lua/jobs.lua describes the keys."""

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
        joins = "" if meta is None else f"={encode_meta(meta)}"
        words: tuple[Word, ...] = (micros(ttl), micros(ahead), joins, *replicas)
        if stats is None:
            reply = await self._run("beat", *words)
        else:
            left = (stats.source, stats.body, micros(STATS_FOR))
            reply = await self._run_with_stats("beat", *words, *left)
        now, late, more, *rows = reply
        return [
            Beat([text(id_) for id_ in row[1]], row[0], bool(late), now, bool(more))
            if row
            else None
            for row in rows
        ]

    async def orphans(
        self,
        *,
        by: str,
        replica: str | None = None,
        grace: float = 0.0,
        limit: int = BATCH_MAX,
        as_of: int | None = None,
    ) -> Orphans:
        words = (by, micros(RESERVED_FOR), replica or "", min(limit, BATCH_MAX), micros(grace))
        now, gone, dead, *parts = await self._run("orphans", *words, "" if as_of is None else as_of)
        jobs: list[JobRecord] = []
        aside = [(text(id_), text(whose)) for id_, whose in gone]
        for id_, whose, record, fixed in zip(*[iter(parts)] * 4, strict=True):
            job = self._read_job(text(id_), record, fixed, read_orphan)
            if job is not None:
                jobs.append(job)
            elif await self._run("aside", text(whose), text(id_)):
                aside.append((text(id_), text(whose)))
        for name, _ in aside:
            self._report_aside(name)
        return Orphans(now, jobs, aside, [text(id_) for id_ in dead])

    async def replicas(self, *, limit: int = 1000) -> list[ReplicaRecord]:
        replicas: list[ReplicaRecord] = []
        for first in range(0, limit, BATCH_MAX):
            last = min(limit, first + BATCH_MAX) - 1
            rows = await self._run("replicas", first, last)
            readable = map(self._read_replica, rows)
            replicas += [replica for replica in readable if replica is not None]
            if len(rows) < BATCH_MAX:
                break
        return replicas

    async def stats(self) -> list[bytes]:
        return await self._run_with_stats("stats", micros(STATS_FOR), STATS_MAX)

    async def _run_with_stats(self, script: str, *words: Word) -> list[Any]:
        """Run a script on the keys of jobs and of stats, which few calls need."""
        keys = (*self._keys, f"{self._tag}job:stats", f"{self._tag}job:stated")
        return await self._connection.run(script, keys, self._connection.bells, *words)

    def _read_replica(self, row: list[Any]) -> ReplicaRecord | None:
        where, name = f"{self._tag}job:replicas", text(row[0])
        if len(row) == 1:
            self._damage.report("replica", name, UNREADABLE, where)
            return None
        return self._damage.read("replica", where, name, _replica, *row)


def _replica(  # noqa: PLR0917 - the values of a row, in its order
    id_: bytes, meta: bytes, joined: int, ttl: int, left: int, dead: int, held: int
) -> ReplicaRecord:
    return sound(
        ReplicaRecord,
        {
            "id": id_.decode(),
            "meta": decode_meta(meta),
            "joined": joined,
            "ttl": ttl / 1e6,
            "expires_in": left / 1e6,
            "dead": bool(dead),
            "held": held,
        },
    )
