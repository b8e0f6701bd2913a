"""Jobs in PostgreSQL: one statement for each call, which runs a function in sql/."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, Literal, TypeVar

from asyncpg.exceptions import LockNotAvailableError

from tenure.core.bounds import SET_ASIDE
from tenure.core.durations import micros
from tenure.core.jobs.records import (
    COUNT_MAX,
    SOON,
    TAGGED_MAX,
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
    Stranded,
    Tagged,
)
from tenure.core.jobs.states import JobState, may_delete
from tenure.core.leases import Topic
from tenure.errors import StoreError, StoreUnavailable
from tenure.stores.postgres.claim_bounds import Bounds, Look, expensive
from tenure.stores.postgres.connection import Connection
from tenure.stores.postgres.job_part import TABLE, JobPart, as_record, is_of_a_row
from tenure.stores.postgres.pool import Row, Subject
from tenure.stores.postgres.records import (
    insert_columns,
    inserted,
    note_columns,
    settle_columns,
    settled,
)
from tenure.stores.postgres.replicas import Replicas

__all__ = ["Jobs"]

Item = TypeVar("Item")
Answer = TypeVar("Answer")

_INSERT = """
SELECT * FROM tenure.job_insert(
    $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18)
"""
_CLAIM = """
SELECT * FROM tenure.job_claim($1, $2, $3, $4, $5, $6::text[]::bigint[], $7, $8)
"""
_SETTLE = "SELECT * FROM tenure.job_settle($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)"
_NOTE = "SELECT tenure.job_note($1, $2, $3, $4, $5, $6)"
_CANCEL = "SELECT * FROM tenure.job_cancel($1, $2, $3, $4)"
_REQUEUE = "SELECT * FROM tenure.job_requeue($1, $2, $3)"
_FIND = "SELECT * FROM tenure.job_find($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"
_COUNTS = "SELECT * FROM tenure.job_counts($1, $2, $3)"
_COUNT_TAGGED = "SELECT * FROM tenure.job_count_tagged($1, $2, $3, $4, $5, $6, $7)"
_PAUSE = "SELECT tenure.queue_pause($1, $2, $3, $4, $5)"
_GET = "SELECT * FROM tenure.job_get($1, $2)"
_DELETE = "SELECT tenure.job_delete($1, $2, $3)"
_STRANDED = "SELECT * FROM tenure.job_stranded($1, $2, $3)"
_SIFT = "SELECT tenure.job_sift($1, $2, $3, $4)"

_SOON: Final = micros(SOON)
# Another insert holds a key for a few milliseconds, a transaction of the user for any time. All
# jobs of a batch wait for a held key.
_KEY_PATIENCE_MS: Final = 100
# How often a delete looks again at jobs that begin to run meanwhile.
_DELETE_TRIES: Final = 10
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


class Jobs(JobPart):
    """The job part of the contract."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self._bounds = Bounds()
        replicas = Replicas(connection)
        self.beat = replicas.beat
        self.orphans = replicas.orphans
        self.replicas = replicas.list
        self.stats = replicas.stats

    async def insert(self, jobs: Sequence[NewJob]) -> list[Inserted]:
        if not jobs:
            return []
        keys = [None if job.unique is None else job.unique.key for job in jobs]
        about: list[Subject] = [("job", [job.id for job in jobs]), ("key", keys)]
        columns = insert_columns(jobs)
        [row] = await self._decide(_INSERT, *columns, _KEY_PATIENCE_MS, about=about)
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
        distinct = list(dict.fromkeys(queues))
        began = self._clock.boot()
        starts = self._bounds.begin(distinct, began)
        pages = expensive(len(distinct), limit)
        arguments = (replica, claim_no, distinct, limit, starts, pages)
        # A queue that an earlier call has paused gives no jobs.
        about = [("replica", [replica]), ("queue", distinct)]
        try:
            rows = await self._decide(_CLAIM, *arguments, about=about)
        except StoreError as error:
            if not is_of_a_row(error) or not await self._sift(distinct, limit):
                raise
            rows = await self._decide(_CLAIM, *arguments, about=about)
        if not rows:
            return None
        end = rows.pop()
        jobs = self._readable(rows)
        topics: list[Topic] = [("job", job.id) for job in jobs]
        if end["attempt"] and len(rows) == limit:
            # Delayed jobs that are due may be left: another claim may have found them locked
            # meanwhile.
            topics += [("queue", queue) for queue in queues]
        self._tell(topics)
        if len(jobs) < len(rows):
            # No worker can run them, and they would seem to run on this replica.
            here = {job.id for job in jobs}
            await self._set_aside([row["id"] for row in rows if row["id"] not in here])
            return Claimed(jobs, 0.0)  # there may be more jobs behind them
        due = end["due"]
        next_in = None if due is None else max(0.0, (due - end["started"]) / 1e6)
        if end["losses"] is None:
            return Claimed(jobs, next_in)  # a repeat, or one that came too late
        now = self._clock.boot()
        look = None if end["message"] is None else _as_look(rows, end, limit)
        self._bounds.end(distinct, starts, look, began, now)
        if starts is not None and len(rows) < limit:
            whole_in = self._bounds.whole_in(now)
            next_in = whole_in if next_in is None else min(next_in, whole_in)
        return Claimed(jobs, next_in)

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        if len({settlement.id for settlement in settlements}) < len(settlements):
            # In sequence, because the first change of a job decides about the next one.
            return [(await self._settle([settlement]))[0] for settlement in settlements]
        try:
            return await _past_held(self._settle, settlements) if settlements else []
        except StoreError as error:
            if not is_of_a_row(error):
                raise
            if len(settlements) == 1:
                await self._set_aside([settlements[0].id], error)
                return ["unreadable"]
            return [(await self.settle([settlement]))[0] for settlement in settlements]

    async def _settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        columns = settle_columns(settlements)
        about = [("job", [settlement.id for settlement in settlements])]
        [row] = await self._decide(_SETTLE, *columns, _SOON, about=about)
        answers = settled(row["answers"])
        topics: list[Topic] = [
            ("job", settlement.id)
            for settlement, answer in zip(settlements, answers, strict=True)
            if answer in ("settled", "cancelled")
        ]
        topics += [("queue", queue) for queue in row["queues"] or ()]
        self._tell(topics)
        return answers

    async def note(self, notes: Sequence[Note]) -> list[bool]:
        if not notes:
            return []
        about = [("job", [note.id for note in notes])]
        try:
            [[letters]] = await self._read(_NOTE, *note_columns(notes), about=about)
        except StoreError as error:
            if not is_of_a_row(error):
                raise
            if len(notes) == 1:
                await self._set_aside([notes[0].id], error)
                return [False]
            return [(await self.note([note]))[0] for note in notes]
        answers = [letter == "y" for letter in letters]
        self._tell([("job", note.id) for note, y in zip(notes, answers, strict=True) if y])
        return answers

    async def _sift(self, queues: Sequence[str], limit: int) -> bool:
        """Set aside unclaimable jobs among the first in these queues. Returns whether there were
        any.
        """
        [[aside]] = await self._decide(_SIFT, list(queues), limit)
        for id_ in aside:
            self._damage.report("job", id_, SET_ASIDE, TABLE)
        return bool(aside)

    async def cancel(self, ids: Sequence[str], *, reason: str = "") -> list[Cancelled | None]:
        return await _past_held(partial(self._cancel, reason), ids)

    async def _cancel(self, reason: str, ids: Sequence[str]) -> list[Cancelled | None]:
        [row] = await self._decide(_CANCEL, list(ids), reason, about=[("job", ids)])
        topics: list[Topic] = [("replica", replica) for replica in row["replicas"]]
        topics += [("job", id_) for id_ in row["changed"]]
        self._tell(topics)
        return [_CANCELLED[letter] for letter in row["answers"]]

    async def requeue(self, ids: Sequence[str]) -> list[Requeued | None]:
        return await _past_held(self._requeue, ids)

    async def _requeue(self, ids: Sequence[str]) -> list[Requeued | None]:
        [row] = await self._decide(_REQUEUE, list(ids), about=[("job", ids)])
        topics: list[Topic] = [("queue", queue) for queue in row["queues"]]
        answers = [_REQUEUED[letter] for letter in row["answers"]]
        topics += [
            ("job", id_) for id_, answer in zip(ids, answers, strict=True) if answer == "requeued"
        ]
        self._tell(topics)
        return answers

    async def delete(self, ids: Sequence[str]) -> list[Deleted | None]:
        answers = await self._delete(list(dict.fromkeys(ids)), tries=_DELETE_TRIES)
        # An id that is named twice is gone the second time.
        return [
            None if id_ in ids[:at] and answers[id_] == "deleted" else answers[id_]
            for at, id_ in enumerate(ids)
        ]

    async def _delete(self, ids: list[str], tries: int) -> dict[str, Deleted | None]:
        """Read jobs, decide in Python, and remove those that have not begun to run since."""
        about = [("job", ids)]
        states: dict[str, JobState | None] = {}
        for row in await self._read(_GET, ids, about=about):
            states[row["id"]] = None
            with suppress(ValueError, TypeError, ArithmeticError, RecursionError):
                states[row["id"]] = as_record(row).state
        # Also ids without a row: `get` leaves out jobs that were set aside.
        going = [id_ for id_ in ids if may_delete(states.get(id_))]
        damaged = [id_ for id_ in going if id_ in states and states[id_] is None]
        [[gone]] = await self._read(_DELETE, going, damaged, about=about)
        self._tell([("job", id_) for id_ in gone])
        answers: dict[str, Deleted | None] = {
            id_: "deleted" if id_ in gone else None if id_ in going else "running" for id_ in ids
        }
        # Claimed or requeued since, or removed by another call.
        changed = [id_ for id_ in going if id_ in states and id_ not in gone]
        if changed and tries > 1:
            return answers | await self._delete(changed, tries - 1)
        return answers | dict.fromkeys(changed, "running")

    async def get(self, ids: Sequence[str]) -> list[JobRecord | None]:
        distinct = list(dict.fromkeys(ids))
        rows = await self._read(_GET, distinct, about=[("job", distinct)])
        jobs = {job.id: job for job in self._readable(rows)}
        return [jobs.get(id_) for id_ in ids]

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
        if state == "stranded":
            rows = await self._decide(_STRANDED, limit)
            return Page([], None, [_as_stranded(row) for row in rows[:limit]])
        filters = (state, queue, task, tag, replica, id_end, error)
        *rows, end = await self._read(_FIND, *filters, limit, cursor)
        return Page(self._readable(rows), end["id"], visited=end["attempt"])

    async def counts(self) -> list[QueueCounts]:
        return [_as_counts(row) for row in await self._decide(_COUNTS, COUNT_MAX)]

    async def count_tagged(
        self, tag: str, *, unfinished: int, recent: int, within: float
    ) -> Tagged:
        limits = TAGGED_MAX, unfinished, recent, micros(within)
        [row] = await self._decide(_COUNT_TAGGED, tag, *limits)
        return Tagged(row["unfinished"], row["recent"], row["oldest"] / 1e6)

    async def pause(self, queue: str, *, seconds: float | None = None, reason: str = "") -> None:
        length = None if seconds is None else micros(seconds)
        await self._decide(_PAUSE, queue, length, reason, about=[("queue", [queue])])
        if length == 0:
            self._tell([("queue", queue)])


async def _past_held(
    send: Callable[[Sequence[Item]], Awaitable[list[Answer]]], items: Sequence[Item]
) -> list[Answer]:
    """Send all items in one call; if an open transaction locks one of them, each in its own call.

    Raises StoreUnavailable then, after all others were carried out. The caller repeats it.
    """
    try:
        return await send(items)
    except StoreUnavailable as error:
        if not isinstance(error.__cause__, LockNotAvailableError) or len(items) == 1:
            raise
    alone = await asyncio.gather(*(send([item]) for item in items), return_exceptions=True)
    answers: list[Answer] = []
    for answer in alone:
        if isinstance(answer, BaseException):
            raise answer
        answers += answer
    return answers


def _as_look(rows: Sequence[Row], end: Row, limit: int) -> Look:
    return Look(
        at=end["finished"],
        snapshot=end["message"],
        open=end["tags"],
        taken=[(row["queue"], row["priority"], row["due"]) for row in rows],
        limit=limit,
        moved=end["attempt"],
    )


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
        pause_reason=row["pause_reason"] or "",
    )


def _as_stranded(row: Row) -> Stranded:
    return Stranded(
        id=row["id"],
        why="unreadable" if row["is_aside"] else "orphan",
        where=TABLE,
        replica=row["replica"] or "",
        left=max(0.0, row["left_over"]) / 1e6,
    )
