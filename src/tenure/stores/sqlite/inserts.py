"""Inserts jobs into SQLite, and takes their unique keys."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from tenure.core import bounds
from tenure.core.durations import micros
from tenure.core.jobs.records import SOON, Inserted, NewJob, Unique
from tenure.stores.sqlite.statements import Row, Transaction, as_blob, as_json

__all__ = ["NUMBERS", "insert", "store", "take"]

_NO_KEY = Unique(key="")

# By tenure_job_id, a covering index. Also for jobs that run, have finished or were set aside.
NUMBERS = """
    SELECT j.id, j.number
    FROM json_each(:ids) AS i
    CROSS JOIN tenure_job AS j INDEXED BY tenure_job_id
    WHERE j.namespace = :namespace AND j.id = i.value
"""

# The end of each table. The first table would be enough if no number were ever changed by hand. A
# number that is out of bounds does not count.
LAST_NUMBER = f"""
    SELECT max(
        coalesce((SELECT max(number) FROM tenure_job WHERE number < {bounds.INSTANT_MAX}), 0),
        coalesce((SELECT max(number) FROM tenure_live WHERE number < {bounds.INSTANT_MAX}), 0),
        coalesce((SELECT max(number) FROM tenure_done WHERE number < {bounds.INSTANT_MAX}), 0)
    )
"""  # noqa: S608 - put together from constants

INSERT_JOB = """
    INSERT INTO tenure_job (number, namespace, id, task, queue, priority, created, retention,
                            retention_failed, timeout, options, tags, schedule, unique_key,
                            digest, keep, with_job, payload)
    VALUES @rows
"""

INSERT_LIVE = """
    INSERT INTO tenure_live (number, namespace, id, queue, priority, due, since, retained,
                             retained_failed, allowed, keyed, schedule)
    VALUES @rows
"""

INSERT_TAG = """
    INSERT OR IGNORE INTO tenure_tag (namespace, tag, id, number)
    VALUES @rows
"""

# By primary key.
TAKEN = """
    SELECT id, digest
    FROM tenure_unique
    WHERE namespace = :namespace AND key = :key AND (live = 1 OR until > :wall)
"""

# By primary key.
TAKE = """
    INSERT OR REPLACE INTO tenure_unique (namespace, key, id, digest, until, live)
    VALUES (:namespace, :key, :id, :digest, :until, 1)
"""


def insert(tx: Transaction, jobs: Sequence[NewJob]) -> list[Inserted]:
    """Store the new jobs, and return an answer for each."""
    stored = {id_ for id_, _ in tx.rows(NUMBERS, ids=as_json([job.id for job in jobs]))}
    new: list[NewJob] = []
    answers: list[Inserted] = []
    for job in jobs:
        if job.id not in stored:
            other = None if job.unique is None else take(tx, job.id, job.unique)
            if other is not None:
                id_, digest = other
                same = job.unique is not None and digest == job.unique.digest
                answers.append(Inserted("existing" if same else "mismatch", id_, tx.wall))
                continue
            stored.add(job.id)
            new.append(job)
        answers.append(Inserted("created", job.id, tx.wall))
    if new:
        store(tx, new)
    return answers


def take(tx: Transaction, id_: str, unique: Unique) -> tuple[str, str] | None:
    """Take a unique key. If another job has it, return that job's id and digest."""
    taken = tx.row(TAKEN, key=unique.key)
    if taken is not None and taken[0] != id_:
        return taken[0], taken[1]
    until = tx.wall + micros(unique.keep)
    tx.change(TAKE, key=unique.key, id=id_, digest=unique.digest, until=until)
    return None


def store(tx: Transaction, jobs: Sequence[NewJob], *, quietly: bool = False) -> int:
    """Store jobs. Returns the number of the first. Wakes workers, unless `quietly`."""
    namespace, wall, soon = tx.namespace, tx.wall, tx.wall + micros(SOON)
    last: int = tx.rows(LAST_NUMBER)[0][0]
    rows: list[Row] = []
    live: list[Row] = []
    tags: list[Row] = []
    queues: dict[str, None] = {}
    for number, job in zip(count(last + 1), jobs, strict=False):
        due = wall + micros(job.delay) if job.at is None else job.at
        since = None if due <= wall else wall if job.at is None else 0
        if due <= soon:
            queues[job.queue] = None
        unique = job.unique or _NO_KEY
        rows.append(
            (
                *(number, namespace, job.id, job.task, job.queue, job.priority, wall),
                *(job.retention, job.retention_failed, job.timeout, job.options),
                *(as_json(job.tags) if job.tags else "", job.schedule, unique.key, unique.digest),
                *(unique.keep, int(unique.with_job), as_blob(job.payload)),
            )
        )
        allowed = None if job.timeout is None else micros(job.timeout)
        live.append(
            (
                *(number, namespace, job.id, job.queue, job.priority, due, since),
                *(micros(job.retention), micros(job.retention_failed), allowed),
                *(0 if job.unique is None else 1, job.schedule),
            )
        )
        tags += [(namespace, tag, job.id, number) for tag in job.tags]
    tx.change_each(INSERT_JOB, rows)
    tx.change_each(INSERT_LIVE, live)
    tx.change_each(INSERT_TAG, tags)
    if not quietly:
        tx.ring(*(("queue", queue) for queue in queues))
    return last + 1
