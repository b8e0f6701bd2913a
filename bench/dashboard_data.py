"""A large store for the benchmark of the dashboard: jobs, timers, locks and workers.

Jobs are written straight into the tables, because a million enqueues and runs would take an hour.
Everything else comes through the calls of the store. The same numbers give the same data.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Final

import asyncpg
import msgspec
from msgspec import Struct

from tenure import Tenure
from tenure.app import engine_of
from tenure.core.ids import job_id
from tenure.core.jobs.error_report import ErrorReport
from tenure.core.jobs.history import AttemptLine, write_history
from tenure.core.jobs.parents import parent_tag
from tenure.core.jobs.replicas import Stats
from tenure.core.jobs.run_stats import RunCounts, encode_stats
from tenure.core.schedules.documents import Decision, line_of
from tenure.core.schedules.records import TIMERS_QUEUE
from tenure.http.request import owner_tag
from tenure.stores.contract import Store

__all__ = ["ROUTER", "Data", "fill"]

ROUTER: Final = "/reports"
TASKS: Final = [f"shop.task_{number}" for number in range(20)]
QUEUES: Final = ("mail", "reports", "imports", "images", "slow")
REPLICAS: Final = 20
TIMERS: Final = 200
LINES: Final = 100
LOCKS: Final = 400
RUNNING: Final = 100
CHUNK: Final = 20_000
HOURS: Final = 23.5
"""All jobs were created within so many hours."""

_FAR: Final = 86_400.0
_TRACE: Final = "\n".join(
    f'  File "/srv/shop/module_{number}.py", line {number}, in call_{number}\n    value = step()'
    for number in range(20)
)
_ERRORS: Final = (
    ("TimeoutError", "the payment service did not answer within 10 s"),
    ("ConnectionRefusedError", "connect to 10.0.0.7:5432"),
    ("ValueError", "invoice {number} has no lines"),
)


class Data(Struct, kw_only=True):
    """What a benchmark has to know of the data: names to look for."""

    waiting: str = ""
    failed: str = ""
    succeeded: str = ""
    parent: str = ""
    """The id of a job in each of these states, and of one with children; from the middle."""


class Row(Struct, kw_only=True):
    """A job before it becomes rows of tables."""

    number: int
    id: str
    task: str
    queue: str
    state: str
    created: int
    due: int
    attempt: int = 0
    failures: int = 0
    started: int = 0
    finished: int = 0
    priority: int = 5
    tags: list[str]
    payload: bytes
    result: bytes | None = None
    error: bytes | None = None
    reason: str = ""
    history: bytes = b""
    since: int | None = None
    schedule: str = ""

    @property
    def kept(self) -> tuple[float, float]:
        return 86_400.0, 604_800.0

    @property
    def expires(self) -> int:
        return self.finished + round(1e6 * self.kept[self.state == "failed"])


def rows(finished: int, waiting: int, data: Data) -> Iterator[Row]:
    """Yield all jobs, oldest first. Half of those that wait are among the newest."""
    chance = random.Random(7)
    total, now = finished + waiting, time.time_ns() // 1000
    first, step = now - round(HOURS * 3600e6), round(HOURS * 3600e6) // total
    fresh = round(total * 0.93)  # from here on most wait
    left = waiting
    for number in range(total):
        created = first + number * step
        share = (waiting / 2) / fresh if number < fresh else left / (total - number)
        waits = left > 0 and chance.random() < share
        left -= waits
        row = _row(number, created, chance)
        row = _waiting(row, chance) if waits else _finished(row, chance)
        if number == total // 2:
            data.parent = row.id
        elif data.parent and number <= total // 2 + 60:
            row.tags.append(parent_tag(data.parent))
        if number > total // 2 and not getattr(data, row.state, "."):
            setattr(data, row.state, row.id)
        yield row


def _row(number: int, created: int, chance: random.Random) -> Row:
    token = f"{chance.getrandbits(128):032x}"
    customer = int(chance.paretovariate(0.7)) % 100_000
    arguments = {
        "customer": customer,
        "order": number,
        "address": {"street": f"{number % 300} Long Street", "city": "Springfield"},
        "note": "x" * chance.randrange(200),
    }
    tags = [f"customer:{customer}"]
    if number % 50 == 0:
        tags.append("import")
    if number % 10 == 0:
        tags.append(owner_tag(ROUTER, f"user{customer}"))
    task = min(int(chance.expovariate(0.3)), len(TASKS) - 1)
    return Row(
        number=number + 1,
        id=job_id(created // 1000, number % 4000, token),
        task=TASKS[task],
        queue=QUEUES[task % len(QUEUES)],
        state="waiting",
        created=created,
        due=created,
        tags=tags,
        payload=msgspec.json.encode(arguments),
    )


def _waiting(row: Row, chance: random.Random) -> Row:
    if chance.random() < 0.05:  # after a failure
        row.attempt = row.failures = 3
        row.started = row.created + 1_000_000
        row.error = _error(row, chance)
        row.history = _history(row, "retry")
        row.due, row.since = row.created + 3600_000_000, row.started
    return row


def _finished(row: Row, chance: random.Random) -> Row:
    row.started = row.created + chance.randrange(5_000_000)
    row.finished = row.started + chance.randrange(2_000_000)
    row.attempt, kind = 1, chance.random()
    if kind < 0.02:  # each timer has as many as it keeps lines of history
        row.state, row.queue = "succeeded", TIMERS_QUEUE
        row.schedule = f"timer {row.number % TIMERS:03}"
        row.task, row.tags = f"@{row.schedule}", []
    elif kind < 0.10:
        row.state, row.reason, row.attempt, row.failures = "failed", "error", 3, 3
        row.error = _error(row, chance)
    elif kind < 0.12:
        row.state, row.reason = "cancelled", "the customer has left"
    else:
        row.state = "succeeded"
        row.result = b'{"sent":true,"size":%d}' % row.number
    row.history = _history(row, row.state)
    return row


def _error(row: Row, chance: random.Random) -> bytes:
    kind, message = chance.choice(_ERRORS)
    report = ErrorReport(kind, message.format(number=row.number), _TRACE)
    return msgspec.json.encode(report)


def _history(row: Row, outcome: Any) -> bytes:
    attempts = [
        AttemptLine(
            attempt=number,
            replica=f"replica-{number}",
            started=row.started,
            ended=row.finished or row.started,
            outcome=outcome if number == row.attempt else "retry",
            error="" if row.error is None else "TimeoutError: the payment service",
        )
        for number in range(1, row.attempt + 1)
    ]
    return write_history(attempts)


async def fill(url: str, finished: int, waiting: int) -> Data:
    """Fill an empty store. Returns what there is to look for."""
    data = Data()
    app = Tenure(url)
    rules = ("%d * * * *", "%d 4 * * *", "%d 4 * * 1", "%d 4 1 1 *")
    for number in range(TIMERS):
        cron = rules[number % len(rules)] % (number % 60)
        app.timer(cron=cron, tz="Europe/Berlin", name=f"timer {number:03}")(_nothing)
    async with app:
        async with app.worker(queues=["nothing"]) as worker:
            await worker.ready()  # declares the timers
        store = engine_of(app).services().store
        write = _fill_sqlite if url.startswith("sqlite") else _fill_postgres
        await write(url, store.namespace, rows(finished, waiting, data))
        await _fill_rest(store)
    return data


async def _nothing() -> None: ...


async def _fill_rest(store: Store) -> None:
    """Let workers live, run jobs and leave counts; let locks be held and waited for."""
    for number in range(REPLICAS):
        replica = f"worker-{number:02}"
        meta = {"host": f"host{number}", "pid": str(number), "version": "1", "slots": "10"}
        stats = Stats(replica, _stats())
        await store.jobs.beat([replica], ttl=_FAR, meta=meta, stats=stats)
        await store.jobs.claim(replica, 1, QUEUES, RUNNING // REPLICAS)
    for number in range(LOCKS):
        name, holder = f"lock:{number}", f"holder{number}"
        await store.leases.acquire(name, holder=holder, limit=1, ttl=_FAR, meta={"host": "a"})
    for number in range(150):
        await store.leases.acquire(
            "seats", holder=f"h{number}", limit=100, ttl=_FAR, meta={"host": "b"}, waiting=_FAR
        )


def _stats() -> bytes:
    """Return counts of the last hour, of all tasks."""
    last = time.time_ns() // 60_000_000_000
    counts = RunCounts(started=90, succeeded=80, failed=10, seconds=45.0, longest=2.0)
    pairs = {(task, QUEUES[at % len(QUEUES)]): counts for at, task in enumerate(TASKS)}
    return encode_stats({last - minute: pairs for minute in range(60)})


def _lines(runs: dict[str, list[Row]]) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of histories of timers, from the newest runs of each."""
    for timer, ran in runs.items():
        for number, row in enumerate(ran[-LINES:]):
            decision = Decision(outcome="ran", first=row.due, last=row.due, job=row.id)
            line = line_of(decision)
            yield (
                timer,
                number + 1,
                line.like,
                line.first,
                line.last,
                line.ticks,
                row.due,
                line.body,
            )


def _chunks(all_rows: Iterator[Row], runs: dict[str, list[Row]]) -> Iterator[list[Row]]:
    while chunk := [*islice(all_rows, CHUNK)]:
        for row in chunk:
            if row.schedule:
                runs.setdefault(row.schedule, []).append(row)
        yield chunk


# SQLite.


async def _fill_sqlite(url: str, namespace: str, all_rows: Iterator[Row]) -> None:
    await asyncio.to_thread(_write_sqlite, url.removeprefix("sqlite:///"), namespace, all_rows)


def _write_sqlite(path: str, namespace: str, all_rows: Iterator[Row]) -> None:
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA synchronous = OFF")
    runs: dict[str, list[Row]] = {}
    for chunk in _chunks(all_rows, runs):
        db.execute("BEGIN IMMEDIATE")
        live = [row for row in chunk if row.state == "waiting"]
        done = [row for row in chunk if row.state != "waiting"]
        tags = [(namespace, tag, row.id, row.number) for row in chunk for tag in row.tags]
        _insert(db, "tenure_job", _SQLITE_JOB, [_as_job(namespace, row) for row in chunk])
        _insert(db, "tenure_live", _SQLITE_LIVE, [_as_live(namespace, row) for row in live])
        _insert(db, "tenure_done", _SQLITE_DONE, [_as_done(namespace, row) for row in done])
        _insert(db, "tenure_tag", "namespace tag id number", tags)
        db.execute("COMMIT")
    lines = [(namespace, *line) for line in _lines(runs)]
    db.execute("BEGIN IMMEDIATE")
    columns = "namespace name number like first last ticks at body"
    _insert(db, "tenure_decision", columns, lines)
    db.execute("COMMIT")
    db.close()


def _insert(db: sqlite3.Connection, table: str, columns: str, values: Sequence[Any]) -> None:
    names = columns.split()
    quoted = ", ".join(f'"{name}"' for name in names)
    marks = ", ".join("?" * len(names))
    db.executemany(f"INSERT INTO {table} ({quoted}) VALUES ({marks})", values)


_SQLITE_JOB = (
    "number namespace id task queue priority created retention retention_failed timeout options "
    "tags schedule unique_key digest keep with_job payload"
)
_SQLITE_LIVE = (
    "number namespace id queue priority due since retained retained_failed attempt failures "
    "started error history fence"
)
_SQLITE_DONE = (
    "number namespace id state due fence revision attempt failures losses started finished expires "
    "settled_fence settled_as progress message reason result error history checkpoint"
)


def _as_job(namespace: str, row: Row) -> tuple[Any, ...]:
    tags = msgspec.json.encode(row.tags).decode() if row.tags else ""
    return (
        *(row.number, namespace, row.id, row.task, row.queue, row.priority, row.created),
        *(*row.kept, None, "", tags, row.schedule, "", "", 0.0, 0, row.payload),
    )


def _as_live(namespace: str, row: Row) -> tuple[Any, ...]:
    kept = [round(1e6 * seconds) for seconds in row.kept]
    return (
        *(row.number, namespace, row.id, row.queue, row.priority, row.due, row.since, *kept),
        *(row.attempt, row.failures, row.started, row.error, row.history, row.started),
    )


def _as_done(namespace: str, row: Row) -> tuple[Any, ...]:
    id_ = None if row.state == "succeeded" else row.id
    return (
        *(row.number, namespace, id_, row.state, row.due, row.started, 3, row.attempt),
        *(row.failures, 0, row.started, row.finished, row.expires, None, None, None, ""),
        *(row.reason, row.result, row.error, row.history, None),
    )


# PostgreSQL.


async def _fill_postgres(url: str, namespace: str, all_rows: Iterator[Row]) -> None:
    db = await asyncpg.connect(url)
    runs: dict[str, list[Row]] = {}
    for chunk in _chunks(all_rows, runs):
        live = [_in_postgres(namespace, row) for row in chunk if row.state == "waiting"]
        done = [
            (*_in_postgres(namespace, row), row.finished, row.expires, row.result)
            for row in chunk
            if row.state != "waiting"
        ]
        tags = [(namespace, tag, row.id) for row in chunk for tag in row.tags]
        await _copy(db, "job", _POSTGRES_JOB, live)
        await _copy(db, "job_done", f"{_POSTGRES_JOB} finished expires result", done)
        await _copy(db, "job_tag", "namespace tag id", tags)
    lines = [(namespace, *line) for line in _lines(runs)]
    await _copy(
        db, "schedule_decision", "namespace name number like first last ticks at body", lines
    )
    await db.execute("VACUUM ANALYZE", timeout=600)  # as autovacuum does in time
    await db.close()


async def _copy(
    db: asyncpg.Connection, table: str, columns: str, records: list[tuple[Any, ...]]
) -> None:
    names = columns.split()
    await db.copy_records_to_table(
        table, schema_name="tenure", columns=names, records=records, timeout=600
    )


_POSTGRES_JOB = (
    "namespace id task queue priority state payload tags retention retention_failed created due "
    "since attempt failures fence revision started reason error history schedule"
)


def _in_postgres(namespace: str, row: Row) -> tuple[Any, ...]:
    return (
        *(namespace, row.id, row.task, row.queue, row.priority, row.state, row.payload, row.tags),
        *(*row.kept, row.created, row.due, row.since, row.attempt, row.failures, row.started, 3),
        *(row.started, row.reason, row.error, row.history, row.schedule),
    )
