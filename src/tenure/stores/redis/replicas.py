"""Replicas on Redis: the processes that run jobs, and what becomes of their jobs without them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal, TypeAlias

from tenure.core.codec import decode_meta, encode_meta
from tenure.core.durations import micros
from tenure.core.model import Meta
from tenure.core.records import BATCH_MAX, CANCELS_MAX, RESTARTS_MAX, Beat, Recovered, ReplicaRecord
from tenure.core.soundness import UNREADABLE, Stranded, sound
from tenure.stores.redis.jobs import JobScripts
from tenure.stores.redis.scripts import BEAT, JOIN, LEAVE, RECOVER, REPLICAS, STRANDED
from tenure.stores.redis.wire import Word, text

__all__ = ["Replicas"]

_Left: TypeAlias = Literal["waiting", "failed", "cancelled"] | None

_LEFT: Final[dict[int, _Left]] = {0: "waiting", 3: "failed", 4: "cancelled", -1: None}
"""What a job becomes without its replica, as lua/jobs.lua counts states."""


class Replicas(JobScripts):
    """The processes that run jobs."""

    async def join(self, replica: str, *, ttl: float, meta: Meta) -> None:
        await self._job_script(JOIN, replica, micros(ttl), encode_meta(meta))

    async def beat(
        self, replicas: Sequence[str], *, ttl: float, ahead: float = 0.0, count: bool = True
    ) -> list[Beat | None]:
        del count  # it costs nothing here
        lengths = micros(ttl), micros(ahead)
        most = CANCELS_MAX, RESTARTS_MAX
        now, late, more, *rows = await self._job_script(BEAT, *lengths, *most, *replicas)
        return [
            Beat([text(id_) for id_ in row[1]], row[0], bool(late), now, bool(more))
            if row
            else None
            for row in rows
        ]

    async def leave(self, replica: str) -> list[str]:
        return [text(id_) for id_, _, _ in await self._leave(replica, (0,))]

    async def bury(
        self, replica: str, started: Sequence[str], *, delays: Sequence[float]
    ) -> list[Recovered]:
        words: list[Word] = [len(delays), *map(micros, delays), *started]
        return [
            Recovered(id=text(id_), replica=replica, state=_LEFT[state], losses=losses)
            for id_, state, losses in await self._leave(replica, words)
        ]

    async def _leave(self, replica: str, words: Sequence[Word]) -> list[Any]:
        left: list[Any] = []
        while True:
            some = await self._job_script(LEAVE, replica, BATCH_MAX, *words)
            left += some
            if len(some) < BATCH_MAX:
                return left

    async def recover(
        self,
        *,
        delays: Sequence[float],
        grace: float,
        limit: int = 100,
        as_of: int | None = None,
    ) -> list[Recovered]:
        by = "" if as_of is None else as_of
        recovered: list[Recovered] = []
        while len(recovered) < limit:
            most = min(BATCH_MAX, limit - len(recovered))
            words = (most, BATCH_MAX, micros(grace), by, *map(micros, delays))
            replicas, *reply = await self._job_script(RECOVER, *words)
            recovered += [
                Recovered(id=text(id_), replica=text(replica), state=_LEFT[state], losses=losses)
                for id_, replica, state, losses in reply
            ]
            if len(reply) < most and replicas < BATCH_MAX:
                break
        return recovered

    async def stranded(
        self, ids: Sequence[str] | None = None, *, limit: int = 100
    ) -> list[Stranded]:
        if ids is not None and not ids:
            return []
        reply = await self._job_script(STRANDED, limit, *(ids or ()))
        aside, left, orphans, replicas = reply
        found = [
            Stranded(
                id=text(id_), why="unreadable", where=f"{self._tag}job:broken", left=seconds / 1e6
            )
            for id_, seconds in zip(aside, left, strict=True)
        ]
        found += [
            Stranded(id=text(id_), why="orphan", where=f"{self._tag}job:held", replica=text(name))
            for id_, name in zip(orphans, replicas, strict=True)
        ]
        return found[:limit]

    async def replicas(self, *, limit: int = 1000) -> list[ReplicaRecord]:
        known: list[ReplicaRecord] = []
        for first in range(0, limit, BATCH_MAX):
            last = min(limit, first + BATCH_MAX) - 1
            rows = await self._job_script(REPLICAS, first, last)
            known += [replica for row in rows if (replica := self._read_replica(row)) is not None]
            if len(rows) < BATCH_MAX:
                break
        return known

    def _read_replica(self, row: list[Any]) -> ReplicaRecord | None:
        where, name = f"{self._tag}job:replicas", text(row[0])
        if len(row) == 1:
            self.damage.report("replica", name, UNREADABLE, where)
            return None
        return self.damage.read("replica", where, name, _replica, *row)


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
