"""Inserting jobs into SQLite, and taking their unique keys."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from tenure.core.durations import micros
from tenure.core.records import SOON, Inserted, NewJob
from tenure.stores.sqlite import job_statements as sql
from tenure.stores.sqlite.transaction import Row, Transaction, as_blob, as_json

__all__ = ["insert", "store", "store_running", "take"]


def insert(tx: Transaction, jobs: Sequence[NewJob]) -> list[Inserted]:
    """Store what is new among jobs, and answer for each."""
    known = {id_ for (id_,) in tx.rows(sql.KNOWN, ids=as_json([job.id for job in jobs]))}
    new: list[NewJob] = []
    answers: list[Inserted] = []
    for job in jobs:
        other = None if job.id in known else _other_of(tx, job)
        if other is not None:
            answers.append(other)
            continue
        answers.append(Inserted("created", job.id, tx.wall))
        if job.id not in known:
            known.add(job.id)
            new.append(job)
    if new:
        store(tx, new)
    return answers


def _other_of(tx: Transaction, job: NewJob) -> Inserted | None:
    """Take the unique key of a job, if it has one; return who else has it."""
    unique = job.unique
    if unique is None:
        return None
    other = take(tx, job.id, unique.key, unique.digest, unique.written_keep)
    if other is None:
        return None
    id_, digest = other
    return Inserted("existing" if digest == unique.digest else "mismatch", id_, tx.wall)


def take(tx: Transaction, id_: str, key: str, digest: str, keep: float) -> tuple[str, str] | None:
    """Take a unique key; if another job has it, return that job's id and digest instead."""
    taken = tx.row(sql.TAKEN, key=key)
    if taken is not None and taken[0] != id_:
        return taken[0], taken[1]
    tx.change(sql.TAKE, key=key, id=id_, digest=digest, until=tx.wall + micros(abs(keep)))
    return None


def store(tx: Transaction, jobs: Sequence[NewJob], *, quietly: bool = False) -> int:
    """Store jobs; return the number of the first. Unless `quietly`, wake who waits for them."""
    namespace, wall, soon = tx.namespace, tx.wall, tx.wall + micros(SOON)
    last: int = tx.rows(sql.LAST_NUMBER)[0][0]
    rows: list[Row] = []
    live: list[Row] = []
    tags: list[Row] = []
    keys: list[Row] = []
    marked: list[Row] = []
    queues: set[str] = set()
    for number, job in zip(count(last + 1), jobs, strict=False):
        due = wall + micros(job.delay) if job.at is None else job.at
        since = -1 if due <= wall else wall if job.at is None else 0
        if due <= soon:
            queues.add(job.queue)
        if job.unique is not None:
            unique = job.unique
            keys.append((number, unique.key, unique.digest, unique.written_keep))
        rows.append(
            (
                *(number, namespace, job.id, job.task, job.queue, job.priority, wall),
                *(job.retention, job.retention_failed),
                *(-1 if job.timeout is None else job.timeout, job.options),
                *(as_json(job.tags) if job.tags else "", as_blob(job.payload)),
            )
        )
        allowed = -1 if job.timeout is None else micros(job.timeout)
        live.append(
            (
                *(number, namespace, job.id, job.queue, job.priority, due, since),
                *(micros(job.retention), micros(job.retention_failed), allowed),
            )
        )
        tags += [(namespace, tag, job.id, number) for tag in job.tags]
        if job.schedule:
            marked.append((number, job.schedule))
    tx.change_each(sql.INSERT_JOB, rows)
    tx.change_each(sql.INSERT_LIVE, live)
    if tags:
        tx.change_each(sql.INSERT_TAG, tags)
    if keys:
        tx.change_each(sql.KEY_JOB, keys)
        tx.change(sql.KEY_LIVE, numbers=as_json([row[0] for row in keys]))
    if marked:
        tx.change_each(sql.MARK_JOB, marked)
        tx.change(sql.MARK_LIVE, numbers=as_json([row[0] for row in marked]))
    if not quietly:
        tx.ring_all([("queue", queue) for queue in queues])
    return last + 1


def store_running(tx: Transaction, job: NewJob, holder: int, fence: int) -> None:
    """Store a job that runs from its beginning, on the replica with this number."""
    number = store(tx, [job], quietly=True)
    # No claim has the number 0: to repeat the last one does not return this job.
    start = {"holder": holder, "claim_no": 0, "least": fence}
    tx.change(sql.START, numbers=as_json([number]), **start)
