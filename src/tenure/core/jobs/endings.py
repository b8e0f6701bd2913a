"""Decides how attempts end: the next state of the job, its counters, and its history line.

Pure. A store carries out a `Settlement`, and decides one thing only: with a pending cancellation, a
job that would return to waiting, or whose settlement yields, becomes cancelled.
"""

from __future__ import annotations

from typing import Final

from tenure.core.jobs.history import AttemptLine, AttemptOutcome, add_attempt
from tenure.core.jobs.options import read_options
from tenure.core.jobs.records import JobRecord, Settlement
from tenure.core.jobs.run_numbers import runs_of

__all__ = [
    "INTERRUPTED",
    "cancelled",
    "failed",
    "handed_back",
    "history_of",
    "retried",
    "succeeded",
]

INTERRUPTED: Final = "interrupted"
"""The reason of a job that failed because it was stopped and may not run again."""


def succeeded(
    job: JobRecord, *, result: bytes | None = None, history: bytes | None = None
) -> Settlement:
    """Return the end of a job whose handler has returned."""
    return Settlement(
        id=job.id,
        fence=job.fence,
        outcome="succeeded",
        state="succeeded",
        result=result,
        history=history,
    )


def failed(
    job: JobRecord, *, reason: str, error: bytes | None = None, history: bytes | None = None
) -> Settlement:
    """Return the end of a job that is not retried."""
    return Settlement(
        id=job.id,
        fence=job.fence,
        outcome="failed",
        state="failed",
        failures=1,
        reason=reason,
        error=error,
        history=history,
    )


def retried(
    job: JobRecord, *, delay: float, error: bytes | None, history: bytes | None = None
) -> Settlement:
    """Return the end of a failed attempt after which the job is retried."""
    if not read_options(job.options).rerun:
        return _interrupted(job, "retry", failures=1, history=history)
    return Settlement(
        id=job.id,
        fence=job.fence,
        outcome="retry",
        state="waiting",
        delay=delay,
        failures=1,
        error=error,
        history=history,
    )


def cancelled(job: JobRecord, *, history: bytes | None = None) -> Settlement:
    """Return the end of a job that stopped on a request to cancel."""
    return Settlement(
        id=job.id, fence=job.fence, outcome="cancelled", state="cancelled", history=history
    )


def handed_back(
    job: JobRecord, *, delay: float = 0.0, history: bytes | None = None, by: str = ""
) -> Settlement:
    """Return the end of an attempt that is handed back to run elsewhere or later, uncounted."""
    if not read_options(job.options).rerun:
        return _interrupted(job, "handed back", history=history, by=by)
    return Settlement(
        id=job.id,
        fence=job.fence,
        outcome="handed back",
        state="waiting",
        by=by,
        delay=delay,
        history=history,
    )


def history_of(job: JobRecord, outcome: AttemptOutcome, ended: int, error: str = "") -> bytes:
    """Return the history of a running job with this attempt at its end."""
    line = AttemptLine(runs_of(job), job.replica, job.started, ended, outcome, error)
    return add_attempt(job.history, line)


def _interrupted(
    job: JobRecord,
    outcome: AttemptOutcome,
    *,
    failures: int = 0,
    history: bytes | None = None,
    by: str = "",
) -> Settlement:
    """Return the end of a job that would run again but may not."""
    return Settlement(
        id=job.id,
        fence=job.fence,
        outcome=outcome,
        state="failed",
        by=by,
        yields_to_cancel=True,
        failures=1 if failures else 0,
        reason=INTERRUPTED,
        history=history,
    )
