"""Requeues and prunes finished jobs in SQLite, and deletes all that do not run."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from tenure.core.bounds import UNREADABLE
from tenure.core.durations import micros
from tenure.core.jobs.records import Deleted, Requeued, Unique
from tenure.core.jobs.states import JobState, may_delete
from tenure.stores.sqlite.inserts import NUMBERS, take
from tenure.stores.sqlite.records import GET, as_record
from tenure.stores.sqlite.settlements import REMOVE_LIVE, standing
from tenure.stores.sqlite.statements import Row, Transaction, as_json
from tenure.stores.sqlite.tables import DONE, JOB

__all__ = ["delete", "prune", "requeue"]

# By tenure_job_id and number.
TO_REQUEUE = f"""
    SELECT j.id, j.number, j.queue, j.timeout, j.retention, j.retention_failed, j.schedule,
           j.unique_key, j.digest, j.keep, j.with_job, {JOB.of("j")} AND {DONE.of("d")}
    FROM json_each(:ids) AS i
    CROSS JOIN tenure_job AS j INDEXED BY tenure_job_id
    CROSS JOIN tenure_done AS d
    WHERE j.namespace = :namespace AND j.id = i.value AND d.number = j.number
"""  # noqa: S608 - put together from constants

# By number.
WAIT_AGAIN = """
    WITH given (number, due, retained, retained_failed, allowed) AS (
        VALUES @rows
    )
    INSERT OR REPLACE INTO tenure_live (number, namespace, id, queue, priority, due, retained,
                                        retained_failed, allowed, keyed, fence, revision, attempt,
                                        started, settled_fence, settled_as, history, checkpoint)
    SELECT j.number, j.namespace, j.id, j.queue, j.priority, given.due, given.retained,
           given.retained_failed, given.allowed, j.unique_key <> '',
           max(d.fence + 1, given.due), d.revision + 1, d.attempt, d.started,
           coalesce(d.settled_fence, d.fence), coalesce(d.settled_as, 's'), d.history,
           d.checkpoint
    FROM given
    CROSS JOIN tenure_done AS d
    CROSS JOIN tenure_job AS j
    WHERE d.number = given.number AND j.number = d.number
"""

# By tenure_done_expiry.
TO_PRUNE = """
    SELECT number
    FROM tenure_done INDEXED BY tenure_done_expiry
    WHERE namespace = :namespace AND expires <= :wall
    ORDER BY expires
    LIMIT :limit
"""

# Jobs that were set aside long ago. By tenure_aside_end.
ASIDE_TO_PRUNE = """
    SELECT number
    FROM tenure_aside
    WHERE namespace = :namespace AND kept_until <= :wall
    LIMIT :limit
"""

# By tenure_unique_free, and then by primary key.
FORGET_FREE_KEYS = """
    DELETE FROM tenure_unique
    WHERE namespace = :namespace
      AND key IN (SELECT key
                  FROM tenure_unique INDEXED BY tenure_unique_free
                  WHERE namespace = :namespace AND live = 0 AND until <= :wall
                  LIMIT :limit)
"""

# By number, and then by primary key.
REMOVE_TAGS = """
    DELETE FROM tenure_tag
    WHERE (namespace, tag, id) IN (SELECT j.namespace, t.value, j.id
                                   FROM json_each(:numbers) AS n
                                   CROSS JOIN tenure_job AS j
                                   CROSS JOIN json_each(iif(json_valid(j.tags), j.tags, '[]')) AS t
                                   WHERE j.number = n.value AND j.tags <> '')
"""

# By number, and then by primary key. Leaves keys that belong to another job by now.
REMOVE_KEYS = """
    DELETE FROM tenure_unique
    WHERE (namespace, key, id) IN (SELECT namespace, unique_key, id
                                   FROM tenure_job
                                   WHERE number IN (SELECT value FROM json_each(:numbers)))
"""

# By number, and of tenure_aside by tenure_aside_number.
REMOVE_DONE = REMOVE_LIVE.replace("tenure_live", "tenure_done")
REMOVE_ASIDE = REMOVE_LIVE.replace("tenure_live", "tenure_aside")
REMOVE_JOB = REMOVE_LIVE.replace("tenure_live", "tenure_job")

# The row of the job is deleted last, because the other rows are found through it.
_PRUNED: Final = (REMOVE_TAGS, REMOVE_DONE, REMOVE_JOB)
_PRUNED_ASIDE: Final = (REMOVE_TAGS, REMOVE_ASIDE, REMOVE_JOB)
_DELETED: Final = (
    REMOVE_TAGS,
    REMOVE_KEYS,
    REMOVE_LIVE,
    REMOVE_DONE,
    REMOVE_ASIDE,
    REMOVE_JOB,
)


def requeue(tx: Transaction, ids: Sequence[str]) -> list[Requeued | None]:
    """Let finished jobs wait again, and answer for each."""
    ended = {row[0]: row for row in tx.rows(TO_REQUEUE, ids=as_json(ids))}
    live, _ = standing(tx, [id_ for id_ in ids if id_ not in ended])
    unfinished = set(live)
    again: list[Row] = []
    queues: set[str] = set()
    answers: list[Requeued | None] = []
    for id_ in ids:
        if id_ in unfinished or id_ not in ended:
            answers.append("unfinished" if id_ in unfinished else None)
            continue
        _, number, queue, timeout, *kept, schedule, key, digest, keep, with_job, sound = ended[id_]
        # Text that is not UTF-8 is bytes here, and no table takes it for text.
        if not sound or any(isinstance(text, bytes) for text in (queue, key, digest)):
            tx.damage.report("job", id_, UNREADABLE, "tenure_done")
            answers.append(None)
            continue
        if schedule:
            answers.append("refused")
            continue
        if key:
            unique = Unique(key=key, digest=digest, keep=keep, with_job=bool(with_job))
            if take(tx, id_, unique) is not None:
                answers.append("conflict")
                continue
        allowed = None if timeout is None else micros(timeout)
        again.append((number, tx.wall, *map(micros, kept), allowed))
        queues.add(queue)
        unfinished.add(id_)
        answers.append("requeued")
    if again:
        tx.change_each(WAIT_AGAIN, again)
        tx.change(REMOVE_DONE, numbers=as_json([row[0] for row in again]))
        woken = (id_ for id_, answer in zip(ids, answers, strict=True) if answer == "requeued")
        tx.ring(*(("job", id_) for id_ in woken))
        tx.ring(*(("queue", queue) for queue in queues))
    return answers


def delete(tx: Transaction, ids: Sequence[str]) -> list[Deleted | None]:
    """Remove jobs with all that belongs to them, also unreadable ones, and answer for each."""
    listed = as_json(ids)
    numbers: dict[str, int] = dict(tx.rows(NUMBERS, ids=listed))
    states: dict[str, JobState] = {}
    for row in tx.rows(GET, ids=listed):
        with suppress(ValueError, TypeError, ArithmeticError, RecursionError):
            states[row[0]] = as_record(row).state
    going = {id_: number for id_, number in numbers.items() if may_delete(states.get(id_))}
    if going:
        _remove(tx, [*going.values()], _DELETED)
        tx.ring(*(("job", id_) for id_ in going))
    answers: list[Deleted | None] = []
    for id_ in ids:
        left: Deleted = "deleted" if id_ in going else "running"
        answers.append(left if id_ in numbers else None)
        if id_ in going:
            del numbers[id_]  # an id that is named twice is gone the second time
            del going[id_]
    return answers


def prune(tx: Transaction, limit: int) -> tuple[int, bool]:
    """Remove jobs whose retention is over. Returns their number, and whether more may remain."""
    keys = tx.change(FORGET_FREE_KEYS, limit=limit)
    over = [number for (number,) in tx.rows(TO_PRUNE, limit=limit)]
    _remove(tx, over, _PRUNED)
    aside = [number for (number,) in tx.rows(ASIDE_TO_PRUNE, limit=limit)]
    _remove(tx, aside, _PRUNED_ASIDE)
    return len(over), limit in (keys, len(over), len(aside))


def _remove(tx: Transaction, numbers: Sequence[int], statements: Sequence[str]) -> None:
    for statement in statements if numbers else ():
        tx.change(statement, numbers=as_json(numbers))
