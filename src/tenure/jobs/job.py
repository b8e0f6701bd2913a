"""Jobs as callers see them: handles to look at, await, cancel and requeue."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from msgspec import Struct

from tenure.core.durations import Duration, seconds
from tenure.core.jobs.error_report import ErrorReport, read_report
from tenure.core.jobs.history import AttemptOutcome
from tenure.core.jobs.records import JobDraft, JobRecord
from tenure.core.jobs.run_numbers import numbered_history
from tenure.core.jobs.states import FINISHED, JobState
from tenure.core.jobs.view import JobView, as_datetime
from tenure.core.why import Why
from tenure.errors import (
    JobCancelled,
    JobFailed,
    JobNotFound,
    JobUnreadable,
)

if TYPE_CHECKING:
    from tenure.jobs.service import Jobs

__all__ = ["Attempt", "Job", "JobPage", "JobRequest", "JobSnapshot", "report_of"]

T = TypeVar("T")


class JobRequest(Struct, Generic[T], frozen=True):
    """A job that is not enqueued yet: its arguments, checked and encoded.

    Made by `task.request(...)`, for `app.enqueue_many`.
    """

    draft: JobDraft
    unique: str = ""
    """The unique key as the caller wrote it, for messages."""

    def __repr__(self) -> str:
        return f"<JobRequest of {self.draft.task!r}>"


class Attempt(Struct, frozen=True, kw_only=True):
    """One attempt of a job that has ended."""

    attempt: int
    """Its number; the first one is 1."""
    replica: str
    """The worker that ran it."""
    started: datetime
    ended: datetime
    outcome: AttemptOutcome
    error: str = ""
    """What went wrong, in one line."""


class JobSnapshot(JobView):
    """What the store had about a job at the last look."""

    def __repr__(self) -> str:
        return f"<Job {self.id} of {self.task!r}, {self.state}>"

    @property
    def priority(self) -> int:
        return self._record.priority

    @property
    def state(self) -> JobState:
        return self._record.state

    @property
    def is_finished(self) -> bool:
        return self.state in FINISHED

    @property
    def created(self) -> datetime:
        return as_datetime(self._record.created)

    @property
    def due(self) -> datetime:
        """When it may start, or might have."""
        return as_datetime(self._record.due)

    @property
    def started(self) -> datetime | None:
        """When its present or last attempt began."""
        return as_datetime(self._record.started) if self._record.started else None

    @property
    def finished(self) -> datetime | None:
        return as_datetime(self._record.finished) if self._record.finished else None

    @property
    def replica(self) -> str:
        """Where it runs; empty unless it is running."""
        return self._record.replica

    @property
    def progress(self) -> float | None:
        """How far it is, from 0 to 1, if it says so."""
        return self._record.progress

    @property
    def message(self) -> str:
        """What it says beside its progress."""
        return self._record.message

    @property
    def reason(self) -> str:
        """Why it was cancelled or failed, in a word or as given to `cancel`."""
        return self._record.reason

    @property
    def error(self) -> str | None:
        """The last failure in one line."""
        report = self._report
        return None if report is None else report.line

    @property
    def trace(self) -> str:
        """The traceback of the last failure."""
        report = self._report
        return "" if report is None else report.trace

    @property
    def history(self) -> list[Attempt]:
        """The last ten attempts that have ended, oldest first."""
        return [
            Attempt(
                attempt=line.attempt,
                replica=line.replica,
                started=as_datetime(line.started),
                ended=as_datetime(line.ended),
                outcome=line.outcome,
                error=line.error,
            )
            for line in numbered_history(self._record)
        ]

    @property
    def record(self) -> JobRecord:
        """Everything the store has."""
        return self._record

    @property
    def _report(self) -> ErrorReport | None:
        return report_of(self._record)


def report_of(record: JobRecord) -> ErrorReport | None:
    """Return what is kept about the last failure of a job."""
    return read_report(record.error)


class Job(JobSnapshot, Generic[T]):
    """A durable request to run a task. What it shows is as of the last look; see `refresh`."""

    def __init__(self, jobs: Jobs, record: JobRecord, *, is_new: bool = False) -> None:
        self._jobs = jobs
        self._record = record
        self.is_new = is_new
        """False if a job with the same unique key was there already, and this is that job."""

    async def refresh(self) -> Job[T]:
        """Look again; return itself. Raises JobNotFound if it was pruned."""
        self._record = await self._jobs.record(self.id)
        return self

    async def wait(self, timeout: Duration | None = None) -> Job[T]:
        """Wait until it has finished, however; return itself. Raises TimeoutError."""
        limit = None if timeout is None else seconds(timeout, "timeout")
        self._record = await self._jobs.finished(self.id, limit)
        return self

    async def why(self) -> Why:
        """Look again, and return why it waits, runs or has ended: one sentence and the next step.

        Needs a handful of calls to the store. Raises JobNotFound if it was pruned.
        """
        try:
            await self.refresh()
        except JobUnreadable:
            return await self._jobs.why_unreadable(self.id)
        return await self._jobs.why(self._record)

    async def result(self, timeout: Duration | None = None) -> T:
        """Return what the task returned, waiting for it.

        Raises:
            JobFailed: it has failed for good.
            JobCancelled: it was cancelled.
            TimeoutError: it has not finished in time; it goes on.
        """
        await self.wait(timeout)
        record = self._record
        if record.state == "failed":
            raise JobFailed(self.id, record.reason, self.error or _NO_ERROR)
        if record.state == "cancelled":
            raise JobCancelled(self.id, record.reason)
        value: T = self._jobs.decode_result(record)
        return value

    async def cancel(self, reason: str = "") -> bool:
        """Ask the job to stop; return False if it has finished already.

        A waiting job never starts. A running one is asked to stop, and ends when its handler does;
        `wait` for it.
        """
        answer = await self._jobs.cancel(self._record, reason)
        if answer is None:
            raise JobNotFound(self.id)
        with suppress(JobNotFound):  # it has ended, and was pruned at once
            await self.refresh()
        return answer != "finished"

    async def requeue(self) -> None:
        """Let a finished job run again, with all its tries.

        Raises JobStateError if it has not finished, or its unique key is taken by now. After a
        StoreUnavailable it may have been requeued: look at its state before you call this again.
        """
        await self._jobs.requeue(self.id)
        await self.refresh()


_NO_ERROR = "its worker died each time, and it has used up its loss budget"


class JobPage(list["Job[Any]"]):
    """A part of a list of jobs. With a `cursor` there may be more."""

    def __init__(self, jobs: Iterable[Job[Any]], cursor: str | None) -> None:
        super().__init__(jobs)
        self.cursor = cursor
