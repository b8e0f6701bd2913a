"""Jobs in SQLite."""

from __future__ import annotations

from collections.abc import Sequence

from tenure.core.durations import micros
from tenure.core.model import Topic
from tenure.core.records import (
    Cancelled,
    Claimed,
    Deleted,
    Inserted,
    NewJob,
    Note,
    Requeued,
    Settled,
    Settlement,
)
from tenure.core.soundness import UNREADABLE
from tenure.stores.sqlite import job_statements as sql
from tenure.stores.sqlite.claims import Claim, claim
from tenure.stores.sqlite.database import Mode
from tenure.stores.sqlite.deleting import delete
from tenure.stores.sqlite.inserting import insert, take
from tenure.stores.sqlite.job_moves import (
    Moves,
    Standing,
    finished,
    standing,
    standing_or_aside,
)
from tenure.stores.sqlite.looking import Looking
from tenure.stores.sqlite.replicas import Replicas
from tenure.stores.sqlite.transaction import Row, Transaction, as_json

__all__ = ["Jobs", "cancel", "prune_jobs", "settle"]


class Jobs(Replicas, Looking):
    """The job half of the contract. Every change of a job is on the disk before its answer."""

    async def insert(self, jobs: Sequence[NewJob]) -> list[Inserted]:
        return await self._run(lambda tx: insert(tx, jobs), Mode.DURABLE)

    async def claim(
        self, replica: str, claim_no: int, queues: Sequence[str], limit: int
    ) -> Claimed | None:
        asked = Claim(replica, claim_no, as_json(list(dict.fromkeys(queues))), limit)

        def work(tx: Transaction) -> Claimed | None:
            return claim(tx, self._empty_claims, asked)

        # It looks first. If there are jobs to start, the writer runs it again in DURABLE mode.
        return await self._run(work, Mode.READ)

    async def settle(self, replica: str, settlements: Sequence[Settlement]) -> list[Settled]:
        del replica  # a fence names the attempt, and the attempt its replica
        return await self._run(lambda tx: settle(tx, settlements), Mode.DURABLE)

    async def note(self, replica: str, notes: Sequence[Note]) -> list[bool]:
        del replica
        return await self._run(lambda tx: _note(tx, notes), Mode.DURABLE)

    async def cancel(self, ids: Sequence[str], *, reason: str = "") -> list[Cancelled | None]:
        return await self._run(lambda tx: cancel(tx, ids, reason), Mode.DURABLE)

    async def requeue(self, ids: Sequence[str]) -> list[Requeued | None]:
        return await self._run(lambda tx: _requeue(tx, ids), Mode.DURABLE)

    async def delete(self, ids: Sequence[str]) -> list[Deleted | None]:
        return await self._run(lambda tx: delete(tx, ids), Mode.DURABLE)


def settle(tx: Transaction, settlements: Sequence[Settlement]) -> list[Settled]:
    """End attempts, and answer for each."""
    live, aside = standing_or_aside(tx, [end.id for end in settlements])
    moves = Moves(tx)
    answers: list[Settled] = []
    refused: list[int] = []
    for end in settlements:
        job = live.get(end.id)
        if job is None or job.fence != end.fence or job.holder is None:
            refused.append(len(answers))
            answers.append("unreadable" if end.id in aside else "lost")
        else:
            answers.append(moves.settle(job, end))
            del live[end.id]
    moves.write()
    if refused:
        # Looked at after the writing: the first of two in this call may be what the second repeats.
        ids = as_json([settlements[at].id for at in refused])
        known = {id_: (fence, mark) for id_, fence, mark in tx.rows(sql.SETTLED, ids=ids)}
        for at in refused:
            end = settlements[at]
            if known.get(end.id) == (end.fence, end.mark):
                answers[at] = "repeated"
    return answers


def _note(tx: Transaction, notes: Sequence[Note]) -> list[bool]:
    answers = [
        tx.change(
            sql.NOTE,
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
    if refused:
        standing(tx, refused)  # what cannot be read does not run on
    noted = (note.id for note, current in zip(notes, answers, strict=True) if current)
    tx.ring_all([("job", id_) for id_ in dict.fromkeys(noted)])
    return answers


def cancel(tx: Transaction, ids: Sequence[str], reason: str) -> list[Cancelled | None]:
    """End what waits, leave word with what runs, and answer for each."""
    live = standing(tx, ids)
    ended = finished(tx, [id_ for id_ in ids if id_ not in live])
    moves = Moves(tx)
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
    _request(tx, list(requested.values()), moves, reason)
    moves.write()
    return answers


def _request(tx: Transaction, jobs: list[Standing], moves: Moves, reason: str) -> None:
    """Leave word with running jobs that they are to end, and wake their replicas."""
    if not jobs:
        return
    first = [job for job in jobs if not job.cancelling]
    numbers = as_json([job.number for job in first])
    tx.change(sql.REQUEST_CANCEL, numbers=numbers, reason=reason)
    for job in first:
        moves.changed(job.id)
    holders = as_json(list({job.holder for job in jobs if job.holder is not None}))
    replicas: list[Topic] = [
        ("replica", id_) for _, id_ in tx.rows(sql.REPLICAS_OF, numbers=holders)
    ]
    tx.ring_all(replicas)


def _requeue(tx: Transaction, ids: Sequence[str]) -> list[Requeued | None]:
    ended = {row[0]: row for row in tx.rows(sql.TO_REQUEUE, ids=as_json(ids))}
    live = set(standing(tx, [id_ for id_ in ids if id_ not in ended]))
    again: list[Row] = []
    queues: set[str] = set()
    answers: list[Requeued | None] = []
    for id_ in ids:
        if id_ in live:
            answers.append("unfinished")
        elif id_ not in ended:
            answers.append(None)
        else:
            _, number, queue, timeout, *kept, key, digest, keep, schedule, is_sound = ended[id_]
            if not is_sound:
                tx.damage.report("job", id_, UNREADABLE, "tenure_done")
                answers.append(None)
                continue
            if schedule is not None:
                answers.append("refused")
                continue
            if key is not None and take(tx, id_, key, digest, keep) is not None:
                answers.append("conflict")
                continue
            allowed = None if timeout is None else micros(timeout)
            again.append((number, tx.wall, *map(micros, kept), allowed))
            queues.add(queue)
            live.add(id_)
            answers.append("requeued")
    if again:
        tx.change_each(sql.WAIT_AGAIN, again)
        tx.change(sql.REMOVE_DONE, numbers=as_json([row[0] for row in again]))
        woken = (id_ for id_, answer in zip(ids, answers, strict=True) if answer == "requeued")
        tx.ring_all([("job", id_) for id_ in woken])
        tx.ring_all([("queue", queue) for queue in queues])
    return answers


def prune_jobs(tx: Transaction, limit: int) -> tuple[int, bool]:
    """Remove what is over; return how many finished jobs that were, and whether more may be."""
    keys = tx.change(sql.FORGET_FREE_KEYS, limit=limit)
    numbers = [number for (number,) in tx.rows(sql.TO_PRUNE, limit=limit)]
    if numbers:
        listed = as_json(numbers)
        tx.change(sql.REMOVE_TAGS, numbers=listed)
        tx.change(sql.REMOVE_DONE, numbers=listed)
        tx.change(sql.REMOVE_JOB, numbers=listed)
    aside = [number for (number,) in tx.rows(sql.ASIDE_TO_PRUNE, limit=limit)]
    if aside:
        listed = as_json(aside)
        for statement in (sql.REMOVE_TAGS, sql.REMOVE_JOB, sql.REMOVE_ASIDE):
            tx.change(statement, numbers=listed)
    return len(numbers), limit in (keys, len(numbers), len(aside))
