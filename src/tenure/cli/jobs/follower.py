"""Follows changes of jobs by polling, with a bounded number of jobs read in each poll.

`Follower` remembers how each job looked and returns what is different. `tail` shows it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from tenure.cli.jobs.selection import PAGE, batches
from tenure.core.ids import job_id
from tenure.core.jobs.history import read_history
from tenure.core.jobs.states import FINISHED, JobState
from tenure.core.leases import Topic
from tenure.jobs import Job, Jobs
from tenure.stores.contract import Store

__all__ = ["PAGES", "Change", "Follower"]

PAGES = 5
"""How many pages of new jobs one poll reads at most."""

# How many unfinished jobs one poll reads by id, in addition to the newest jobs.
_FOLLOWED = 1000
# Each watched queue may be a subscription.
_WATCHED = 20
# A job that is seen for the first time is a change only if it changed after the poll before, give
# or take the time that a poll and a transaction take.
_SLACK = 5_000_000

# Callers make the ids of jobs, and their clocks differ: a poll starts this many milliseconds before
# the newest id of the poll before.
_SKEW = 2_000
_NO_RANDOMNESS = "0" * 32

_Face = tuple[object, ...]


class Change(NamedTuple):
    """A change of a job that a poll has noticed."""

    at: int
    was: JobState | None
    """The state at the poll before; None for a job that is seen for the first time."""
    job: Job[Any]


class _Seen(NamedTuple):
    state: JobState
    face: _Face


class Follower:
    """Remembers how jobs looked at the last poll, and returns what has changed since.

    A poll reads the newest jobs (all since the poll before, up to PAGES), the newest running jobs,
    and the unfinished jobs of earlier polls. It misses an older job that starts and finishes
    between two polls.
    """

    def __init__(self, store: Store, filters: Mapping[str, str | None]) -> None:
        self._store = store
        self._jobs = Jobs(store, {})
        self._filters = filters
        self._seen: dict[str, _Seen] = {}
        self.now = 0
        """The store's time at the last poll."""
        self._newest = self._floor = ""
        self._queues = dict.fromkeys(filter(None, [filters["queue"]]))
        self.has_gap = False
        """Whether the last poll had to skip new jobs, because there were too many."""

    @property
    def topics(self) -> tuple[Topic, ...]:
        """What to watch so that a new job triggers a poll: the queues seen so far."""
        return tuple(("queue", queue) for queue in self._queues)

    async def begin(self, state: JobState | None, lines: int) -> list[Change]:
        """Return the last changes, oldest first, and remember how all jobs look now."""
        now = (await self._store.ping()).now
        jobs = await self._newest_jobs(now, first=True)
        if state is not None:
            page = await self._jobs.page(**self._filters, state=state, limit=PAGE)
            jobs |= {job.id: job for job in page}
        changes = sorted(self._changes(jobs, now, begins=True), key=_order)
        changes = [change for change in changes if state in (None, change.job.state)]
        return changes[-lines:] if lines else []

    async def poll(self, state: JobState | None) -> list[Change]:
        """Return the changes since the last poll, in the order in which they happened.

        With a `state`, only changes to that state and within it.
        """
        now = (await self._store.ping()).now
        jobs = await self._newest_jobs(now)
        unfinished = [id_ for id_, seen in self._seen.items() if seen.state not in FINISHED]
        for ids in batches([id_ for id_ in unfinished if id_ not in jobs][-_FOLLOWED:]):
            for record in await self._store.jobs.get(ids):
                if record is not None:
                    jobs[record.id] = Job(self._jobs, record)
        changes = sorted(self._changes(jobs, now), key=_order)
        return [change for change in changes if state in (None, change.job.state)]

    async def _newest_jobs(self, now: int, *, first: bool = False) -> dict[str, Job[Any]]:
        """Return the newest jobs and the newest running jobs."""
        jobs: dict[str, Job[Any]] = {}
        cursor: str | None = None
        if first:
            self._floor = job_id(now // 1000 - _SKEW, 0, _NO_RANDOMNESS)
        for _ in range(PAGES):
            page = await self._jobs.page(**self._filters, limit=PAGE, cursor=cursor)
            jobs |= {job.id: job for job in page}
            cursor = page.cursor
            if cursor is None or cursor <= self._floor:
                break
        self.has_gap = not first and cursor is not None and cursor > self._newest
        # If no job matches, the next poll starts at the ids of this moment.
        no_job = job_id(now // 1000, 0, _NO_RANDOMNESS)
        self._newest = max(self._newest, *jobs) if jobs else no_job
        self._floor = job_id(_millisecond(self._newest) - _SKEW, 0, _NO_RANDOMNESS)
        # Read after the others, so that a job that starts in between appears as running.
        running = await self._jobs.page(**self._filters, state="running", limit=PAGE)
        return jobs | {job.id: job for job in running}

    def _changes(
        self, jobs: Mapping[str, Job[Any]], now: int, *, begins: bool = False
    ) -> Iterable[Change]:
        """Yield what differs from the poll before, and remember these jobs for the next one."""
        seen: dict[str, _Seen] = {}
        for id_, job in jobs.items():
            before = self._seen.get(id_)
            seen[id_] = after = _Seen(job.state, _face(job))
            if len(self._queues) < _WATCHED:
                self._queues.setdefault(job.queue)
            if before is None:
                at = _changed_at(job, None, now)
                if begins or job.state == "waiting" or at >= self.now - _SLACK:
                    yield Change(at, None, job)
            elif before.face != after.face:
                yield Change(_changed_at(job, before, now), before.state, job)
        self._seen, self.now = seen, now


def _millisecond(id_: str) -> int:
    """Return when an id was made, by the clock of its maker."""
    return int(id_[:8] + id_[9:13], 16)


def _order(change: Change) -> tuple[int, str]:
    return change.at, change.job.id


def _face(job: Job[Any]) -> _Face:
    """Return what a line shows about a job. A checkpoint, for one, changes only its revision."""
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


def _changed_at(job: Job[Any], before: _Seen | None, now: int) -> int:
    """Return when a job changed, as exactly as its record says."""
    record = job.record
    if job.is_finished:
        return record.finished
    if job.state == "running":
        is_new = before is None or before.state != "running"
        return record.started if is_new else now
    if before is not None and before.state in FINISHED:
        return min(record.due, now)  # requeued, and so due at that moment
    ends = [attempt.ended for attempt in read_history(record.history)]
    return max([record.created, *ends[-1:]])
