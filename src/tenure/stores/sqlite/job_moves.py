"""What becomes of jobs in one call: decided one by one, written all at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

from tenure.core.durations import micros
from tenure.core.records import SOON, AttemptLine, AttemptOutcome, Recovered, write_history
from tenure.core.soundness import ASIDE_FOR, SET_ASIDE
from tenure.stores.sqlite import job_statements as sql
from tenure.stores.sqlite.transaction import Row, Transaction, as_blob, as_json

__all__ = ["Held", "Moves", "Standing", "finished", "set_aside", "standing", "standing_or_aside"]

_Ended: TypeAlias = Literal["succeeded", "failed", "cancelled"]


class Standing(NamedTuple):
    """An unfinished job as far as a decision about it needs it."""

    id: str
    number: int
    fence: int
    holder: int | None
    cancelling: int
    keyed: int
    rerun: int


class Held(NamedTuple):
    """A running job that is to be taken from its replica."""

    number: int
    id: str
    cancelling: int
    keyed: int
    rerun: int
    attempt: int
    losses: int
    started: int
    history: bytes
    replica: str
    readable: bool
    """Whether it can be counted up and moved."""

    @classmethod
    def read(cls, row: Row) -> Held:
        """Return a row of HELD, OVERDUE or ORPHANS."""
        number, id_, *rest, replica, sound = row
        whose = replica if isinstance(replica, str) else ""
        if isinstance(id_, str):
            return cls._make((number, id_, *rest, whose, bool(sound)))
        return cls._make((number, repr(id_), *rest, whose, False))


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
        self._aside: dict[int, str] = {}
        self._soon: list[int] = []
        self._changed: list[str] = []

    def succeed(self, job: Standing, result: bytes | None, history: bytes | None) -> None:
        """End a job as it should."""
        wall = self._tx.wall
        self._successes.append((job.number, wall, as_blob(result), as_blob(history)))
        self._has_ended(job)

    def finish(
        self,
        job: Standing | Held,
        state: _Ended,
        *,
        settled_as: AttemptOutcome | None = None,
        failures: int = 0,
        losses: int = 0,
        reason: str | None = None,
        result: bytes | None = None,
        error: bytes | Literal["kept"] | None = "kept",
        history: bytes | None = None,
    ) -> None:
        """End a job. What is None stays as it is, except for the result and the error."""
        wall = self._tx.wall
        kept = isinstance(error, str)
        self._endings.append(
            (
                *(job.number, state, failures, losses, wall, settled_as, reason, result),
                *(kept, None if kept else error, history),
            )
        )
        self._has_ended(job)

    def _has_ended(self, job: Standing | Held) -> None:
        self._ended.append(job.number)
        self._changed.append(job.id)
        if job.keyed:
            self._freed.append(job.number)

    def give_back(
        self,
        job: Standing | Held,
        delay: float = 0.0,
        *,
        settled_as: AttemptOutcome | None = None,
        failures: int = 0,
        losses: int = 0,
        error: bytes | Literal["kept"] | None = "kept",
        history: bytes | None = None,
    ) -> None:
        """Return a running job to waiting, unless a cancel is pending or it may not run again."""
        counted: dict[str, Any] = {"failures": failures, "losses": losses, "history": history}
        if job.cancelling:
            self.finish(job, "cancelled", settled_as=settled_as, error=error, **counted)
            return
        if not job.rerun:
            self.finish(
                job, "failed", settled_as=settled_as, reason="interrupted", error=None, **counted
            )
            return
        wall = self._tx.wall
        due = wall + micros(delay) if delay else None  # it keeps its place in the queue
        kept = isinstance(error, str)
        self._returns.append(
            (
                *(job.number, due, wall, failures, losses, settled_as),
                *(kept, None if kept else error, history),
            )
        )
        self._changed.append(job.id)
        if delay <= SOON:
            self._soon.append(job.number)

    def return_held(self, job: Held) -> Recovered:
        """Hand a job back; nothing is counted."""
        if not job.readable:
            return self.set_aside(job)
        self.give_back(job)
        state: Literal["waiting", "failed", "cancelled"] = "waiting" if job.rerun else "failed"
        if job.cancelling:
            state = "cancelled"
        return Recovered(id=job.id, replica=job.replica, state=state, losses=job.losses)

    def lose(self, job: Held, delays: Sequence[float]) -> Recovered:
        """Take a job from its replica and count a loss."""
        if not job.readable:
            return self.set_aside(job)
        losses = job.losses + 1
        line = AttemptLine(job.attempt, job.replica, job.started, self._tx.wall, "lost")
        history = job.history + write_history([line])
        state: Literal["waiting", "failed", "cancelled"]
        if (job.rerun and losses <= len(delays)) or job.cancelling:
            state = "cancelled" if job.cancelling else "waiting"
            delay = delays[losses - 1] if losses <= len(delays) else 0.0
            self.give_back(job, delay, losses=1, history=history)
        else:
            state = "failed"
            self.finish(job, state, losses=1, reason="lost", error=None, history=history)
        return Recovered(id=job.id, replica=job.replica, state=state, losses=losses)

    def changed(self, id_: str) -> None:
        """Wake who watches a job that was changed elsewhere."""
        self._changed.append(id_)

    def write(self) -> None:
        """Carry it all out and wake who watches."""
        tx = self._tx
        if self._aside:
            set_aside(tx, self._aside)
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

    def set_aside(self, job: Held) -> Recovered:
        """Move what cannot be read out of the way."""
        self._aside[job.number] = job.id
        return Recovered(id=job.id, replica=job.replica, state=None)
