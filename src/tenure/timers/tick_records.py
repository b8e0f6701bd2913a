"""The outcome of a tick in words for users, from its decision and its run."""

from __future__ import annotations

from typing import Any

from tenure.core.jobs.view import as_datetime
from tenure.core.schedules.documents import ANSWERED_LATE, Decision
from tenure.jobs import Job
from tenure.timers.info import TickOutcome, TickRecord

__all__ = ["tick_record"]


def tick_record(decision: Decision, job: Job[Any] | None) -> TickRecord:
    """Return the outcome of a tick, with what became of its run if that is still there."""
    ran: dict[str, Any] = {}
    outcome: TickOutcome = decision.outcome
    reason = decision.reason
    if job is not None:
        record = job.record
        outcome, reason = job.state, job.reason or decision.reason
        if (outcome, reason) == ("cancelled", ANSWERED_LATE):
            outcome, reason = "missed", "late"
        ran = {
            "started": as_datetime(record.started) if record.started else None,
            "finished": as_datetime(record.finished) if record.finished else None,
            "attempts": job.attempt,
            "error": job.error or "",
        }
    return TickRecord(
        outcome=outcome,
        reason=reason,
        nominal=as_datetime(decision.last),
        first=as_datetime(decision.first),
        ticks=decision.ticks,
        decided=as_datetime(decision.at),
        job=decision.job,
        replica=decision.replica,
        **ran,
    )
