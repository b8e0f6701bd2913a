"""Jobs for threads."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Generic, TypeVar

import tenure
from tenure.blocking.portal import Portal
from tenure.core.durations import Duration
from tenure.core.records import Attempt, JobRecord
from tenure.core.states import JobState

__all__ = ["Job", "JobPage"]

T = TypeVar("T")


class Job(Generic[T]):
    """A durable request to run a task. What it shows is as of the last look; see `refresh`."""

    def __init__(self, portal: Portal, job: tenure.Job[T]) -> None:
        self._portal = portal
        self._job = job

    def __repr__(self) -> str:
        return repr(self._job)

    @property
    def id(self) -> str:
        return self._job.id

    @property
    def task(self) -> str:
        return self._job.task

    @property
    def queue(self) -> str:
        return self._job.queue

    @property
    def priority(self) -> int:
        return self._job.priority

    @property
    def tags(self) -> tuple[str, ...]:
        return self._job.tags

    @property
    def state(self) -> JobState:
        return self._job.state

    @property
    def is_new(self) -> bool:
        """False if a job with the same unique key was there already, and this is that job."""
        return self._job.is_new

    @property
    def is_finished(self) -> bool:
        return self._job.is_finished

    @property
    def created(self) -> datetime:
        return self._job.created

    @property
    def due(self) -> datetime:
        """When it may start, or might have."""
        return self._job.due

    @property
    def started(self) -> datetime | None:
        """When its present or last attempt began."""
        return self._job.started

    @property
    def finished(self) -> datetime | None:
        return self._job.finished

    @property
    def attempt(self) -> int:
        """How often it was started."""
        return self._job.attempt

    @property
    def failures(self) -> int:
        """How many attempts ended with an error."""
        return self._job.failures

    @property
    def losses(self) -> int:
        """How many attempts ended with their worker."""
        return self._job.losses

    @property
    def replica(self) -> str:
        """Where it runs; empty unless it is running."""
        return self._job.replica

    @property
    def progress(self) -> float | None:
        """How far it is, from 0 to 1, if it says so."""
        return self._job.progress

    @property
    def message(self) -> str:
        """What it says beside its progress."""
        return self._job.message

    @property
    def reason(self) -> str:
        """Why it was cancelled or failed, in a word or as given to `cancel`."""
        return self._job.reason

    @property
    def error(self) -> str | None:
        """The last failure in one line."""
        return self._job.error

    @property
    def trace(self) -> str:
        """The traceback of the last failure."""
        return self._job.trace

    @property
    def history(self) -> list[Attempt]:
        """The last attempts, oldest first."""
        return self._job.history

    @property
    def record(self) -> JobRecord:
        """Everything the store has."""
        return self._job.record

    def refresh(self) -> Job[T]:
        """Look again; return itself. Raises JobNotFound if it was pruned."""
        self._portal.call(self._job.refresh())
        return self

    def wait(self, timeout: Duration | None = None) -> Job[T]:
        """Wait until it has finished, however; return itself. Raises TimeoutError."""
        self._portal.call(self._job.wait(timeout))
        return self

    def result(self, timeout: Duration | None = None) -> T:
        """Return what the task returned, waiting for it; see `tenure.Job.result`."""
        return self._portal.call(self._job.result(timeout))

    def cancel(self, reason: str = "") -> bool:
        """Ask for an end; return False if it has one already. See `tenure.Job.cancel`."""
        return self._portal.call(self._job.cancel(reason))

    def requeue(self) -> None:
        """Let a finished job run again, with all its tries. Raises JobStateError."""
        self._portal.call(self._job.requeue())


class JobPage(list[Job[Any]]):
    """A part of a list of jobs. With a `cursor` there may be more."""

    def __init__(self, jobs: Iterable[Job[Any]], cursor: str | None) -> None:
        super().__init__(jobs)
        self.cursor = cursor
