"""Jobs in PostgreSQL: one statement for each call; what it does stands in sql/."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final

from asyncpg.exceptions import LockNotAvailableError

from tenure.core.codec import decode_meta, encode_meta
from tenure.core.durations import micros
from tenure.core.model import Meta, Topic
from tenure.core.records import (
    CANCELS_MAX,
    COUNT_MAX,
    RESTARTS_MAX,
    SOON,
    TAGGED_MAX,
    Beat,
    Cancelled,
    Claimed,
    Inserted,
    JobRecord,
    NewJob,
    Note,
    Page,
    QueueCounts,
    Recovered,
    ReplicaRecord,
    Requeued,
    Settled,
    Settlement,
    Tagged,
)
from tenure.core.soundness import sound
from tenure.core.states import JobState
from tenure.errors import StoreError, StoreUnavailable
from tenure.stores.postgres.asides import GET, Asides, is_of_a_row
from tenure.stores.postgres.job_rows import (
    insert_columns,
    inserted,
    note_columns,
    settle_columns,
    settled,
)
from tenure.stores.postgres.pool import Row

__all__ = ["Jobs"]

_JOIN = "SELECT tenure.replica_join_v1($1, $2, $3, $4, $5)"
_BEAT = "SELECT * FROM tenure.replica_beat_v1($1, $2, $3, $4, $5, $6, $7)"
_REMOVE = "SELECT * FROM tenure.replica_remove_v1($1, $2, $3, $4, $5)"
_REPLICAS = "SELECT * FROM tenure.replica_list_v1($1, $2, $3)"
_INSERT = """
SELECT * FROM tenure.job_insert_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)
"""
_CLAIM = "SELECT * FROM tenure.job_claim_v2($1, $2, $3, $4, $5, $6)"
_SETTLE = "SELECT * FROM tenure.job_settle_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)"
_NOTE = "SELECT tenure.job_note_v1($1, $2, $3, $4, $5, $6)"
_RECOVER = "SELECT * FROM tenure.job_recover_v1($1, $2, $3, $4, $5, $6)"
_CANCEL = "SELECT * FROM tenure.job_cancel_v1($1, $2, $3, $4)"
_REQUEUE = "SELECT * FROM tenure.job_requeue_v2($1, $2, $3)"
_FIND = "SELECT * FROM tenure.job_find_v2($1, $2, $3, $4, $5, $6, $7, $8)"
_COUNTS = "SELECT * FROM tenure.job_counts_v1($1, $2, $3)"
_COUNT_TAGGED = "SELECT * FROM tenure.job_count_tagged_v1($1, $2, $3, $4, $5, $6, $7)"
_PAUSE = "SELECT tenure.queue_pause_v1($1, $2, $3, $4)"
_RESUME = "SELECT tenure.queue_resume_v1($1, $2)"
_PRUNE = "SELECT tenure.job_prune_v1($1, $2, $3)"

_SOON: Final = micros(SOON)
_CANCELLED: Final[dict[str, Cancelled | None]] = {
    "c": "cancelled",
    "r": "requested",
    "f": "finished",
    "-": None,
}
_REQUEUED: Final[dict[str, Requeued | None]] = {
    "r": "requeued",
    "u": "unfinished",
    "x": "conflict",
    "n": "refused",
    "-": None,
}


class Jobs(Asides):
    """The job half of the contract."""

    async def join(self, replica: str, *, ttl: float, meta: Meta) -> None:
        told = self.clock.for_server()
        await self._fetch(_JOIN, self.namespace, replica, micros(ttl), encode_meta(meta), told)

    async def beat(
        self, replicas: Sequence[str], *, ttl: float, ahead: float = 0.0
    ) -> list[Beat | None]:
        told = self.clock.for_server()
        lengths, most = (micros(ttl), micros(ahead)), (CANCELS_MAX, RESTARTS_MAX)
        rows = await self._fetch(_BEAT, self.namespace, list(replicas), *lengths, *most, told)
        changed = [id_ for row in rows[:1] for id_ in row["changed"]]
        self._tell([("job", id_) for id_ in changed])
        more = len(changed) == RESTARTS_MAX
        return [
            Beat(row["cancels"], row["held"], row["expired"], row["at"], more)
            if row["known"]
            else None
            for row in rows
        ]

    async def leave(self, replica: str) -> list[str]:
        told = self.clock.for_server()
        rows = await self._fetch(_REMOVE, self.namespace, replica, None, None, told)
        self._tell_returned(rows)
        return [row["id"] for row in rows]

    async def bury(
        self, replica: str, started: Sequence[str], *, delays: Sequence[float]
    ) -> list[Recovered]:
        told = self.clock.for_server()
        rows = await self._fetch(
            _REMOVE, self.namespace, replica, list(started), _as_text(delays), told
        )
        self._tell_returned(rows)
        return [_as_recovered(row) for row in rows]

    async def replicas(self, *, limit: int = 1000) -> list[ReplicaRecord]:
        rows = await self._fetch(_REPLICAS, self.namespace, limit, self.clock.for_server())
        read = partial(self.damage.read, "replica", "tenure.replica")
        known = (read(row["id"], _as_replica, row) for row in rows)
        return [replica for replica in known if replica is not None]

    async def insert(self, jobs: Sequence[NewJob]) -> list[Inserted]:
        if not jobs:
            return []
        told = self.clock.for_server()
        [row] = await self._fetch(_INSERT, self.namespace, *insert_columns(jobs), told)
        answers = inserted(jobs, row["at"], row["answers"], row["holders"])
        soon = row["at"] + _SOON
        queues = {
            job.queue
            for job, answer in zip(jobs, answers, strict=True)
            if (job.delay <= SOON if job.at is None else job.at <= soon)
            and answer.outcome == "created"
        }
        self._tell([("queue", queue) for queue in queues])
        return answers

    async def claim(
        self, replica: str, claim_no: int, queues: Sequence[str], limit: int
    ) -> Claimed | None:
        wanted = list(dict.fromkeys(queues))
        told = self.clock.for_server()
        arguments = (self.namespace, replica, claim_no, wanted, limit, told)
        try:
            rows = await self._fetch(_CLAIM, *arguments)
        except StoreError as error:
            if not is_of_a_row(error) or not await self._sift(wanted, limit):
                raise
            rows = await self._fetch(_CLAIM, *arguments)
        if not rows:
            return None
        end = rows.pop()
        jobs = self._readable(rows)
        topics: list[Topic] = [("job", job.id) for job in jobs]
        if end["attempt"] and len(rows) == limit:
            # Some may be left that had waited for their time. Others may have looked for them
            # meanwhile, and found them locked.
            topics += [("queue", queue) for queue in queues]
        self._tell(topics)
        if len(jobs) < len(rows):
            # Nobody can ever run them, and this replica would seem to, as long as it lives.
            here = {job.id for job in jobs}
            await self._set_aside([row["id"] for row in rows if row["id"] not in here])
            return Claimed(jobs, 0.0)  # there may be more behind them
        due = end["due"]
        return Claimed(jobs, None if due is None else max(0.0, (due - end["started"]) / 1e6))

    async def settle(self, replica: str, settlements: Sequence[Settlement]) -> list[Settled]:
        del replica  # a fence names the attempt, and the attempt its replica
        if len({one.id for one in settlements}) < len(settlements):
            # One after the other: what the first does to a job decides about the next.
            return [(await self._settle([one]))[0] for one in settlements]
        try:
            return await self._settle(settlements) if settlements else []
        except StoreUnavailable as error:
            if not isinstance(error.__cause__, LockNotAvailableError) or len(settlements) == 1:
                raise
        except StoreError as error:
            if not is_of_a_row(error):
                raise
            if len(settlements) == 1:
                await self._set_aside([settlements[0].id], error)
                return ["unreadable"]
            return [(await self.settle("", [one]))[0] for one in settlements]
        return await self._settle_each(settlements)

    async def _settle_each(self, settlements: Sequence[Settlement]) -> list[Settled]:
        """Settle those that nobody holds in a transaction of their own; raise if there are others.

        The caller repeats it, and what is settled by now stays so.
        """
        alone = await asyncio.gather(
            *(self._settle([one]) for one in settlements), return_exceptions=True
        )
        answers: list[Settled] = []
        for one in alone:
            if isinstance(one, BaseException):
                raise one
            answers += one
        return answers

    async def _settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        told = self.clock.for_server()
        [row] = await self._fetch(
            _SETTLE, self.namespace, *settle_columns(settlements), _SOON, told
        )
        answers = settled(row["answers"])
        topics: list[Topic] = [
            ("job", one.id)
            for one, answer in zip(settlements, answers, strict=True)
            if answer == "settled"
        ]
        topics += [("queue", queue) for queue in row["queues"] or ()]
        self._tell(topics)
        return answers

    async def note(self, replica: str, notes: Sequence[Note]) -> list[bool]:
        del replica
        if not notes:
            return []
        try:
            [[letters]] = await self._fetch(_NOTE, self.namespace, *note_columns(notes))
        except StoreError as error:
            if not is_of_a_row(error):
                raise
            if len(notes) == 1:
                await self._set_aside([notes[0].id], error)
                return [False]
            return [(await self.note("", [note]))[0] for note in notes]
        answers = [letter == "y" for letter in letters]
        self._tell([("job", note.id) for note, y in zip(notes, answers, strict=True) if y])
        return answers

    async def recover(
        self,
        *,
        delays: Sequence[float],
        grace: float,
        limit: int = 100,
        as_of: int | None = None,
    ) -> list[Recovered]:
        told = self.clock.for_server()
        rows = await self._fetch(
            _RECOVER, self.namespace, _as_text(delays), micros(grace), limit, as_of, told
        )
        self._tell_returned(rows)
        return [_as_recovered(row) for row in rows]

    async def cancel(self, ids: Sequence[str], *, reason: str = "") -> list[Cancelled | None]:
        told = self.clock.for_server()
        [row] = await self._fetch(_CANCEL, self.namespace, list(ids), reason, told)
        topics: list[Topic] = [("replica", replica) for replica in row["replicas"]]
        topics += [("job", id_) for id_ in row["changed"]]
        self._tell(topics)
        return [_CANCELLED[letter] for letter in row["answers"]]

    async def requeue(self, ids: Sequence[str]) -> list[Requeued | None]:
        told = self.clock.for_server()
        [row] = await self._fetch(_REQUEUE, self.namespace, list(ids), told)
        topics: list[Topic] = [("queue", queue) for queue in row["queues"]]
        answers = [_REQUEUED[letter] for letter in row["answers"]]
        topics += [
            ("job", id_) for id_, answer in zip(ids, answers, strict=True) if answer == "requeued"
        ]
        self._tell(topics)
        return answers

    async def get(self, ids: Sequence[str]) -> list[JobRecord | None]:
        rows = await self._fetch(GET, self.namespace, list(dict.fromkeys(ids)))
        found = {job.id: job for job in self._readable(rows)}
        return [found.get(id_) for id_ in ids]

    async def find(
        self,
        *,
        state: JobState | None = None,
        queue: str | None = None,
        task: str | None = None,
        tag: str | None = None,
        replica: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page:
        rows = await self._fetch(
            _FIND, self.namespace, state, queue, task, tag, replica, limit, cursor
        )
        following = rows.pop()["id"] if rows and rows[-1]["state"] is None else None
        return Page(self._readable(rows), following)

    async def counts(self) -> list[QueueCounts]:
        rows = await self._fetch(_COUNTS, self.namespace, COUNT_MAX, self.clock.for_server())
        return [_as_counts(row) for row in rows]

    async def count_tagged(
        self, tag: str, *, unfinished: int, recent: int, within: float
    ) -> Tagged:
        limits = TAGGED_MAX, unfinished, recent, micros(within)
        told = self.clock.for_server()
        [row] = await self._fetch(_COUNT_TAGGED, self.namespace, tag, *limits, told)
        return Tagged(row["unfinished"], row["recent"], row["oldest"] / 1e6)

    async def pause(self, queue: str, *, seconds: float | None = None) -> None:
        length = None if seconds is None else micros(seconds)
        await self._fetch(_PAUSE, self.namespace, queue, length, self.clock.for_server())

    async def resume(self, queue: str) -> None:
        await self._fetch(_RESUME, self.namespace, queue)
        self._tell([("queue", queue)])

    async def prune_jobs(self, *, limit: int = 1000) -> int:
        [[pruned]] = await self._fetch(_PRUNE, self.namespace, limit, self.clock.for_server())
        return int(pruned)

    def _tell_returned(self, rows: Iterable[Row]) -> None:
        topics: list[Topic] = []
        for row in rows:
            topics.append(("job", row["id"]))
            if row["due_in"] is not None and row["due_in"] <= _SOON:
                topics.append(("queue", row["queue"]))
        self._tell(topics)


def _as_text(delays: Sequence[float]) -> list[str]:
    return [str(micros(delay)) for delay in delays]


def _as_replica(row: Row) -> ReplicaRecord:
    return sound(
        ReplicaRecord,
        {
            "id": row["id"],
            "meta": decode_meta(row["meta"]),
            "joined": row["joined"],
            "ttl": row["ttl"] / 1e6,
            "expires_in": row["left_over"] / 1e6,
            "dead": row["dead"],
            "held": row["held"],
        },
    )


def _as_recovered(row: Row) -> Recovered:
    return Recovered(id=row["id"], replica=row["replica"], state=row["state"], losses=row["losses"])


def _as_counts(row: Row) -> QueueCounts:
    paused_for = None
    if row["paused"]:
        paused_for = math.inf if row["paused_for"] is None else row["paused_for"] / 1e6
    return QueueCounts(
        queue=row["queue"],
        waiting=row["waiting"],
        running=row["running"],
        oldest=None if row["oldest"] is None else row["oldest"] / 1e6,
        paused_for=paused_for,
    )
