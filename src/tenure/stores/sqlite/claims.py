"""Claims in SQLite: which jobs a replica starts, and what the number of a claim means."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tenure.core.records import Claimed, JobRecord
from tenure.stores.sqlite import job_statements as sql
from tenure.stores.sqlite import look_statements as look_sql
from tenure.stores.sqlite.job_moves import set_aside
from tenure.stores.sqlite.looking import as_records, read_tags
from tenure.stores.sqlite.transaction import Row, Transaction, as_json

__all__ = ["Claim", "EmptyClaims", "claim"]

# Replicas whose last empty claim a store object remembers: a worker has one at a time.
_REMEMBERED = 100


class EmptyClaims:
    """The numbers of the last claims that got nothing, by replica.

    They are not in the file: idle workers would write to the disk at each of their looks. All
    claims of a replica go through one store object, so a repeat after a lost reply finds its
    number here. If the process has ended, no repeat comes.
    """

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def last(self, replica: str) -> int:
        """Return the number of the replica's last claim that got nothing, or 0."""
        return self._numbers.get(replica, 0)

    def remember(self, replica: str, claim_no: int) -> None:
        """Note that this claim got nothing. Older ones of the replica get nothing either."""
        self.forget(replica)
        self._numbers[replica] = claim_no
        if len(self._numbers) > _REMEMBERED:
            self.forget(next(iter(self._numbers)))

    def forget(self, replica: str) -> None:
        """Begin anew with a replica that joins."""
        self._numbers.pop(replica, None)


class Claim(NamedTuple):
    """What a replica asks for."""

    replica: str
    number: int
    queues: str
    """In the order in which they are served, as JSON."""
    limit: int


def claim(tx: Transaction, empty: EmptyClaims, asked: Claim) -> Claimed | None:
    """Start due jobs. A claim that gets nothing writes nothing.

    In a transaction that only reads, it finds out whether there may be anything to start. If so,
    `tx.lasting` has it run again with the write lock, and this answer is not used.
    """
    record = tx.row(sql.CLAIMING_REPLICA, replica=asked.replica, queues=asked.queues)
    if record is None:
        return None
    holder, stored, lives, later = record
    last = max(stored, empty.last(asked.replica))
    if asked.number == last:
        rows = tx.rows(look_sql.CLAIMED, holder=holder, claim_no=last)
        return Claimed(as_records(tx, rows))
    if asked.number < last or not lives:
        return Claimed([])
    if not _has_come(tx, later) and tx.row(sql.IS_DUE, queues=asked.queues) is None:
        empty.remember(asked.replica, asked.number)
        return Claimed([], _seconds_until(tx, later))
    tx.lasting = True
    if tx.is_reading:
        return None
    claimed = _started(tx, asked, holder, later)
    if not claimed.jobs:
        empty.remember(asked.replica, asked.number)
    return claimed


def _started(tx: Transaction, asked: Claim, holder: int, later: int | None) -> Claimed:
    """Start what is due; `later` is when the first of the delayed jobs is."""
    if has_waited := _has_come(tx, later):
        tx.change(sql.END_PAUSES, queues=asked.queues, limit=asked.limit)
    due = _due(tx, asked.queues, asked.limit)
    if due:
        tx.change(sql.COUNT_CLAIM, holder=holder, claim_no=asked.number)
    jobs = _start(tx, due, asked.replica, holder=holder, claim_no=asked.number) if due else []
    if len(jobs) == asked.limit:
        return Claimed(jobs)
    if has_waited:
        ((later,),) = tx.rows(sql.NEXT_DUE, queues=asked.queues)
    return Claimed(jobs, _seconds_until(tx, later))


def _has_come(tx: Transaction, instant: int | None) -> bool:
    """Return whether it is in the present millisecond: one in it may be due a little earlier."""
    return instant is not None and instant // 1000 <= tx.wall // 1000


def _seconds_until(tx: Transaction, instant: int | None) -> float | None:
    return None if instant is None else (instant - tx.wall) / 1e6


def _start(tx: Transaction, due: Sequence[Row], replica: str, **claim: int) -> list[JobRecord]:
    """Start jobs, and return them as they are then."""
    tx.change(sql.START, numbers=as_json([row[0] for row in due]), least=tx.wall, **claim)
    if all(row[-2] for row in due):
        jobs = [_first_start(row, replica, tx.wall) for row in due]
    else:
        now = {job.id: job for job in as_records(tx, tx.rows(look_sql.CLAIMED, **claim))}
        jobs = [now[row[1]] for row in due if row[1] in now]
        if len(jobs) < len(due):
            # Nobody can ever run them, and this replica would seem to, as long as it lives.
            set_aside(tx, {row[0]: row[1] for row in due if row[1] not in now})
    tx.ring_all([("job", job.id) for job in jobs])
    return jobs


def _due(tx: Transaction, queues: str, limit: int) -> list[Row]:
    """Return the jobs to start.

    One that cannot be read is set aside, or it would stay the first for ever; one that must not
    start again has failed.
    """
    while True:
        rows = tx.rows(sql.DUE, queues=queues, limit=limit)
        unreadable = {row[0]: row[1] for row in rows if not _is_readable(row)}
        if not unreadable:
            return rows
        set_aside(tx, unreadable)


# Of the columns of DUE that are text, which the statement cannot check: it may not be UTF-8.
_DUE_TEXTS = (1, 2, 3, 6, 10)


def _is_readable(row: Row) -> bool:
    if not row[-1] or not all(isinstance(row[at], str) for at in _DUE_TEXTS):
        return False
    try:
        read_tags(row[6])
    except ValueError:
        return False
    return True


def _first_start(row: Row, replica: str, wall: int) -> JobRecord:
    """Return a job as START leaves it, if nothing had been changed since it was inserted.

    That is how most jobs are, and it takes half as long as to read all that there may be.
    """
    _, id_, task, queue, priority, payload, tags, timeout, retention, *rest = row
    retention_failed, options, created, schedule, due, *_ = rest
    return JobRecord(
        id=id_,
        task=task,
        queue=queue,
        priority=priority,
        state="running",
        payload=payload,
        tags=read_tags(tags) if tags else (),
        timeout=timeout,
        retention=retention,
        retention_failed=retention_failed,
        options=options,
        created=created,
        due=due,
        attempt=1,
        fence=wall,
        revision=2,
        replica=replica,
        started=wall,
        schedule=schedule or "",
    )
