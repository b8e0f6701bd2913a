"""What a memory store remembers about jobs and replicas."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from msgspec import structs

from tenure.core.durations import micros
from tenure.core.jobs.records import (
    RESERVED_FOR,
    JobRecord,
    NewJob,
    ReplicaRecord,
    Unique,
    retention_of,
)
from tenure.core.jobs.states import FINISHED, JobState
from tenure.core.leases import Meta

__all__ = ["Job", "JobSpace", "Pause", "Replica", "Taken"]


@dataclass(slots=True, eq=False)
class Job:
    """A job as the store sees it."""

    new: NewJob
    created: int
    due: int
    since: int | None = None
    """When the pause before `due` began; 0 if `due` was asked for as an instant.

    None: there is none. It may start whatever the clock shows.
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
        return self.finished + micros(retention_of(self.new, self.state))

    @property
    def place(self) -> tuple[int, int, str]:
        """Its place in the queue."""
        return self.new.priority, self.due // 1000, self.id

    def is_due(self, now: int) -> bool:
        return self.since is None or self.due <= now

    def as_orphan(self) -> JobRecord:
        """Return what a decision about its end needs."""
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
    """A process that runs work."""

    id: str
    meta: Meta
    joined: int
    renewed: int
    ttl: int
    claim_no: int = 0
    dead: bool = False
    reserved: tuple[str, int] = ("", 0)
    """Once it is dead: the replica that takes its jobs, and until when others let it."""

    def is_reserved(self, by: str, now: int) -> bool:
        """Return whether others than `by` take its jobs."""
        taker, until = self.reserved
        return taker != by and now < until <= now + micros(RESERVED_FOR)

    def has_expired(self, now: int, by: int | None = None) -> bool:
        """Return whether it has expired by an instant, or by now."""
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
class Taken:
    """A unique key in use."""

    id: str
    digest: str
    until: int


@dataclass(frozen=True, slots=True)
class Pause:
    """A pause of a queue. `until` is infinite if only a resume ends it."""

    until: float
    reason: str


@dataclass(slots=True)
class JobSpace:
    """The jobs of one namespace."""

    jobs: dict[str, Job] = field(default_factory=dict)
    unfinished: dict[str, Job] = field(default_factory=dict)
    """A part of the jobs. Finished ones are kept for a day, and no claim has to look at them."""
    replicas: dict[str, Replica] = field(default_factory=dict)
    keys: dict[str, Taken] = field(default_factory=dict)
    pauses: dict[str, Pause] = field(default_factory=dict)

    def add(self, job: Job) -> None:
        self.jobs[job.id] = self.unfinished[job.id] = job

    def held_by(self, replica: str) -> list[Job]:
        """Return what a replica runs, in order of id."""
        running = (job for job in self.unfinished.values() if job.state == "running")
        return sorted((job for job in running if job.replica == replica), key=lambda job: job.id)

    def ready(self, queues: Sequence[str], limit: int, now: int) -> tuple[list[Job], int | None]:
        """Return the first due jobs and, if there are fewer than `limit`, when the next is due."""
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

    def expired(self, now: int, by: int | None = None) -> list[Replica]:
        """Return the replicas whose jobs must be taken, or are being taken."""
        return [one for one in self.replicas.values() if one.dead or one.has_expired(now, by)]

    def paused_in_the_future(self, now: int) -> list[tuple[Job, int]]:
        """Return jobs whose pause seems not to have begun, with its beginning."""
        waiting = (job for job in self.unfinished.values() if job.state == "waiting")
        paused = ((job, job.since) for job in waiting)
        return [(job, since) for job, since in paused if since is not None and since > now]

    def postpone(self, replica: str, length: int) -> None:
        """Give what a replica runs so much longer."""
        for job in self.held_by(replica) if length else ():
            job.deadline = None if job.deadline is None else job.deadline + length

    def overdue(self, since: int) -> list[Job]:
        """Return what still runs although its deadline was at `since` or earlier."""
        deadlines = ((job.deadline, job) for job in self.unfinished.values())
        late = [job for at, job in deadlines if at is not None and at <= since]
        return sorted(late, key=lambda job: (job.deadline, job.id))

    def taken(self, key: str, now: int) -> Taken | None:
        """Return who has a unique key."""
        taken = self.keys.get(key)
        if taken is None:
            return None
        job = self.jobs.get(taken.id)
        live = job is not None and job.state not in FINISHED
        return taken if live or taken.until > now else None

    def take(self, unique: Unique, id_: str, now: int) -> None:
        self.keys[unique.key] = Taken(id_, unique.digest, now + micros(unique.keep))

    def keep_with(self, job: Job) -> None:
        """Keep the unique key of a finished job for as long as the job, if it asks for that."""
        unique = job.new.unique
        if unique is None or not unique.keep or not unique.with_job:
            return
        taken = self.keys.get(unique.key)
        if taken is not None and taken.id == job.id:
            self.keys[unique.key] = replace(taken, until=max(taken.until, job.expires))

    def forget(self, job: Job) -> None:
        """Remove a job; its unique key is free, unless another job has it by now."""
        del self.jobs[job.id]
        for key in [key for key, taken in self.keys.items() if taken.id == job.id]:
            del self.keys[key]

    def forget_free_keys(self, now: int) -> None:
        for key in [key for key in self.keys if self.taken(key, now) is None]:
            del self.keys[key]
