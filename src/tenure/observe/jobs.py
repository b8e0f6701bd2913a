"""Events of jobs and their attempts: lost, recovered, failed, stuck, or running for long."""

from __future__ import annotations

import logging

from tenure.core.safe_text import safe
from tenure.observe.base import BaseEvent, first_of

__all__ = [
    "AttemptFailed",
    "AttemptLost",
    "HandlerStuck",
    "JobLost",
    "JobRunsLong",
    "JobsRecovered",
    "ResultNotStored",
    "SlotsKept",
    "TaskUnknown",
]


class JobsRecovered(BaseEvent, frozen=True):
    """Jobs were taken from replicas that are gone, or that let them run past their deadline."""

    by: str
    replicas: tuple[str, ...]
    waiting: tuple[str, ...]
    """Jobs that run again."""
    failed: tuple[str, ...] = ()
    """Jobs that were lost too often, and runs of timers, which may run only once."""
    cancelled: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()
    """Jobs whose records were damaged, and are set aside."""

    @property
    def fields(self) -> dict[str, object]:
        return {"replica": self.by}

    def __str__(self) -> str:
        ids_by_end = {
            "to run again": self.waiting,
            "failed for good": self.failed,
            "cancelled": self.cancelled,
            "set aside, as they cannot be read": self.unreadable,
        }
        ends = (f"{len(ids)} {end} ({first_of(ids)})" for end, ids in ids_by_end.items() if ids)
        lost = first_of(tuple(replica[:8] for replica in self.replicas))
        by = safe(self.by if " " in self.by else self.by[:8])
        return f"jobs of lost workers {lost}: {'; '.join(ends)}; recovered by {by}"


class JobLost(BaseEvent, frozen=True):
    """A job has failed for good: it was lost with its worker too often, or may run only once."""

    task: str
    job: str
    attempt: int
    losses: int
    replica: str
    """The worker of its last loss."""

    @property
    def level(self) -> int:
        return logging.ERROR

    def __str__(self) -> str:
        times = "once" if self.losses == 1 else f"{self.losses} times"
        lost = (
            f"it was lost with its worker {times}, last with {safe(self.replica[:8])} in attempt "
            f"{self.attempt}"
        )
        if self.task.startswith("@"):
            run = f"run {safe(self.job)} of timer {safe(self.task[1:])!r} failed for good"
            return f"{run}: {lost}; later ticks are not affected"
        return f"job {safe(self.job)} of task {safe(self.task)!r} failed for good: {lost}"


class AttemptLost(BaseEvent, frozen=True):
    """The outcome of an attempt was not stored: another replica took the job over meanwhile."""

    job: str
    fence: int
    outcome: str
    reason: str = ""
    """"unreadable": it was not taken over, but its record was damaged and set aside."""


class AttemptFailed(BaseEvent, frozen=True):
    """A handler raised, or took too long: the job is tried again or, without `retry_in`, failed."""

    task: str
    job: str
    attempt: int
    error: str
    retry_in: float | None = None
    trace: str = ""
    """Only of the last attempt."""

    @property
    def level(self) -> int:
        if self.retry_in is None:
            return logging.ERROR  # the job has failed for good
        return logging.INFO


class ResultNotStored(BaseEvent, frozen=True):
    """A job has succeeded, but its result could not be stored for callers."""

    task: str
    job: str
    problem: str


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
    """A job without a time-out runs for longer than `long_job`. Emitted once per attempt."""

    task: str
    job: str
    seconds: float

    def __str__(self) -> str:
        return (
            f"job {safe(self.job)} of task {safe(self.task)!r} has run for {self.seconds:.0f} s, "
            "and it has no time-out. Give its task a timeout if that is too long; else raise "
            "long_job."
        )


class HandlerStuck(BaseEvent, frozen=True):
    """A handler ignores a request to stop. A synchronous handler keeps its thread."""

    task: str
    job: str
    """Empty in a run of a timer without the store."""
    reason: str
    """Why it must stop: "timed out" or "shutting down"."""


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
