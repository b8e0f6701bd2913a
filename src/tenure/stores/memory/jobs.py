"""Jobs and replicas in memory: the specification that the other stores are compared with.

A job moves between its states here and nowhere else: `_insert`, `start`, `_wait` and `_finish` are
the four moves, and each of them raises the revision and wakes watchers. The caller decides the new
state of a job after an attempt or a loss (`core.jobs`); these methods check the fence and write.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from typing import Literal

from tenure.core.durations import micros
from tenure.core.jobs.records import (
    BATCH_MAX,
    COUNT_MAX,
    SOON,
    TAGGED_MAX,
    Cancelled,
    Claimed,
    Deleted,
    Inserted,
    JobRecord,
    NewJob,
    Note,
    Page,
    QueueCounts,
    Requeued,
    Settled,
    Settlement,
    Tagged,
)
from tenure.core.jobs.replicas import (
    CANCELS_MAX,
    RESERVED_FOR,
    RESTARTS_MAX,
    STATS_FOR,
    STATS_MAX,
    Beat,
    Orphans,
    ReplicaRecord,
    Stats,
)
from tenure.core.jobs.search import contains, search_bytes
from tenure.core.jobs.states import FINISHED, JobState, may_delete
from tenure.core.lease_policy import next_fence
from tenure.core.leases import Meta
from tenure.stores.memory.connection import Part
from tenure.stores.memory.job_tables import Job, JobTables, Pause, Replica

__all__ = ["Jobs"]


class Jobs(Part):
    """The job part of the contract."""

    async def beat(
        self,
        replicas: Sequence[str],
        *,
        ttl: float,
        meta: Meta | None = None,
        ahead: float = 0.0,
        count: bool = True,
        stats: Stats | None = None,
    ) -> list[Beat | None]:
        """Renew the replicas, or let them join with `meta`; report cancels and expired replicas.

        All are renewed before the first is checked, so that replicas that beat in one call never
        take each other for expired.
        """
        del count  # it costs nothing here
        with self._lock:
            now = self._clock.wall()
            if stats is not None:
                self._jobs.leave_stats(stats, now)
            for replica in () if meta is None else replicas:
                new = Replica(replica, meta or {}, now, now, micros(ttl))
                self._jobs.replicas.setdefault(replica, new)
            alive = [self.alive(replica) for replica in replicas]
            for record in filter(None, alive):
                record.renewed, record.ttl = now, micros(ttl)
                self._jobs.postpone(record.id, micros(ahead))
            restarted = self._jobs.delayed_in_the_future(now)[:RESTARTS_MAX]
            for job, since in restarted:
                job.due, job.since = now + (job.due - since), now  # the clock was set back
                self._changed(job)
            expired = bool(self._jobs.expired(now) or self._jobs.overdue(now))
            more = len(restarted) == RESTARTS_MAX
            return [
                self._beat(record, now, expired=expired, more=more) if record else None
                for record in alive
            ]

    def _beat(self, replica: Replica, now: int, *, expired: bool, more: bool) -> Beat:
        held = self._jobs.held_by(replica.id)
        cancels = [job.id for job in held if job.cancelling]
        return Beat(cancels[:CANCELS_MAX], len(held), expired, now, more)

    async def replicas(self, *, limit: int = 1000) -> list[ReplicaRecord]:
        with self._lock:
            now = self._clock.wall()
            records = sorted(self._jobs.replicas.values(), key=lambda record: record.join_order)
            return [
                record.as_record(now, len(self._jobs.held_by(record.id)))
                for record in records[:limit]
            ]

    async def stats(self) -> list[bytes]:
        with self._lock:
            return self._jobs.stats_since(self._clock.wall() - micros(STATS_FOR))[:STATS_MAX]

    async def insert(self, jobs: Sequence[NewJob]) -> list[Inserted]:
        with self._lock:
            return [self._insert(job) for job in jobs]

    def _insert(self, new: NewJob) -> Inserted:
        """Store a new job, unless its id is there (a repeat) or its unique key is taken."""
        now = self._clock.wall()
        if new.id in self._jobs.jobs:
            return Inserted("created", new.id, now)
        if new.unique is not None:
            taken = self._jobs.taken(new.unique.key, now)
            if taken is not None and taken.id != new.id:
                same = taken.digest == new.unique.digest
                return Inserted("existing" if same else "mismatch", taken.id, now)
            self._jobs.take(new.unique, new.id, now)
        due = now + micros(new.delay) if new.at is None else new.at
        since = None if due <= now else now if new.at is None else 0
        job = Job(new, created=now, due=due, since=since)
        self._jobs.add(job)
        self.wake_workers(job, now)
        return Inserted("created", job.id, now)

    async def claim(
        self, replica: str, claim_no: int, queues: Sequence[str], limit: int
    ) -> Claimed | None:
        """Start due jobs on a replica, unless `claim_no` shows that this is a repeat.

        A repeat returns what that claim got and still runs. An older number is the late copy of a
        request that was answered long ago, and gets nothing.
        """
        with self._lock:
            now = self._clock.wall()
            record = self.alive(replica)
            if record is None:
                return None
            if claim_no < record.claim_no:
                return Claimed([])
            if claim_no == record.claim_no:
                same = [job for job in self._jobs.held_by(replica) if job.claim_no == claim_no]
                return Claimed([job.as_record() for job in same])
            if record.has_expired(now):
                return Claimed([])
            record.claim_no = claim_no
            ready, next_due = self._jobs.ready(queues, limit, now)
            for job in ready:
                self.start(job, record, now)
            next_in = None if next_due is None else max(0.0, (next_due - now) / 1e6)
            return Claimed([job.as_record() for job in ready], next_in)

    def start(self, job: Job, replica: Replica, now: int) -> None:
        """Start an attempt on a replica, under a fence above all earlier ones of the job."""
        job.state, job.since = "running", None
        job.replica, job.claim_no = replica.id, replica.claim_no
        job.fence = next_fence(job.fence, 0, now)
        job.attempt += 1
        job.started = now
        job.deadline = None if job.new.timeout is None else now + micros(job.new.timeout)
        self._changed(job)

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        with self._lock:
            return [self._settle(settlement) for settlement in settlements]

    def _settle(self, end: Settlement) -> Settled:
        """End an attempt if the job still runs under its fence.

        The mark of the last settlement distinguishes a repeat from a lost attempt. A pending
        cancellation wins over waiting again.
        """
        now = self._clock.wall()
        job = self._jobs.jobs.get(end.id)
        if job is None:
            return "lost"
        if job.settled == (end.fence, end.mark):
            return "repeated"
        if job.state != "running" or job.fence != end.fence:
            return "lost"
        job.settled = (end.fence, end.mark)
        job.failures += end.failures
        job.losses += end.losses
        job.history = job.history if end.history is None else end.history
        if end.error is not None:
            job.error = end.error
        if job.cancelling and (end.state == "waiting" or end.yields_to_cancel):
            self._finish(job, "cancelled", now)
            return "cancelled"
        if end.state != "waiting":
            self._end(job, end, now)
            return "settled"
        if end.delay > 0:
            job.due, job.since = now + micros(end.delay), now
        self._wait(job, now)
        return "settled"

    def _end(self, job: Job, end: Settlement, now: int) -> None:
        """Finish a job. A success clears the error and the reason of earlier attempts."""
        if end.state != "cancelled":
            job.error = end.error
        if end.state == "succeeded":
            job.reason = ""
        elif end.reason:
            job.reason = end.reason
        job.result = end.result
        self._finish(job, end.state, now)

    async def note(self, notes: Sequence[Note]) -> list[bool]:
        with self._lock:
            return [self._note(note) for note in notes]

    def _note(self, note: Note) -> bool:
        """Store what a running attempt reports; None leaves a field as it is."""
        job = self._jobs.jobs.get(note.id)
        if job is None or job.state != "running" or job.fence != note.fence:
            return False
        job.progress = job.progress if note.progress is None else note.progress
        job.message = job.message if note.message is None else note.message
        job.checkpoint = job.checkpoint if note.checkpoint is None else note.checkpoint
        self._changed(job)
        return True

    async def orphans(
        self,
        *,
        by: str,
        replica: str | None = None,
        grace: float = 0.0,
        limit: int = BATCH_MAX,
        as_of: int | None = None,
    ) -> Orphans:
        """Mark expired replicas as dead and return their jobs, reserved for `by`.

        A replica is only touched while there is room in the answer: until then it may still
        revive with a beat. A dead replica without jobs is removed. After those come jobs that run
        long past their deadline, whatever their replica does.
        """
        with self._lock:
            now = self._clock.wall()
            until = now if as_of is None else min(now, as_of)
            orphans: list[Job] = []
            dead: list[str] = []
            for record in self._gone(by, replica, now, until):
                if len(orphans) == limit:
                    break
                dead += [] if record.dead else [record.id]
                record.dead, record.reserved = True, (by, now + micros(RESERVED_FOR))
                held = self._jobs.held_by(record.id)[: limit - len(orphans)]
                if not held:
                    del self._jobs.replicas[record.id]
                orphans += held
            if replica is None:
                late = self._jobs.overdue(until - micros(grace))
                orphans += [job for job in late if job not in orphans][: limit - len(orphans)]
            return Orphans(now, [job.as_orphan() for job in orphans], dead=dead)

    def _gone(self, by: str, replica: str | None, now: int, until: int) -> list[Replica]:
        """Return the replicas that `by` may recover now: this one, or all expired ones.

        A replica that another one is recovering is left out for a while, so that survivors do not
        all settle the same jobs.
        """
        if replica is not None:
            record = self._jobs.replicas.get(replica)
            return [] if record is None else [record]
        expired = self._jobs.expired(now, until)
        return [record for record in expired if not record.is_reserved(by, now)]

    async def cancel(self, ids: Sequence[str], *, reason: str = "") -> list[Cancelled | None]:
        with self._lock:
            return [self._cancel(id_, reason) for id_ in ids]

    def _cancel(self, id_: str, reason: str) -> Cancelled | None:
        """Cancel a waiting job now; ask the replica of a running one to stop it."""
        job = self._jobs.jobs.get(id_)
        if job is None:
            return None
        if job.state in FINISHED:
            return "finished"
        if job.state == "running":
            if not job.cancelling:
                job.cancelling, job.reason = True, reason
                self._changed(job)
            self._wake(("replica", job.replica))
            return "requested"
        job.reason = reason
        self._finish(job, "cancelled", self._clock.wall())
        return "cancelled"

    async def requeue(self, ids: Sequence[str]) -> list[Requeued | None]:
        with self._lock:
            return [self._requeue(id_) for id_ in ids]

    def _requeue(self, id_: str) -> Requeued | None:
        """Let a finished job wait again as if it were new; `attempt` and the history continue.

        A run of a schedule is refused: the schedule decides when it runs.
        """
        now = self._clock.wall()
        job = self._jobs.jobs.get(id_)
        if job is None:
            return None
        if job.state not in FINISHED:
            return "unfinished"
        if job.new.schedule:
            return "refused"
        if job.new.unique is not None:
            taken = self._jobs.taken(job.new.unique.key, now)
            if taken is not None and taken.id != id_:
                return "conflict"
            self._jobs.take(job.new.unique, id_, now)
        job.failures = job.losses = job.finished = 0
        job.result = job.error = job.progress = None
        job.message = job.reason = ""
        job.due, job.since = now, None
        self._jobs.add(job)
        self._wait(job, now)
        return "requeued"

    async def delete(self, ids: Sequence[str]) -> list[Deleted | None]:
        with self._lock:
            return [self._delete(id_) for id_ in ids]

    def _delete(self, id_: str) -> Deleted | None:
        """Remove a job that does not run, and free its unique key."""
        job = self._jobs.jobs.get(id_)
        if job is None:
            return None
        if not may_delete(job.state):
            return "running"
        self._jobs.forget(job)
        self._wake(("job", id_))
        return "deleted"

    async def get(self, ids: Sequence[str]) -> list[JobRecord | None]:
        with self._lock:
            jobs = [self._jobs.jobs.get(id_) for id_ in ids]
            return [None if job is None else job.as_record() for job in jobs]

    async def find(
        self,
        *,
        state: JobState | Literal["stranded"] | None = None,
        queue: str | None = None,
        task: str | None = None,
        tag: str | None = None,
        replica: str | None = None,
        id_end: str | None = None,
        error: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page:
        """Return the newest jobs that fit all filters. There are no stranded ones in memory."""
        text = None if error is None else search_bytes(error)

        def is_visited(job: Job) -> bool:
            return (
                (cursor is None or job.id < cursor)
                and state in (None, job.state)
                and queue in (None, job.new.queue)
                and task in (None, job.new.task)
                and replica in (None, job.replica)
                and (tag is None or tag in job.new.tags)
            )

        def fits(job: Job) -> bool:
            return (id_end is None or job.id.endswith(id_end)) and (
                text is None or contains(job.error, text) or contains(job.reason.encode(), text)
            )

        with self._lock:
            visited = [job for job in self._jobs.jobs.values() if is_visited(job)]
            fitting = [job for job in visited if fits(job)]
            page = heapq.nlargest(limit, fitting, key=lambda job: job.id)
            more = page[-1].id if len(fitting) > len(page) and page else None
            looked = sum(more is None or job.id >= more for job in visited)
            return Page([job.as_record() for job in page], more, visited=looked)

    async def counts(self) -> list[QueueCounts]:
        with self._lock:
            now = self._clock.wall()
            live = list(self._jobs.unfinished.values())
            paused = {name for name in self._jobs.pauses if self._jobs.pause_of(name, now)}
            by_queue: dict[str, list[Job]] = {name: [] for name in paused}
            for job in live:
                by_queue.setdefault(job.new.queue, []).append(job)
            return [self._count(name, by_queue[name], now) for name in sorted(by_queue)]

    def _count(self, queue: str, jobs: list[Job], now: int) -> QueueCounts:
        """Count the jobs of a queue, and say how long the first due one has waited."""
        waiting = [job for job in jobs if job.state == "waiting"]
        oldest = min((job.due for job in waiting if job.is_due(now)), default=None)
        pause = self._jobs.pause_of(queue, now)
        return QueueCounts(
            queue=queue,
            waiting=min(COUNT_MAX, len(waiting)),
            running=min(COUNT_MAX, len(jobs) - len(waiting)),
            oldest=None if oldest is None else max(0, now - oldest) / 1e6,
            paused_for=None if pause is None else (pause.until - now) / 1e6,
            pause_reason="" if pause is None else pause.reason,
        )

    async def count_tagged(
        self, tag: str, *, unfinished: int, recent: int, within: float
    ) -> Tagged:
        """Count among the newest jobs with a tag: those unfinished, and those created lately."""
        with self._lock:
            now = self._clock.wall()
            tagged = [job for job in self._jobs.jobs.values() if tag in job.new.tags]
            newest = heapq.nlargest(TAGGED_MAX, tagged, key=lambda job: job.id)
            live = [job for job in newest if job.state not in FINISHED]
            since = now - micros(within)
            created = [job.created for job in newest if since < job.created <= now][:recent]
            oldest = (now - min(created)) / 1e6 if created else 0.0
            return Tagged(len(live[:unfinished]), len(created), oldest)

    async def pause(self, queue: str, *, seconds: float | None = None, reason: str = "") -> None:
        """Pause a queue, or with 0 seconds end its pause and wake the workers that watch it."""
        with self._lock:
            if seconds == 0:
                self._jobs.pauses.pop(queue, None)
                self._wake(("queue", queue))
                return
            until = math.inf if seconds is None else self._clock.wall() + micros(seconds)
            self._jobs.pauses[queue] = Pause(until, reason)

    def prune(self, limit: int) -> int:
        """Remove jobs whose retention is over, those first that ended first, and free keys.

        A unique key may outlive its job here, unlike in `_delete`.
        """
        now = self._clock.wall()
        jobs = self._jobs.jobs
        over = [job for job in jobs.values() if job.state in FINISHED and job.expires <= now]
        over = heapq.nsmallest(limit, over, key=lambda job: (job.expires, job.id))
        for job in over:
            del jobs[job.id]
        self._jobs.forget_free_keys(now)
        return len(over)

    @property
    def _jobs(self) -> JobTables:
        return self._data.jobs

    def alive(self, replica: str) -> Replica | None:
        """Return the record of a replica, or None if its jobs are being recovered.

        It may have expired: until a survivor marks it as dead, a beat revives it.
        """
        record = self._jobs.replicas.get(replica)
        return None if record is None or record.dead else record

    def _wait(self, job: Job, now: int) -> None:
        """Let a job wait. The new fence makes every later write of its former attempt fail."""
        job.state = "waiting"
        job.fence = next_fence(job.fence, 0, now)
        job.replica, job.deadline = "", None
        self._changed(job)
        self.wake_workers(job, now)

    def _finish(self, job: Job, state: JobState, now: int) -> None:
        """End a job for good, unless it is requeued."""
        job.state = state
        del self._jobs.unfinished[job.id]
        job.replica, job.deadline, job.cancelling = "", None, False
        job.finished = now
        self._jobs.keep_with(job)
        self._changed(job)

    def _changed(self, job: Job) -> None:
        """Count a change of a job that callers can see, and wake those that watch it."""
        job.revision += 1
        self._wake(("job", job.id))

    def wake_workers(self, job: Job, now: int) -> None:
        """Wake the workers of a queue for a job that is due soon; they poll before later ones."""
        if job.is_due(now + micros(SOON)):
            self._wake(("queue", job.new.queue))
