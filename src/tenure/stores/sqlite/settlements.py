"""Settles, notes and cancels jobs in SQLite: decides for each, then writes all together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from tenure.core.bounds import ASIDE_FOR, SET_ASIDE
from tenure.core.durations import micros
from tenure.core.jobs.records import SOON, Cancelled, Note, Settled, Settlement
from tenure.stores.sqlite.statements import Row, Transaction, as_blob, as_json
from tenure.stores.sqlite.tables import LIVE

__all__ = ["REMOVE_LIVE", "Standing", "cancel", "note", "set_aside", "settle", "standing"]

# By tenure_job_id, which knows the number, and then by number.
STANDING = f"""
    SELECT j.id, j.number, l.queue, l.fence, l.holder, l.cancelling, l.keyed, {LIVE.of("l")}
    FROM json_each(:ids) AS i
    CROSS JOIN tenure_job AS j INDEXED BY tenure_job_id
    CROSS JOIN tenure_live AS l
    WHERE j.namespace = :namespace AND j.id = i.value AND l.number = j.number
"""  # noqa: S608 - put together from constants

# The same for finished jobs.
FINISHED = """
    SELECT j.id
    FROM json_each(:ids) AS i
    CROSS JOIN tenure_job AS j INDEXED BY tenure_job_id
    CROSS JOIN tenure_done AS d
    WHERE j.namespace = :namespace AND j.id = i.value AND d.number = j.number
"""

# By tenure_job_id and number.
SETTLED = """
    SELECT j.id, coalesce(l.settled_fence, d.settled_fence, d.fence),
           coalesce(l.settled_as, d.settled_as, 's')
    FROM json_each(:ids) AS i
    CROSS JOIN tenure_job AS j INDEXED BY tenure_job_id
    LEFT JOIN tenure_live AS l ON l.number = j.number
    LEFT JOIN tenure_done AS d ON d.number = j.number
    WHERE j.namespace = :namespace AND j.id = i.value
"""

# By number. A fast statement for the most frequent end; FINISH has more parameters to bind. Only a
# change by hand leaves a row under this number, which is replaced then.
SUCCEED = """
    WITH given (number, finished, result, history) AS (
        VALUES @rows
    )
    INSERT OR REPLACE INTO tenure_done (number, namespace, state, due, fence, revision, attempt,
                             failures, losses, started, finished, expires,
                             progress, message, reason, result, history, checkpoint)
    SELECT l.number, l.namespace, 'succeeded', l.due, l.fence, l.revision + 1, l.attempt,
           l.failures, l.losses, l.started, given.finished, given.finished + l.retained,
           l.progress, l.message, '', given.result, coalesce(given.history, l.history),
           l.checkpoint
    FROM given
    CROSS JOIN tenure_live AS l
    WHERE l.number = given.number
"""

# By number. The fence was checked before.
FINISH = """
    WITH given (number, state, failures, losses, finished, settled_as, reason, result,
                keeps_error, error, history) AS (
        VALUES @rows
    )
    INSERT OR REPLACE INTO tenure_done (number, namespace, id, state, due, fence, revision, attempt,
                             failures, losses, started, finished, expires,
                             settled_fence, settled_as, progress, message,
                             reason, result, error, history, checkpoint)
    SELECT l.number, l.namespace, l.id, given.state, l.due, l.fence, l.revision + 1, l.attempt,
           l.failures + given.failures, l.losses + given.losses, l.started, given.finished,
           given.finished + iif(given.state = 'failed', l.retained_failed, l.retained),
           iif(given.settled_as IS NULL, l.settled_fence, l.fence),
           coalesce(given.settled_as, l.settled_as), l.progress, l.message,
           coalesce(given.reason, l.reason), given.result,
           iif(given.keeps_error, l.error, given.error),
           coalesce(given.history, l.history), l.checkpoint
    FROM given
    CROSS JOIN tenure_live AS l
    WHERE l.number = given.number
"""

# By number.
GIVE_BACK = """
    WITH given (number, due, wall, failures, losses, settled_as, error, history) AS (
        VALUES @rows
    )
    UPDATE tenure_live AS l
    SET holder = NULL, deadline = NULL, due = coalesce(given.due, l.due),
        since = iif(given.due IS NULL, NULL, given.wall),
        fence = max(l.fence + 1, given.wall),
        revision = l.revision + 1, failures = l.failures + given.failures,
        losses = l.losses + given.losses,
        settled_fence = l.fence, settled_as = given.settled_as,
        error = coalesce(given.error, l.error), history = coalesce(given.history, l.history)
    FROM given
    WHERE l.number = given.number
"""

# After the job has finished, its key is free when its time is over, and the job's retention if it
# stays with the job. By the job's number, and then by primary key; by tenure_job_id and number.
FREE = """
    UPDATE tenure_unique
    SET live = 0,
        until = max(until, coalesce((SELECT d.expires
                                     FROM tenure_job AS j INDEXED BY tenure_job_id
                                     CROSS JOIN tenure_done AS d
                                     WHERE j.namespace = tenure_unique.namespace
                                       AND j.id = tenure_unique.id AND j.keep > 0 AND j.with_job
                                       AND d.number = j.number),
                                    until))
    WHERE (namespace, key, id) IN (SELECT namespace, unique_key, id
                                   FROM tenure_job
                                   WHERE number IN (SELECT value FROM json_each(:numbers)))
"""

# By number.
REMOVE_LIVE = "DELETE FROM tenure_live WHERE number IN (SELECT value FROM json_each(:numbers))"

# By number.
SET_ASIDE_LIVE = """
    INSERT INTO tenure_aside
    SELECT *, :kept_until
    FROM tenure_live
    WHERE number IN (SELECT value FROM json_each(:numbers))
"""

# By tenure_job_id and number. A row that breaks a constraint is left alone.
NOTE = """
    UPDATE OR IGNORE tenure_live
    SET progress = coalesce(:progress, progress), message = coalesce(:message, message),
        checkpoint = coalesce(:checkpoint, checkpoint), revision = revision + 1
    WHERE number = (SELECT number FROM tenure_job WHERE namespace = :namespace AND id = :id)
      AND fence = :fence AND holder IS NOT NULL
"""

# By number.
REQUEST_CANCEL = """
    UPDATE tenure_live
    SET cancelling = 1, reason = :reason, revision = revision + 1
    WHERE number IN (SELECT value FROM json_each(:numbers))
"""

# By number.
REPLICAS_OF = """
    SELECT id
    FROM tenure_replica
    WHERE number IN (SELECT value FROM json_each(:numbers))
"""


class Standing(NamedTuple):
    """The fields of an unfinished job that decisions need."""

    id: str
    number: int
    queue: str
    fence: int
    holder: int | None
    cancelling: int
    keyed: int

    def runs_under(self, fence: int) -> bool:
        """Return whether it runs under this fence."""
        return self.holder is not None and self.fence == fence


def standing(tx: Transaction, ids: Sequence[str]) -> tuple[dict[str, Standing], set[object]]:
    """Return the unfinished jobs among these, and the ids of those that it has set aside.

    It sets aside jobs with damaged counters.
    """
    rows = tx.rows(STANDING, ids=as_json(ids)) if ids else []
    live: dict[str, Standing] = {}
    broken: dict[int, object] = {}
    for *row, is_sound in rows:
        job = Standing(*row)
        if is_sound:
            live[job.id] = job
        else:
            broken[job.number] = job.id
    set_aside(tx, broken)
    return live, {*broken.values()}


def set_aside(tx: Transaction, jobs: Mapping[int, object]) -> None:
    """Set unfinished jobs aside, ids by number. The rows that were inserted stay."""
    if not jobs:
        return
    tx.lasting = True
    for id_ in jobs.values():
        name = id_ if isinstance(id_, str) else repr(id_)
        tx.damage.report("job", name, SET_ASIDE, "tenure_aside")
    numbers = as_json(list(jobs))
    tx.change(SET_ASIDE_LIVE, numbers=numbers, kept_until=tx.wall + micros(ASIDE_FOR))
    for statement in (FREE, REMOVE_LIVE):
        tx.change(statement, numbers=numbers)


def settle(tx: Transaction, settlements: Sequence[Settlement]) -> list[Settled]:
    """End attempts, and return an answer for each."""
    live, aside = standing(tx, [end.id for end in settlements])
    moves = _Moves(tx)
    answers: list[Settled] = []
    refused: list[int] = []
    for end in settlements:
        job = live.get(end.id)
        if job is None or not job.runs_under(end.fence):
            refused.append(len(answers))
            answers.append("unreadable" if end.id in aside else "lost")
        else:
            answers.append(moves.settle(job, end))
            del live[end.id]
    moves.write()
    if refused:
        # Checked after the writes: the second of two in this call may repeat the first.
        ids = as_json([settlements[at].id for at in refused])
        settled = {id_: (fence, mark) for id_, fence, mark in tx.rows(SETTLED, ids=ids)}
        for at in refused:
            end = settlements[at]
            if settled.get(end.id) == (end.fence, end.mark):
                answers[at] = "repeated"
    return answers


def note(tx: Transaction, notes: Sequence[Note]) -> list[bool]:
    """Store the reports of running jobs, and return an answer for each."""
    answers = [
        tx.change(
            NOTE,
            id=note.id,
            fence=note.fence,
            progress=note.progress,
            message=note.message,
            checkpoint=note.checkpoint,
        )
        == 1
        for note in notes
    ]
    refused = [note.id for note, current in zip(notes, answers, strict=True) if not current]
    standing(tx, refused)  # an unreadable job does not run on
    noted = (note.id for note, current in zip(notes, answers, strict=True) if current)
    tx.ring(*(("job", id_) for id_ in dict.fromkeys(noted)))
    return answers


def cancel(tx: Transaction, ids: Sequence[str], reason: str) -> list[Cancelled | None]:
    """Cancel waiting jobs, request it from running ones, and return an answer for each."""
    live, _ = standing(tx, ids)
    others = [id_ for id_ in ids if id_ not in live]
    ended = {id_ for (id_,) in tx.rows(FINISHED, ids=as_json(others))} if others else set()
    moves = _Moves(tx)
    requested: dict[str, Standing] = {}
    answers: list[Cancelled | None] = []
    for id_ in ids:
        job = live.get(id_)
        if id_ in ended:
            answers.append("finished")
        elif job is None:
            answers.append(None)
        elif job.holder is not None:
            requested[id_] = job
            answers.append("requested")
        else:
            moves.cancel(job, reason)
            ended.add(id_)
            answers.append("cancelled")
    if requested:
        first = [job for job in requested.values() if not job.cancelling]
        tx.change(REQUEST_CANCEL, numbers=as_json([job.number for job in first]), reason=reason)
        moves.changed += [job.id for job in first]
        holders = {job.holder for job in requested.values() if job.holder is not None}
        replicas = tx.rows(REPLICAS_OF, numbers=as_json([*holders]))
        tx.ring(*(("replica", id_) for (id_,) in replicas))
    moves.write()
    return answers


class _Moves:
    """Collects the changes of unfinished jobs. `write` stores them together."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx
        self._successes: list[Row] = []
        self._endings: list[Row] = []
        self._returns: list[Row] = []
        self._ended: list[int] = []
        self._freed: list[int] = []
        self._soon: set[str] = set()
        self.changed: list[str] = []
        """The jobs whose watchers to wake."""

    def settle(self, job: Standing, end: Settlement) -> Settled:
        """Apply the settlement of an attempt."""
        if end.state == "succeeded":
            wall = self._tx.wall
            self._successes.append((job.number, wall, as_blob(end.result), as_blob(end.history)))
            self._has_ended(job)
        elif job.cancelling and (end.state == "waiting" or end.yields_to_cancel):
            self._finish(job, "cancelled", end)
            return "cancelled"
        elif end.state == "waiting":
            self._give_back(job, end)
        else:
            self._finish(job, end.state, end)
        return "settled"

    def cancel(self, job: Standing, reason: str) -> None:
        """Cancel a waiting job."""
        values = (0, 0, self._tx.wall, None, reason, None, True, None, None)
        self._endings.append((job.number, "cancelled", *values))
        self._has_ended(job)

    def _finish(
        self, job: Standing, state: Literal["failed", "cancelled"], end: Settlement
    ) -> None:
        is_its_own = state == end.state
        reason = (end.reason or None) if is_its_own else None
        result = end.result if is_its_own else None
        keeps_error = state == "cancelled" and end.error is None
        values = (end.failures, end.losses, self._tx.wall, end.mark, reason, result)
        self._endings.append((job.number, state, *values, keeps_error, end.error, end.history))
        self._has_ended(job)

    def _has_ended(self, job: Standing) -> None:
        self._ended.append(job.number)
        self.changed.append(job.id)
        if job.keyed:
            self._freed.append(job.number)

    def _give_back(self, job: Standing, end: Settlement) -> None:
        """Return a running job to waiting; without a delay it keeps its place in the queue."""
        wall = self._tx.wall
        due = wall + micros(end.delay) if end.delay else None
        values = (end.failures, end.losses, end.mark, end.error, end.history)
        self._returns.append((job.number, due, wall, *values))
        self.changed.append(job.id)
        if end.delay <= SOON:
            self._soon.add(job.queue)

    def write(self) -> None:
        """Write all changes, and wake watchers."""
        tx = self._tx
        tx.change_each(SUCCEED, self._successes)
        tx.change_each(FINISH, self._endings)
        if self._ended:
            tx.change(REMOVE_LIVE, numbers=as_json(self._ended))
        tx.change_each(GIVE_BACK, self._returns)
        if self._freed:
            tx.change(FREE, numbers=as_json(self._freed))
        tx.ring(*(("job", id_) for id_ in self.changed))
        tx.ring(*(("queue", queue) for queue in self._soon))
