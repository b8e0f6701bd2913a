"""`current_job()` and the `JobContext` that handlers get: the public side of a running job.

What the worker does with a running job is in `context`, apart from this, so that users see what is
meant for them and nothing else.
"""

from __future__ import annotations

from collections.abc import Awaitable
from datetime import datetime
from typing import Any

from tenure.core.jobs.view import JobView
from tenure.errors import ConfigError
from tenure.runtime.attempts.running_job import RunningJob, StopReason, current
from tenure.runtime.attempts.transaction import JobTransaction

__all__ = ["JobContext", "context_of", "current_job"]


def current_job() -> JobContext:
    """Return the job that the caller runs in. Raises ConfigError outside of one."""
    try:
        running = current.get()
    except LookupError:
        msg = "current_job() is for code that a worker runs as a job; here is none."
        raise ConfigError(msg) from None
    return context_of(running)


def context_of(running: RunningJob) -> JobContext:
    """Return what the handler of a running job gets, always the same object."""
    if running.shown is None:
        running.shown = JobContext(running)
    context: JobContext = running.shown
    return context


class JobContext(JobView):
    """The running side of a job. Safe to use from the handler's own thread."""

    def __init__(self, running: RunningJob) -> None:
        self._running = running
        self._record = running.record

    def __repr__(self) -> str:
        return f"<JobContext {self.id} of {self.task!r}, attempt {self.attempt}>"

    @property
    def fence(self) -> int:
        """A number larger than that of every earlier attempt. Pass it on with writes."""
        return self._running.fence

    @property
    def deadline(self) -> datetime | None:
        """When the time-out of this attempt is over, by the store's clock."""
        return self._running.deadline

    @property
    def cancelled(self) -> bool:
        """Whether this attempt should stop. Asynchronous code is cancelled anyway."""
        return self._running.cancelled

    @property
    def stop_reason(self) -> StopReason | None:
        """Why it should stop: "cancelled", "timed out", "taken over" or "shutting down"."""
        return self._running.stop_reason

    def check(self) -> None:
        """Raise CancelledError if this attempt should stop: for loops in synchronous code."""
        self._running.check()

    def progress(self, part: float, message: str = "") -> None:
        """Show how far it is, from 0 to 1. Returns at once.

        A courtesy: a newer one may replace it on the way. The last one is shown with the end of
        the attempt, unless the store does not answer.
        """
        self._running.progress(part, message)

    @property
    def checkpoint(self) -> Any:
        """What `save` stored last, in this attempt or an earlier one; None if nothing.

        Raises StoreError for what cannot have been stored by `save`.
        """
        return self._running.checkpoint

    def save(self, value: Any) -> Awaitable[None]:
        """Store a value for the next attempt, should this one be cut short.

        Await it in asynchronous code. Called in a handler's thread it returns when it is stored.

        Raises TooLarge, TypeError for what has no JSON form, StoreError if this attempt is over.
        """
        return self._running.save(value)

    def transaction(self, connection: object) -> JobTransaction:
        """Do the last of this job's work: your writes and its success in one commit.

            async with current_job().transaction(connection) as done:
                await connection.execute("UPDATE ...")
                return done.result(7)

        Begins a transaction on a connection of yours to the store's own SQL database. Nobody takes
        the job over before its end. An error in the block undoes it, and fails the attempt as
        ever. After the block the job has succeeded; what the handler returns is ignored. Keep it
        short: on SQLite nobody else can write meanwhile, beats included.

        Raises AttemptOver, before the block or at its end, if the job runs elsewhere by now: then
        nothing of it was kept. Raises ConfigError if this cannot work.
        """
        return self._running.transaction(connection)
