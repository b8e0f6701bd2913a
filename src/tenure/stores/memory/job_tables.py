"""The job records of the memory store: jobs, replicas, unique keys and queue pauses.

`JobTables` finds records; `jobs` decides and changes them. Each method here looks at all jobs where
the other stores use an index: the plain search defines what their indexes must return.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from msgspec import structs

from tenure.core.durations import micros
from tenure.core.jobs.records import JobRecord, NewJob, Unique, retention_of
from tenure.core.jobs.replicas import RESERVED_FOR, STATS_FOR, ReplicaRecord, Stats
from tenure.core.jobs.states import FINISHED, JobState
from tenure.core.leases import Meta

__all__ = ["Job", "JobTables", "Pause", "Replica", "UniqueKey"]


@dataclass(slots=True, eq=False)
class Job:
    """A job. Times are microseconds; texts and bytes are empty where there is nothing."""

    new: NewJob
    created: int
    due: int
    since: int | None = None
    """When the delay before `due` began; 0 if the caller gave `due` as an instant.

    None: there is no delay, and the job may start whatever the clock shows.
    """
    state: JobState = "waiting"
    attempt: int = 0
    failures: int = 0
    losses: int = 0
    fence: int = 0
    revision: int = 1
    replica: str = ""
    claim_no: int = 0
    started: int = 0
    deadline: int | None = None
    """Only while it is running."""
    progress: float | None = None
    message: str = ""
    checkpoint: bytes | None = None
    cancelling: bool = False
    reason: str = ""
    finished: int = 0
    result: bytes | None = None
    error: bytes | None = None
    history: bytes = b""
    settled: tuple[int, str] = (0, "")
    """The fence and mark of the last settlement, so that a repeat is recognised."""

    @property
    def id(self) -> str:
        return self.new.id

    @property
    def expires(self) -> int:
        """When the retention of a finished job ends."""
        return self.finished + micros(retention_of(self.new, self.state))

    @property
    def place(self) -> tuple[int, int, str]:
        """Its place in the queue: smaller comes first.

        Due times count in whole milliseconds, and ids grow with time, so jobs of the same
        millisecond start in the order in which they were made.
        """
        return self.new.priority, self.due // 1000, self.id

    def is_due(self, now: int) -> bool:
        """Return whether it may start. Without a delay, a clock that was set back hides no job."""
        return self.since is None or self.due <= now

    def as_orphan(self) -> JobRecord:
        """Return the record without large fields, which no decision about its end needs."""
        large: dict[str, Any] = {"payload": b"", "checkpoint": None, "result": None, "error": None}
        return structs.replace(self.as_record(), **large)

    def as_record(self) -> JobRecord:
        new = self.new
        return JobRecord(
            id=new.id,
            task=new.task,
            queue=new.queue,
            priority=new.priority,
            state=self.state,
            payload=new.payload,
            tags=new.tags,
            timeout=new.timeout,
            retention=new.retention,
            retention_failed=new.retention_failed,
            options=new.options,
            created=self.created,
            due=self.due,
            attempt=self.attempt,
            failures=self.failures,
            losses=self.losses,
            fence=self.fence,
            revision=self.revision,
            replica=self.replica,
            started=self.started,
            progress=self.progress,
            message=self.message,
            checkpoint=self.checkpoint,
            cancelling=self.cancelling,
            reason=self.reason,
            finished=self.finished,
            result=self.result,
            error=self.error,
            history=self.history,
            schedule=new.schedule,
        )


@dataclass(slots=True, eq=False)
class Replica:
    """A process that runs jobs. Its jobs live as long as this record is renewed.

    `claim_no` is the number of its last claim. Once `dead`, it stays so.
    """

    id: str
    meta: Meta
    joined: int
    renewed: int
    ttl: int
    claim_no: int = 0
    dead: bool = False
    reserved: tuple[str, int] = ("", 0)
    """Once it is dead: the replica that recovers its jobs, and until when others leave them."""

    @property
    def join_order(self) -> tuple[int, str]:
        return self.joined, self.id

    def is_reserved(self, by: str, now: int) -> bool:
        """Return whether another replica than `by` is recovering its jobs.

        A reservation that ends later than any could was made before the clock was set back.
        """
        taker, until = self.reserved
        return taker != by and now < until <= now + micros(RESERVED_FOR)

    def has_expired(self, now: int, by: int | None = None) -> bool:
        """Return whether it has expired at the instant `by`, or now."""
        self.renewed = min(self.renewed, now)  # the clock was set back
        return self.renewed + self.ttl <= (now if by is None else by)

    def as_record(self, now: int, held: int) -> ReplicaRecord:
        return ReplicaRecord(
            id=self.id,
            meta=self.meta,
            joined=self.joined,
            ttl=self.ttl / 1e6,
            expires_in=(min(self.renewed, now) + self.ttl - now) / 1e6,
            dead=self.dead,
            held=held,
        )


@dataclass(slots=True, frozen=True)
class UniqueKey:
    """A unique key, its job, and until when the key is taken after that job has finished."""

    id: str
    digest: str
    until: int


@dataclass(frozen=True, slots=True)
class Pause:
    """A pause of a queue. `until` is infinite if only a resume ends it."""

    until: float
    reason: str


@dataclass(slots=True)
class JobTables:
    """The jobs of one namespace."""

    jobs: dict[str, Job] = field(default_factory=dict)
    unfinished: dict[str, Job] = field(default_factory=dict)
    """The jobs that are waiting or running. Claims never look at finished ones."""
    replicas: dict[str, Replica] = field(default_factory=dict)
    keys: dict[str, UniqueKey] = field(default_factory=dict)
    pauses: dict[str, Pause] = field(default_factory=dict)
    stats: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    """What beats have left, and when, by source."""

    def add(self, job: Job) -> None:
        self.jobs[job.id] = self.unfinished[job.id] = job

    def held_by(self, replica: str) -> list[Job]:
        """Return the jobs that a replica runs, in order of id."""
        running = (job for job in self.unfinished.values() if job.state == "running")
        return sorted((job for job in running if job.replica == replica), key=lambda job: job.id)

    def ready(self, queues: Sequence[str], limit: int, now: int) -> tuple[list[Job], int | None]:
        """Return the first due jobs and, if there are fewer than `limit`, when the next is due.

        Queues are served in the order of `queues`; a paused queue counts as empty.
        """
        ready: list[Job] = []
        later: list[int] = []
        for queue in dict.fromkeys(queues):
            if self.pause_of(queue, now):
                continue
            waiting = [
                job
                for job in self.unfinished.values()
                if job.state == "waiting" and job.new.queue == queue
            ]
            due = [job for job in waiting if job.is_due(now)]
            ready += heapq.nsmallest(limit - len(ready), due, key=lambda job: job.place)
            later += [job.due for job in waiting if not job.is_due(now)]
        return ready, min(later, default=None) if len(ready) < limit else None

    def pause_of(self, queue: str, now: int) -> Pause | None:
        """Return the pause of a queue, unless it has none or it is over."""
        pause = self.pauses.get(queue)
        return pause if pause and pause.until > now else None

    def leave_stats(self, stats: Stats, now: int) -> None:
        """Keep a value, and forget those that are too old."""
        since = now - micros(STATS_FOR)
        self.stats = {name: left for name, left in self.stats.items() if left[0] > since}
        self.stats[stats.source] = now, stats.body

    def stats_since(self, since: int) -> list[bytes]:
        return [body for _, (at, body) in sorted(self.stats.items()) if at > since]

    def expired(self, now: int, by: int | None = None) -> list[Replica]:
        """Return the replicas whose jobs need recovery, or are being recovered."""
        replicas = self.replicas.values()
        return [replica for replica in replicas if replica.dead or replica.has_expired(now, by)]

    def delayed_in_the_future(self, now: int) -> list[tuple[Job, int]]:
        """Return jobs whose delay begins after `now`, because the clock was set back, and when."""
        waiting = (job for job in self.unfinished.values() if job.state == "waiting")
        delayed = ((job, job.since) for job in waiting)
        return [(job, since) for job, since in delayed if since is not None and since > now]

    def postpone(self, replica: str, length: int) -> None:
        """Move the deadlines of all jobs that a replica runs."""
        for job in self.held_by(replica) if length else ():
            job.deadline = None if job.deadline is None else job.deadline + length

    def overdue(self, since: int) -> list[Job]:
        """Return running jobs whose deadline was at `since` or earlier."""
        deadlines = ((job.deadline, job) for job in self.unfinished.values())
        late = [job for at, job in deadlines if at is not None and at <= since]
        return sorted(late, key=lambda job: (job.deadline, job.id))

    def taken(self, key: str, now: int) -> UniqueKey | None:
        """Return a unique key if it is taken.

        It is while its job is unfinished, however long ago it was inserted, and until `until`.
        """
        taken = self.keys.get(key)
        if taken is None:
            return None
        job = self.jobs.get(taken.id)
        live = job is not None and job.state not in FINISHED
        return taken if live or taken.until > now else None

    def take(self, unique: Unique, id_: str, now: int) -> None:
        self.keys[unique.key] = UniqueKey(id_, unique.digest, now + micros(unique.keep))

    def keep_with(self, job: Job) -> None:
        """Keep the unique key of a finished job as long as the job itself, if it asks for that."""
        unique = job.new.unique
        if unique is None or not unique.keep or not unique.with_job:
            return
        taken = self.keys.get(unique.key)
        if taken is not None and taken.id == job.id:
            self.keys[unique.key] = replace(taken, until=max(taken.until, job.expires))

    def forget(self, job: Job) -> None:
        """Remove a job; its unique key is free, unless another job has it by now."""
        del self.jobs[job.id]
        self.unfinished.pop(job.id, None)
        for key in [key for key, taken in self.keys.items() if taken.id == job.id]:
            del self.keys[key]

    def forget_free_keys(self, now: int) -> None:
        for key in [key for key in self.keys if self.taken(key, now) is None]:
            del self.keys[key]
