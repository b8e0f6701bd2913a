"""Events of jobs and their attempts, from the enqueue to the end."""

from __future__ import annotations

import logging
from typing import ClassVar, Literal, TypeAlias

from tenure.core.durations import duration
from tenure.core.safe_text import safe
from tenure.observe.base import BaseEvent, Detail, first_of, sentence

__all__ = [
    "AttemptLost",
    "HandlerStuck",
    "JobCancelled",
    "JobEnqueued",
    "JobFailed",
    "JobFailure",
    "JobHandedBack",
    "JobRetried",
    "JobRunsLong",
    "JobStarted",
    "JobSucceeded",
    "JobsRecovered",
    "ResultNotStored",
    "SlotsKept",
    "TaskUnknown",
]


class JobEvent(BaseEvent, frozen=True):
    """What all events about one job have in common."""

    task: str
    job: str
    queue: str
    attempt: int = 0
    """Which run of the job it is; 0 before the first one."""


class JobDetail(Detail, JobEvent, frozen=True):
    """A step of a job's normal life, in one line of the log."""

    step: ClassVar[str]

    @property
    def line(self) -> str:
        own = {
            part: getattr(self, part)
            for part in self.__struct_fields__
            if part not in JobEvent.__struct_fields__
        }
        more = "".join(f", {part} {safe(str(value))}" for part, value in own.items() if value)
        run = f", attempt {self.attempt}" if self.attempt else ""
        return f"job {safe(self.job)} of task {safe(self.task)!r}: {self.step}{run}{more}"


class JobEnqueued(JobDetail, frozen=True):
    """A job was stored. Not sent for a repeat that found the job of an earlier call."""

    step: ClassVar[str] = "enqueued"

    timer: str = ""
    """The schedule whose tick enqueued it, or the timer or schedule that was triggered."""
    is_pending: bool = False
    """Whether it is stored in an open transaction of the caller, which may still roll back."""


class JobStarted(JobDetail, frozen=True):
    """A worker starts an attempt of a job that it has claimed."""

    step: ClassVar[str] = "started"

    waited: float = 0.0
    """Seconds from when the job was due until the claim, by the store's clock."""


class JobSucceeded(JobDetail, frozen=True):
    """The store has taken the success of a job."""

    step: ClassVar[str] = "succeeded"

    seconds: float = 0.0
    """How long the attempt ran."""


class JobCancelled(JobDetail, frozen=True):
    """A job was cancelled: before it ran, or its running attempt has stopped."""

    step: ClassVar[str] = "cancelled"


class JobHandedBack(JobDetail, frozen=True):
    """A worker gave a job back, uncounted, so that another one runs it."""

    step: ClassVar[str] = "handed back"

    reason: str = ""


class JobRetried(JobEvent, frozen=True):
    """A handler raised or took too long. The job is tried again in `retry_in` seconds.

    Also for a run of a timer that calls its function again within one attempt (`retry=`).
    """

    error: str = ""
    retry_in: float = 0.0
    seconds: float = 0.0

    @property
    def level(self) -> int:
        return logging.INFO


JobFailure: TypeAlias = Literal["error", "timeout", "rejected", "arguments", "lost", "interrupted"]
"""Why a job failed for good: its handler raised, took too long or rejected it; its arguments could
not be read; it was lost with its worker too often; or it was stopped and may run only once."""


class JobFailed(JobEvent, frozen=True):
    """A job has failed for good, in whichever way. Nothing runs it again by itself."""

    cause: JobFailure = "error"
    error: str = ""
    trace: str = ""
    losses: int = 0
    """How often it was lost with its worker."""
    replica: str = ""
    """The worker of its last attempt."""
    seconds: float = 0.0
    """How long the last attempt ran; 0 if it was lost."""

    @property
    def level(self) -> int:
        return logging.ERROR

    @property
    def line(self) -> str:
        why = f"{safe(self.error)}, in attempt {self.attempt}"
        if self.cause == "lost":
            why = self._loss
        if self.task.startswith("@"):
            run = f"run {safe(self.job)} of timer {safe(self.task[1:])!r} failed for good"
            return f"{run}: {why}; later ticks are not affected"
        return f"job {safe(self.job)} of task {safe(self.task)!r} failed for good: {why}"

    @property
    def _loss(self) -> str:
        times = "once" if self.losses == 1 else f"{self.losses} times"
        worker = safe(self.replica[:8])
        return f"it was lost with its worker {times}, last with {worker} in attempt {self.attempt}"


class JobsRecovered(BaseEvent, frozen=True):
    """Jobs were taken from replicas that are gone, or that let them run past their deadline."""

    by: str
    """The host and process that did it, such as "web-1:4711"."""
    replicas: tuple[str, ...]
    """The workers from which they were taken."""
    waiting: tuple[str, ...]
    """Jobs that run again."""
    failed: tuple[str, ...] = ()
    """Jobs that were lost too often, and runs of timers, which may run only once."""
    cancelled: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()
    """Jobs whose records were damaged, and are set aside."""

    def __str__(self) -> str:
        ids_by_end = {
            "to run again": self.waiting,
            "failed for good": self.failed,
            "cancelled": self.cancelled,
            "set aside, as they cannot be read": self.unreadable,
        }
        ends = (f"{len(ids)} {end} ({first_of(ids)})" for end, ids in ids_by_end.items() if ids)
        lost = first_of(tuple(replica[:8] for replica in self.replicas))
        return f"jobs of lost workers {lost}: {'; '.join(ends)}; recovered by {safe(self.by)}"


class AttemptLost(BaseEvent, frozen=True):
    """The outcome of an attempt was not stored: another replica took the job over meanwhile."""

    job: str
    fence: int
    outcome: str
    reason: str = ""
    """"unreadable": it was not taken over, but its record was damaged and set aside."""

    @property
    def line(self) -> str:
        why = "another worker had taken it over, and runs it again"
        if self.reason == "unreadable":
            why = "its record is damaged, and was set aside"
        return (
            f"job {safe(self.job)}, fence {self.fence}, has {safe(self.outcome)}, and that was not "
            f"stored: {why}. What its handler did outside of the store may be done twice."
        )


class ResultNotStored(BaseEvent, frozen=True):
    """A job has succeeded, but its result could not be stored for callers."""

    task: str
    job: str
    problem: str

    @property
    def line(self) -> str:
        return (
            f"job {safe(self.job)} of task {safe(self.task)!r} has succeeded, but its result was "
            f"not stored: {sentence(self.problem)} result() raises ResultUnavailable."
        )


class TaskUnknown(BaseEvent, frozen=True):
    """A job was handed back because this replica has no task of that name."""

    task: str
    job: str
    attempt: int

    def __str__(self) -> str:
        job = safe(self.job)
        return (
            f"this worker knows no task {self.task!r}: job {job} waits for one that does. "
            "If it should, name the module that declares it in Tenure(imports=...)."
        )


class JobRunsLong(BaseEvent, frozen=True):
    """A job runs for more than 1.5 times of its task's `expected`, or longer than `long_job`.

    `long_job` is about jobs without a time-out whose tasks have no `expected`. Once per attempt.
    """

    task: str
    job: str
    seconds: float
    queue: str = ""
    attempt: int = 0
    expected: float | None = None
    """The `expected` of its task; None: it has none, and the job exceeds `long_job`."""

    def __str__(self) -> str:
        job = f"job {safe(self.job)} of task {safe(self.task)!r}"
        ran = f"{job} has run for {duration(self.seconds)}"
        if self.expected is not None:
            return (
                f"{ran}; expected is {duration(self.expected)}. Find out what it waits for, or "
                "raise expected."
            )
        return (
            f"{ran}, and it has no time-out. Give its task a timeout if that is too long; else "
            "raise long_job."
        )


class HandlerStuck(BaseEvent, frozen=True):
    """A handler ignores a request to stop. A synchronous handler keeps its thread."""

    task: str
    job: str
    """Empty in a run of a timer without the store."""
    reason: str
    """Why it must stop: "timed out" or "shutting down"."""

    @property
    def line(self) -> str:
        job = f"job {safe(self.job)}" if self.job else "a run without the store"
        return (
            f"{job} of task {safe(self.task)!r} does not stop ({safe(self.reason)}), and may keep "
            "its thread. Let the handler look at current_job().stop_reason, or use "
            "executor='process', which can be killed."
        )


class SlotsKept(BaseEvent, frozen=True):
    """A handler waits for another job and keeps its slot.

    Too many handlers have lent their slots already, or it is a plain function and no slot is free.
    If such handlers keep all slots of all workers, none of them can finish. At most once a minute.
    """

    task: str
    job: str
    awaited: str
    """The id of the job that the handler waits for."""
    lent: int
    """How many slots of this worker are lent."""
    why: str

    def __str__(self) -> str:
        return (
            f"job {safe(self.job)} of {safe(self.task)!r} waits for job {safe(self.awaited)} and "
            f"keeps its slot: {safe(self.why)}. If such handlers take all slots, none goes on. "
            "Wait for fewer jobs at a time, or let the last job enqueue what follows."
        )
