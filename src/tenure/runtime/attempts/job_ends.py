"""Emits the event of a job's end that the store has confirmed, for workers and for recovery.

Failures of handlers have events of their own, with the error: see `AttemptEndings`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final, cast

from tenure.core.jobs import endings
from tenure.core.jobs.records import Cancelled, JobRecord, Settlement
from tenure.core.jobs.run_numbers import runs_of
from tenure.errors import StoreError
from tenure.observe.events import Events
from tenure.observe.jobs import (
    JobCancelled,
    JobFailed,
    JobFailure,
    JobHandedBack,
    JobSucceeded,
)
from tenure.stores.contract import Store

__all__ = ["report_cancelled", "report_end", "report_success"]

_ERRORS: Final = {
    endings.INTERRUPTED: "interrupted: its worker was stopped, and it may run only once"
}


def report_end(
    events: Events, job: JobRecord, end: Settlement, *, seconds: float = 0.0, reason: str = ""
) -> None:
    """Emit how a job has ended. `reason` is why it was handed back, if it was.

    Nothing is emitted for a job that waits again because it was lost: `JobsRecovered` names it.
    """
    if end.state == "failed":
        events.emit(_failed(job, end), job)
    elif not events.wants_details:
        return
    elif end.state == "cancelled":
        events.emit(JobCancelled(job.task, job.id, job.queue, runs_of(job)), job)
    elif end.state == "succeeded":
        report_success(events, job, seconds)
    elif end.outcome == "handed back":
        events.emit(JobHandedBack(job.task, job.id, job.queue, runs_of(job), reason), job)


def report_success(events: Events, job: JobRecord, seconds: float) -> None:
    """Emit the success of a job. Check `wants_details` first."""
    event = JobSucceeded(job.task, job.id, job.queue, runs_of(job), round(seconds, 6))
    events.emit(event, job)


async def report_cancelled(
    store: Store,
    events: Events,
    jobs: Sequence[JobRecord | None],
    answers: Sequence[Cancelled | None],
) -> None:
    """Emit which of these jobs were cancelled before they ran, or between two attempts.

    Running jobs are reported by their worker, when they have stopped. `jobs` may be old: the store
    is asked for the number of attempts. If it does not say it, the event has the known one. Jobs
    that are None are not reported.
    """
    if not events.wants_details:
        return
    pairs = zip(jobs, answers, strict=True)
    cancelled = {job.id: job for job, answer in pairs if job is not None and answer == "cancelled"}
    if not cancelled:
        return
    try:
        with suppress(StoreError):
            newest = await store.jobs.get(list(cancelled))
            cancelled |= {job.id: job for job in newest if job is not None}  # None: pruned at once
    finally:  # the caller may be cancelled meanwhile
        for job in cancelled.values():
            events.emit(JobCancelled(job.task, job.id, job.queue, runs_of(job)), job)


def _failed(job: JobRecord, end: Settlement) -> JobFailed:
    cause = cast("JobFailure", end.reason or "error")
    return JobFailed(
        task=job.task,
        job=job.id,
        queue=job.queue,
        attempt=runs_of(job),
        cause=cause,
        error=_ERRORS.get(cause, ""),
        losses=job.losses + end.losses,
        replica=job.replica,
    )
