"""Jobs for threads."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable
from typing import Any, Generic, TypeVar

import tenure
from tenure.blocking.portal import Portal
from tenure.core.durations import Duration
from tenure.core.why import Why
from tenure.jobs import JobSnapshot

__all__ = ["Job", "JobPage"]

T = TypeVar("T")
Answer = TypeVar("Answer")


class Job(JobSnapshot, Generic[T]):
    """A durable request to run a task. What it shows is as of the last look; see `refresh`."""

    def __init__(self, portal: Portal, job: tenure.Job[T]) -> None:
        self._portal = portal
        self._job = job
        self._record = job.record
        self.is_new = job.is_new
        """False if a job with the same unique key was there already, and this is that job."""

    def refresh(self) -> Job[T]:
        """Look again; return itself. Raises JobNotFound if it was pruned."""
        self._call(self._job.refresh())
        return self

    def wait(self, timeout: Duration | None = None) -> Job[T]:
        """Wait until it has finished, however; return itself. Raises TimeoutError."""
        self._call(self._job.wait(timeout))
        return self

    def why(self) -> Why:
        """Look again, and return why it waits, runs or has ended; see `tenure.Job.why`."""
        return self._call(self._job.why())

    def result(self, timeout: Duration | None = None) -> T:
        """Return what the task returned, waiting for it; see `tenure.Job.result`."""
        return self._call(self._job.result(timeout))

    def cancel(self, reason: str = "") -> bool:
        """Ask the job to stop; return False if it has finished. See `tenure.Job.cancel`."""
        return self._call(self._job.cancel(reason))

    def requeue(self) -> None:
        """Let a finished job run again, with all its tries. Raises JobStateError."""
        self._call(self._job.requeue())

    def _call(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        try:
            return self._portal.call(work)
        finally:  # also when it raises: a result that failed has been looked at
            self._record = self._job.record


class JobPage(list[Job[Any]]):
    """A part of a list of jobs. With a `cursor` there may be more."""

    def __init__(self, jobs: Iterable[Job[Any]], cursor: str | None) -> None:
        super().__init__(jobs)
        self.cursor = cursor
