"""Looking at jobs and queues in SQLite."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec

from tenure.core.durations import micros
from tenure.core.records import COUNT_MAX, TAGGED_MAX, JobRecord, Page, QueueCounts, Tagged
from tenure.core.soundness import SET_ASIDE, sound
from tenure.core.states import JobState
from tenure.stores.sqlite import look_statements as sql
from tenure.stores.sqlite.connection import Connection
from tenure.stores.sqlite.database import Mode
from tenure.stores.sqlite.transaction import Row, Transaction, as_json

__all__ = ["Looking", "as_records", "get", "read_tags"]

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
    found = {job.id: job for job in as_records(tx, tx.rows(sql.GET, ids=as_json(ids)))}
    missing = [id_ for id_ in ids if id_ not in found]
    if missing:
        for (id_,) in tx.rows(sql.ASIDE_OF, ids=as_json(missing)):
            tx.damage.report("job", id_, SET_ASIDE, "tenure_aside")
    return [found.get(id_) for id_ in ids]


def _find(tx: Transaction, limit: int, **wanted: str | bytes | int | None) -> Page:
    fitting, looked_at = _way_in(wanted["tag"], wanted["state"], wanted["replica"])
    rows = tx.rows(fitting, limit=limit + 1, **wanted)
    jobs = as_records(tx, rows[:limit])
    if len(rows) > limit:
        return Page(jobs, _cursor(rows[limit - 1][0], wanted["before"]) if limit else None)
    ((looked, last),) = tx.rows(looked_at, **wanted)
    return Page(jobs, _cursor(last, wanted["before"]) if looked == wanted["looks"] else None)


def _cursor(last: str | bytes, before: object) -> str | None:
    """Return where to go on. Of an id that is not UTF-8 that is a smaller text."""
    cursor = last if isinstance(last, str) else last.decode(errors="ignore")
    return cursor if not isinstance(before, str) or cursor < before else None


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
    paused = _by_queue(tx, tx.rows(sql.PAUSED))
    running = _by_queue(tx, tx.rows(sql.COUNT_RUNNING, limit=_RUNNING_MAX))
    waiting = {
        queue: tx.rows(sql.COUNT_WAITING, queue=queue, limit=COUNT_MAX)[0][0]
        for queue in _by_queue(tx, [(name, 0) for (name,) in tx.rows(sql.WAITING_QUEUES)])
    }
    return [
        QueueCounts(
            queue=queue,
            waiting=waiting.get(queue, 0),
            running=min(COUNT_MAX, running.get(queue, 0)),
            oldest=_oldest(tx, queue) if queue in waiting else None,
            paused_for=_seconds_left(tx, queue, paused[queue]) if queue in paused else None,
        )
        for queue in sorted({*paused, *running, *waiting})
    ]


def _by_queue(tx: Transaction, rows: Sequence[Row]) -> dict[str, Any]:
    """Return values by the name of a queue, where that is one."""
    for queue, _ in rows:
        if not isinstance(queue, str):
            tx.damage.report("queue", repr(queue), "its name is not text", "tenure_live")
    return {queue: value for queue, value in rows if isinstance(queue, str)}


def _seconds_left(tx: Transaction, queue: str, until: object) -> float | None:
    if until is None:
        return math.inf
    if isinstance(until, int):
        return (until - tx.wall) / 1e6
    why = f"its pause ends at {until!r}, so it counts as none"
    tx.damage.report("queue", queue, why, "tenure_pause")
    return None


def _oldest(tx: Transaction, queue: str) -> float | None:
    (found,) = tx.rows(sql.OLDEST, queue=queue)
    ages = ((tx.wall - due) / 1e6 for due in found if isinstance(due, int))
    return max(ages, default=None)


def read_tags(tags: str) -> tuple[str, ...]:
    """Return the tags of a job, which are stored as JSON if there are any."""
    return _tags.decode(tags) if tags else ()


# What `as_record` reads, in the order of its columns.
_FIELDS = (
    *("id", "task", "queue", "priority", "state", "payload", "tags", "timeout", "retention"),
    *("created", "due", "attempt", "failures", "losses", "fence", "revision", "replica", "started"),
    *("progress", "message", "checkpoint", "cancelling", "reason", "finished", "result", "error"),
    *("history", "schedule", "retention_failed", "options"),
)


def as_records(tx: Transaction, rows: Sequence[Row]) -> list[JobRecord]:
    """Return jobs, but for those that cannot be read, which are reported."""
    read = (tx.damage.read("job", "tenure_job", str(row[0]), as_record, row) for row in rows)
    return [job for job in read if job is not None]


def as_record(row: Row) -> JobRecord:
    """Return a job from the columns of `look_statements`. Raises ValueError if it is none."""
    values = dict(zip(_FIELDS, row, strict=True))
    values["tags"] = read_tags(values["tags"])
    cancelling = values["cancelling"]
    values["cancelling"] = {0: False, 1: True}.get(cancelling, cancelling)
    return sound(JobRecord, values)
