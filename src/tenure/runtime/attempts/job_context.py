"""`current_job()` and the `JobContext` that handlers get: the public side of a running job.

`RunningJob` has what the worker does with a running job. It is separate, so that users see only
what is meant for them.
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
        msg = "current_job() works only in code that a worker runs as a job, and no job runs here."
        raise ConfigError(msg) from None
    return context_of(running)


def context_of(running: RunningJob) -> JobContext:
    """Return the `JobContext` of a running job, always the same object."""
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
        """Report progress from 0 to 1. Returns at once.

        Delivery is best effort: a newer report may replace one that is not sent yet. The last
        report is stored before the attempt ends, unless the store does not answer.
        """
        self._running.progress(part, message)

    @property
    def checkpoint(self) -> Any:
        """What `save` stored last, in this attempt or an earlier one; None if nothing.

        Raises StoreError for what cannot have been stored by `save`.
        """
        return self._running.checkpoint

    def save(self, value: Any) -> Awaitable[None]:
        """Store a value for the next attempt, in case this one does not finish.

        Await it in asynchronous code. Called in a handler's thread it returns when it is stored.

        Raises TooLarge, TypeError for what has no JSON form, StoreError if this attempt is over.
        """
        return self._running.save(value)

    def transaction(self, connection: object) -> JobTransaction:
        """Finish this job in a transaction: your writes and its success in one commit.

            async with current_job().transaction(connection) as done:
                await connection.execute("UPDATE ...")
                return done.result(7)

        Begins a transaction on your connection to the database of the store. No worker takes the
        job over before it ends. An error in the block rolls it back and fails the attempt. After
        the block the job has succeeded, and the return value of the handler is ignored. Keep it
        short: on SQLite it blocks all other writes, heartbeats included.

        Raises AttemptOver, before the block or at its end, if another worker runs the job by now.
        The transaction is then rolled back. Raises ConfigError if the connection does not fit.
        """
        return self._running.transaction(connection)
