"""Looking at jobs and queues in SQLite."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from types import NoneType

import msgspec

from tenure.core.durations import micros
from tenure.core.records import COUNT_MAX, TAGGED_MAX, JobRecord, Page, QueueCounts, Tagged
from tenure.core.states import STATES, JobState
from tenure.stores.sqlite import look_statements as sql
from tenure.stores.sqlite.connection import Connection
from tenure.stores.sqlite.database import Mode
from tenure.stores.sqlite.transaction import Row, Transaction, as_json

__all__ = ["Looking", "as_record", "as_records", "get", "read_tags"]

log = logging.getLogger("tenure")

# How many jobs one search looks at. Most of them are turned down at a glance: this takes a few
# milliseconds, during which nobody else is served in this process.
LOOKS_MAX = 5_000

# How many running jobs are counted: more than one host can run.
_RUNNING_MAX = 10 * COUNT_MAX

_tags = msgspec.json.Decoder(tuple[str, ...])


class Looking(Connection):
    """The part of the contract that looks at jobs, and that pauses queues."""

    async def get(self, ids: Sequence[str]) -> list[JobRecord | None]:
        return await self._run(lambda tx: get(tx, ids), Mode.READ)

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
        # To SQLite, all text comes before all blobs.
        before = b"" if cursor is None else cursor
        wanted = {"state": state, "queue": queue, "task": task, "tag": tag, "replica": replica}

        def work(tx: Transaction) -> Page:
            return _find(tx, limit, before=before, looks=LOOKS_MAX, **wanted)

        return await self._run(work, Mode.READ)

    async def counts(self) -> list[QueueCounts]:
        return await self._run(_counts, Mode.READ)

    async def count_tagged(
        self, tag: str, *, unfinished: int, recent: int, within: float
    ) -> Tagged:
        def work(tx: Transaction) -> Tagged:
            looks = {"tag": tag, "looks": TAGGED_MAX}
            ((live,),) = tx.rows(sql.COUNT_TAGGED, limit=unfinished, **looks)
            since = tx.wall - micros(within)
            ((young, first),) = tx.rows(sql.COUNT_RECENT, limit=recent, since=since, **looks)
            return Tagged(live, young, (tx.wall - first) / 1e6 if young else 0.0)

        return await self._run(work, Mode.READ)

    async def pause(self, queue: str, *, seconds: float | None = None) -> None:
        def work(tx: Transaction) -> None:
            until = None if seconds is None else tx.wall + micros(seconds)
            tx.change(sql.PAUSE, queue=queue, until=until)

        await self._run(work, Mode.DURABLE)

    async def resume(self, queue: str) -> None:
        def work(tx: Transaction) -> None:
            tx.change(sql.RESUME, queue=queue)
            tx.ring(("queue", queue))

        await self._run(work, Mode.DURABLE)


def get(tx: Transaction, ids: Sequence[str]) -> list[JobRecord | None]:
    """Return jobs by id."""
    found = {row[0]: as_record(row) for row in tx.rows(sql.GET, ids=as_json(ids))}
    return [found.get(id_) for id_ in ids]


def _find(tx: Transaction, limit: int, **wanted: str | bytes | int | None) -> Page:
    fitting, looked_at = _way_in(wanted["tag"], wanted["state"], wanted["replica"])
    rows = tx.rows(fitting, limit=limit + 1, **wanted)
    jobs = as_records(rows[:limit])
    if len(rows) > limit:
        return Page(jobs, rows[limit - 1][0] if limit else None)
    ((looked, last),) = tx.rows(looked_at, **wanted)
    return Page(jobs, last if looked == wanted["looks"] else None)


def _way_in(tag: object, state: object, replica: object) -> tuple[str, str]:
    """Return the statements that look at the fewest jobs."""
    if tag is not None:
        return sql.FIND_TAGGED, sql.LOOKED_AT_TAGGED
    if replica or state == "running":
        return sql.FIND_RUNNING, sql.LOOKED_AT_RUNNING
    if state in ("failed", "cancelled"):
        return sql.FIND_UNLUCKY, sql.LOOKED_AT_UNLUCKY
    return sql.FIND, sql.LOOKED_AT


def _counts(tx: Transaction) -> list[QueueCounts]:
    paused = {queue: _seconds_left(until, tx.wall) for queue, until in tx.rows(sql.PAUSED)}
    running: dict[str, int] = dict(tx.rows(sql.COUNT_RUNNING, limit=_RUNNING_MAX))
    waiting = {
        queue: tx.rows(sql.COUNT_WAITING, queue=queue, limit=COUNT_MAX)[0][0]
        for (queue,) in tx.rows(sql.WAITING_QUEUES)
    }
    return [
        QueueCounts(
            queue=queue,
            waiting=waiting.get(queue, 0),
            running=min(COUNT_MAX, running.get(queue, 0)),
            oldest=_oldest(tx, queue) if queue in waiting else None,
            paused_for=paused.get(queue),
        )
        for queue in sorted({*paused, *running, *waiting})
    ]


def _seconds_left(until: int | None, wall: int) -> float:
    return math.inf if until is None else (until - wall) / 1e6


def _oldest(tx: Transaction, queue: str) -> float | None:
    (found,) = tx.rows(sql.OLDEST, queue=queue)
    return max(((tx.wall - due) / 1e6 for due in found if due is not None), default=None)


def read_tags(tags: str) -> tuple[str, ...]:
    """Return the tags of a job, which are stored as JSON if there are any."""
    return _tags.decode(tags) if tags else ()


# Of each column that `as_record` reads, in their order. SQLite stores any value in any of them.
_REAL, _BLOB = (float, NoneType), (bytes, NoneType)
_TYPES: tuple[type | tuple[type, ...], ...] = (
    *(str, str, str, int, str, bytes, str, _REAL, float, int, int),
    *(int, int, int, int, int, str, int, _REAL, str, _BLOB, int, str, int, _BLOB, _BLOB, bytes),
    *(str, int),
)


def as_records(rows: Sequence[Row]) -> list[JobRecord]:
    """Return jobs, but for those that cannot be read: their neighbours must not suffer."""
    jobs = [job for row in rows if (job := as_record(row)) is not None]
    if len(jobs) < len(rows):
        log.error("%s of %s jobs cannot be read", len(rows) - len(jobs), len(rows))
    return jobs


def as_record(row: Row) -> JobRecord | None:
    """Return a job from the columns that `look_statements` names; None if that is none."""
    if not all(map(isinstance, row, _TYPES)) or row[4] not in STATES:
        return None
    try:
        tags = read_tags(row[6])
    except ValueError:
        return None
    return JobRecord(
        id=row[0],
        task=row[1],
        queue=row[2],
        priority=row[3],
        state=row[4],
        payload=row[5],
        tags=tags,
        timeout=row[7],
        retention=row[8],
        created=row[9],
        due=row[10],
        attempt=row[11],
        failures=row[12],
        losses=row[13],
        fence=row[14],
        revision=row[15],
        replica=row[16],
        started=row[17],
        progress=row[18],
        message=row[19],
        checkpoint=row[20],
        cancelling=bool(row[21]),
        reason=row[22],
        finished=row[23],
        result=row[24],
        error=row[25],
        history=row[26],
        schedule=row[27],
        rerun=bool(row[28]),
    )
