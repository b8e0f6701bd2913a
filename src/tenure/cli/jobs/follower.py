"""Following what happens to jobs by looking again and again, at a bounded number of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from tenure.cli.jobs.selection import PAGE, slices
from tenure.core.ids import job_id
from tenure.core.jobs.history import read_history
from tenure.core.jobs.states import FINISHED, JobState
from tenure.core.leases import Topic
from tenure.jobs import Job, Jobs
from tenure.stores.contract import Store

__all__ = ["PAGES", "Change", "Follower"]

PAGES = 5
"""How many pages of new jobs one look goes through at the most."""

# How many unfinished jobs are asked for by their ids in one look, beside the newest ones.
_FOLLOWED = 1000
# Each watched queue may be a subscription.
_WATCHED = 20
# A job that nobody has seen before is news only if what happened to it is not older than the look
# before, give or take the time that a look and a transaction take.
_SLACK = 5_000_000

# Ids are made by whoever asks for jobs, and clocks differ: a look goes back by so many milliseconds
# behind the newest id that it knows.
_SKEW = 2_000
_NOBODY = "0" * 32

_Face = tuple[object, ...]


class Change(NamedTuple):
    """Something that happened to a job."""

    at: int
    was: JobState | None
    """The state at the look before; None for a job that was not seen until now."""
    job: Job[Any]


class _Known(NamedTuple):
    state: JobState
    face: _Face


class Follower:
    """Remembers how jobs looked, and tells what is different now.

    A look sees the newest jobs (all that came since the look before, as far as PAGES go), the
    newest running ones, and those it has seen unfinished. What waits for longer than that, starts
    and ends between two looks is not seen.
    """

    def __init__(self, store: Store, wanted: Mapping[str, str | None]) -> None:
        self._store = store
        self._jobs = Jobs(store, {})
        self._wanted = wanted
        self._known: dict[str, _Known] = {}
        self.now = 0
        """The store's time at the last look."""
        self._newest = self._floor = ""
        self._queues = dict.fromkeys(filter(None, [wanted["queue"]]))
        self.has_gap = False
        """Whether more jobs came since the look before than this one could see."""

    @property
    def topics(self) -> tuple[Topic, ...]:
        """What to watch for a look to be worth while; only what it knows of."""
        return tuple(("queue", queue) for queue in self._queues)

    async def begin(self, state: JobState | None, lines: int) -> list[Change]:
        """Return the last changes there were, oldest first, and remember how all looks now."""
        now = (await self._store.ping()).now
        seen = await self._newest_jobs(now, first=True)
        if state is not None:
            page = await self._jobs.page(**self._wanted, state=state, limit=PAGE)
            seen |= {job.id: job for job in page}
        last = sorted(self._noticed(seen, now, begins=True), key=_order)
        last = [one for one in last if state in (None, one.job.state)]
        return last[-lines:] if lines else []

    async def look(self, state: JobState | None) -> list[Change]:
        """Return what has changed since the last look, in the order in which it happened.

        With a `state`, only what has led to it or happened in it.
        """
        now = (await self._store.ping()).now
        seen = await self._newest_jobs(now)
        followed = [id_ for id_, one in self._known.items() if one.state not in FINISHED]
        for ids in slices([id_ for id_ in followed if id_ not in seen][-_FOLLOWED:]):
            for record in await self._store.jobs.get(ids):
                if record is not None:
                    seen[record.id] = Job(self._jobs, record)
        changes = sorted(self._noticed(seen, now), key=_order)
        return [one for one in changes if state in (None, one.job.state)]

    async def _newest_jobs(self, now: int, *, first: bool = False) -> dict[str, Job[Any]]:
        """Return the newest jobs and the newest running ones."""
        seen: dict[str, Job[Any]] = {}
        cursor: str | None = None
        if first:
            self._floor = job_id(now // 1000 - _SKEW, 0, _NOBODY)
        for _ in range(PAGES):
            page = await self._jobs.page(**self._wanted, limit=PAGE, cursor=cursor)
            seen |= {job.id: job for job in page}
            cursor = page.cursor
            if cursor is None or cursor <= self._floor:
                break
        self.has_gap = not first and cursor is not None and cursor > self._newest
        # Where no job fits, the search for new ones ends at the ids of this moment.
        self._newest = max(self._newest, *seen) if seen else job_id(now // 1000, 0, _NOBODY)
        self._floor = job_id(_millisecond(self._newest) - _SKEW, 0, _NOBODY)
        # After the others: what began to run meanwhile is among these, and newer.
        running = await self._jobs.page(**self._wanted, state="running", limit=PAGE)
        return seen | {job.id: job for job in running}

    def _noticed(
        self, seen: Mapping[str, Job[Any]], now: int, *, begins: bool = False
    ) -> Iterable[Change]:
        known: dict[str, _Known] = {}
        for id_, job in seen.items():
            before = self._known.get(id_)
            known[id_] = this = _Known(job.state, _face(job))
            if len(self._queues) < _WATCHED:
                self._queues.setdefault(job.queue)
            if before is None:
                at = _changed_at(job, None, now)
                if begins or job.state == "waiting" or at >= self.now - _SLACK:
                    yield Change(at, None, job)
            elif before.face != this.face:
                yield Change(_changed_at(job, before, now), before.state, job)
        self._known, self.now = known, now


def _millisecond(id_: str) -> int:
    """Return when an id was made, by the clock of its maker."""
    return int(id_[:8] + id_[9:13], 16)


def _order(change: Change) -> tuple[int, str]:
    return change.at, change.job.id


def _face(job: Job[Any]) -> _Face:
    """Return what is told about a job: a checkpoint, for one, changes its revision alone."""
    record = job.record
    return (
        record.state,
        record.cancelling,
        record.attempt,
        record.failures,
        record.losses,
        record.progress,
        record.message,
    )


def _changed_at(job: Job[Any], before: _Known | None, now: int) -> int:
    """Return when what is new about a job happened, as well as its record tells."""
    record = job.record
    if job.is_finished:
        return record.finished
    if job.state == "running":
        is_new = before is None or before.state != "running"
        return record.started if is_new else now
    if before is not None and before.state in FINISHED:
        return min(record.due, now)  # requeued, and so due at that moment
    ended = [line.ended for line in read_history(record.history)]
    return max([record.created, *ended[-1:]])
