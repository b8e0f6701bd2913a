"""What becomes of jobs in one call: decided one by one, written all at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from tenure.core.durations import micros
from tenure.core.records import SOON, Settled, Settlement
from tenure.core.soundness import ASIDE_FOR, SET_ASIDE
from tenure.stores.sqlite import job_statements as sql
from tenure.stores.sqlite.transaction import Row, Transaction, as_blob, as_json

__all__ = ["Moves", "Standing", "finished", "set_aside", "standing", "standing_or_aside"]


class Standing(NamedTuple):
    """An unfinished job as far as a decision about it needs it."""

    id: str
    number: int
    fence: int
    holder: int | None
    cancelling: int
    keyed: int


def standing(tx: Transaction, ids: Sequence[str]) -> dict[str, Standing]:
    """Return the unfinished ones among jobs. Those that cannot be counted up are set aside."""
    return standing_or_aside(tx, ids)[0]


def standing_or_aside(
    tx: Transaction, ids: Sequence[str]
) -> tuple[dict[str, Standing], set[object]]:
    """Return the same, and the ids of those that were set aside."""
    rows = tx.rows(sql.STANDING, ids=as_json(ids))
    broken = {row[1]: row[0] for row in rows if not row[-1]}
    if broken:
        set_aside(tx, broken)
    return {row[0]: Standing._make(row[:-1]) for row in rows if row[-1]}, {*broken.values()}


def finished(tx: Transaction, ids: Sequence[str]) -> set[str]:
    """Return the finished ones among jobs."""
    return {id_ for (id_,) in tx.rows(sql.FINISHED, ids=as_json(ids))} if ids else set()


def set_aside(tx: Transaction, jobs: Mapping[int, object]) -> None:
    """Move unfinished jobs, ids by number, out of the way. What was inserted stays where it is."""
    for id_ in jobs.values():
        name = id_ if isinstance(id_, str) else repr(id_)
        tx.damage.report("job", name, SET_ASIDE, "tenure_aside")
    listed = as_json(list(jobs))
    tx.change(sql.SET_ASIDE, numbers=listed, kept_until=tx.wall + micros(ASIDE_FOR))
    for statement in (sql.FREE, sql.REMOVE_LIVE):
        tx.change(statement, numbers=listed)


class Moves:
    """Collects what becomes of unfinished jobs. Nothing is changed before `write`."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx
        self._successes: list[Row] = []
        self._endings: list[Row] = []
        self._returns: list[Row] = []
        self._ended: list[int] = []
        self._freed: list[int] = []
        self._soon: list[int] = []
        self._changed: list[str] = []

    def settle(self, job: Standing, end: Settlement) -> Settled:
        """End an attempt as its settlement says."""
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
        """End a job that waits."""
        wall = self._tx.wall
        values = (0, 0, wall, None, reason, None, True, None, None)
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
        self._changed.append(job.id)
        if job.keyed:
            self._freed.append(job.number)

    def _give_back(self, job: Standing, end: Settlement) -> None:
        """Return a running job to waiting; without a delay it keeps its place in the queue."""
        wall = self._tx.wall
        due = wall + micros(end.delay) if end.delay else None
        values = (end.failures, end.losses, end.mark, end.error is None, end.error, end.history)
        self._returns.append((job.number, due, wall, *values))
        self._changed.append(job.id)
        if end.delay <= SOON:
            self._soon.append(job.number)

    def changed(self, id_: str) -> None:
        """Wake who watches a job that was changed elsewhere."""
        self._changed.append(id_)

    def write(self) -> None:
        """Carry it all out and wake who watches."""
        tx = self._tx
        if self._successes:
            tx.change_each(sql.SUCCEED, self._successes)
        if self._endings:
            tx.change_each(sql.FINISH, self._endings)
        if self._ended:
            tx.change(sql.REMOVE_LIVE, numbers=as_json(self._ended))
        if self._returns:
            tx.change_each(sql.GIVE_BACK, self._returns)
        if self._freed:
            tx.change(sql.FREE, numbers=as_json(self._freed))
        tx.ring_all([("job", id_) for id_ in self._changed])
        if self._soon:
            queues = tx.rows(sql.QUEUES_OF, numbers=as_json(self._soon))
            tx.ring_all([("queue", queue) for (queue,) in queues])
