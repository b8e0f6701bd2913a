"""How jobs look on a screen and in a document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from tenure.cli.tables import Cell, ShrinkingCell, table
from tenure.cli.text import count, duration, instant, joined, safe, took
from tenure.core.jobs.results import shown_result
from tenure.core.jobs.run_numbers import numbered_history
from tenure.core.jobs.states import JobState
from tenure.core.jobs.view import waits_for_its_task
from tenure.core.schedules.records import TIMERS_QUEUE
from tenure.core.values.json import shown_value
from tenure.jobs import Job

__all__ = [
    "STYLES",
    "document",
    "full_document",
    "id_of",
    "listed",
    "progress_of",
    "state_of",
    "summary",
    "timer_of",
]

STYLES: dict[JobState, str] = {
    "waiting": "cyan",
    "running": "bold cyan",
    "succeeded": "green",
    "failed": "bold red",
    "cancelled": "yellow",
}

# How much of an id a narrow terminal shows: its end, which is random. Commands accept no less; see
# `selection`.
_SHORT = 8


def document(job: Job[Any]) -> dict[str, Any]:
    """Return what the JSON of a list says about a job."""
    record = job.record
    return {
        "id": job.id,
        "task": job.task,
        "queue": job.queue,
        "state": job.state,
        "priority": job.priority,
        "tags": [*job.tags],
        "headers": {**job.headers},
        "created": instant(record.created),
        "due": instant(record.due),
        "started": instant(record.started),
        "finished": instant(record.finished),
        "attempt": job.attempt,
        "failures": job.failures,
        "losses": job.losses,
        "replica": job.replica or None,
        "progress": job.progress,
        "message": job.message,
        "cancelling": record.cancelling,
        "reason": job.reason,
        "error": job.error,
        "schedule": record.schedule or None,
        "parent": job.parent,
        "arguments": shown_value(record.payload),
    }


def full_document(job: Job[Any]) -> dict[str, Any]:
    """Return what the JSON of `jobs show` says about a job."""
    record = job.record
    result, problem = shown_result(record.result)
    return {
        **document(job),
        "timeout": record.timeout,
        "retention": record.retention,
        "retention_failed": record.retention_failed,
        "fence": record.fence,
        "revision": record.revision,
        "result": shown_value(result),
        "result_problem": problem or None,
        "checkpoint": shown_value(record.checkpoint),
        "trace": job.trace,
        "history": [
            {
                "attempt": attempt.attempt,
                "replica": attempt.replica,
                "started": instant(attempt.started),
                "ended": instant(attempt.ended),
                "outcome": attempt.outcome,
                "error": attempt.error,
            }
            for attempt in numbered_history(record)
        ],
    }


def id_of(job: str, *, short: bool) -> str:
    """Return the id of a job, or its end: ids from the same moment begin alike."""
    return job[-_SHORT:] if short else job


def listed(jobs: Sequence[Job[Any]], now: int, *, short: bool = False) -> RenderableType:
    """Return a table with a row for each job; `short` shows only the ends of ids."""
    rows: list[list[Cell]] = [
        [
            id_of(job.id, short=short),
            ShrinkingCell(safe(job.task)),
            ShrinkingCell(safe(job.queue)),
            Text(state_of(job), STYLES[job.state]),
            duration((now - job.record.created) / 1e6),
            ShrinkingCell(safe(summary(job, now)), tail=0),
        ]
        for job in jobs
    ]
    columns = ("ID", "TASK", "QUEUE", "STATE", "AGE", "DETAILS")
    return table(rows, columns, right=("AGE",), optional=("QUEUE", "AGE"))


def state_of(job: Job[Any]) -> str:
    """Return its state; a running job with a pending cancel is "cancelling"."""
    return "cancelling" if job.record.cancelling else job.state


def summary(job: Job[Any], now: int) -> str:
    """Return what an operator needs most beside the state: error, progress, due time."""
    record = job.record
    match job.state:
        case "waiting":
            wait = (record.due - now) / 1e6
            when = "" if record.is_due(now) else f"due in {duration(wait)}"
            unknown = "no worker knows the task" if waits_for_its_task(record) else ""
            return joined(when, unknown or job.error or _losses_of(job))
        case "running":
            return joined(progress_of(job), f"for {duration((now - record.started) / 1e6)}")
        case "succeeded":
            return f"took {took(record.started, record.finished)}"
        case "failed":
            return joined(job.error or _losses_of(job) or job.reason)
        case "cancelled":
            return job.reason


def timer_of(job: Job[Any]) -> str:
    """Return the timer whose run it is; "" for other jobs, also for those of a schedule."""
    return job.record.schedule if job.queue == TIMERS_QUEUE else ""


def progress_of(job: Job[Any]) -> str:
    """Return the progress that the handler has reported."""
    part = "" if job.progress is None else f"{job.progress:.0%}"
    return " ".join(filter(None, (part, job.message)))


def _losses_of(job: Job[Any]) -> str:
    return f"lost {count(job.losses, 'time')}" if job.losses else ""
