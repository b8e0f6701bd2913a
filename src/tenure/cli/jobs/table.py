"""How jobs look on a screen and in a document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from tenure.cli.output import Cell, Shrinking, duration, safe, table
from tenure.core.jobs.records import JobRecord
from tenure.core.jobs.results import read_stored
from tenure.core.jobs.run_numbers import numbered_history
from tenure.core.jobs.states import JobState
from tenure.core.jobs.view import as_datetime, waits_for_its_task
from tenure.core.schedules.records import TIMERS_QUEUE
from tenure.core.values.json import decode_plain
from tenure.jobs import Job

__all__ = [
    "STYLES",
    "about",
    "document",
    "full_document",
    "id_of",
    "instant",
    "joined",
    "listed",
    "plain",
    "progress_of",
    "shown_result",
    "state_of",
    "timer_of",
    "took",
]

STYLES: dict[JobState, str] = {
    "waiting": "cyan",
    "running": "bold cyan",
    "succeeded": "green",
    "failed": "bold red",
    "cancelled": "yellow",
}

# How much of an id is shown where there is little room: of its end, which is random. Commands take
# no less; see `choosing`.
_SHORT = 8


def document(job: Job[Any]) -> dict[str, Any]:
    """Return what a list says about a job."""
    record = job.record
    return {
        "id": job.id,
        "task": job.task,
        "queue": job.queue,
        "state": job.state,
        "priority": job.priority,
        "tags": [*job.tags],
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
        "arguments": plain(record.payload),
    }


def full_document(job: Job[Any]) -> dict[str, Any]:
    """Return all that is known about a job."""
    record = job.record
    return {
        **document(job),
        "timeout": record.timeout,
        "retention": record.retention,
        "retention_failed": record.retention_failed,
        "fence": record.fence,
        "revision": record.revision,
        "result": plain(shown_result(record)[0]),
        "result_problem": shown_result(record)[1] or None,
        "checkpoint": plain(record.checkpoint),
        "trace": job.trace,
        "history": [
            {
                "attempt": one.attempt,
                "replica": one.replica,
                "started": instant(one.started),
                "ended": instant(one.ended),
                "outcome": one.outcome,
                "error": one.error,
            }
            for one in numbered_history(record)
        ],
    }


def instant(micros: int) -> str | None:
    """Return an instant of the store's clock as text that sorts; None for one that never was."""
    if not micros:
        return None
    return as_datetime(micros).isoformat(timespec="microseconds").replace("+00:00", "Z")


def id_of(job: str, *, short: bool) -> str:
    """Return the id of a job, or its end: ids of one moment begin alike."""
    return job[-_SHORT:] if short else job


def listed(jobs: Sequence[Job[Any]], now: int, *, short: bool = False) -> RenderableType:
    """Return a table with a line for each job, maybe with short ids."""
    rows: list[list[Cell]] = [
        [
            id_of(job.id, short=short),
            Shrinking(safe(job.task)),
            Shrinking(safe(job.queue)),
            Text(state_of(job), STYLES[job.state]),
            duration((now - job.record.created) / 1e6),
            Shrinking(safe(about(job, now)), tail=0),
        ]
        for job in jobs
    ]
    columns = ("ID", "TASK", "QUEUE", "STATE", "AGE", "ABOUT")
    return table(rows, columns, right=("AGE",), optional=("QUEUE", "AGE"))


def state_of(job: Job[Any]) -> str:
    """Return its state; one that was told to stop has a word of its own."""
    return "cancelling" if job.record.cancelling else job.state


def about(job: Job[Any], now: int) -> str:
    """Return what is most worth knowing about a job beside its state."""
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
    """Return the timer whose run it is; nothing for other jobs, also for those of a schedule."""
    return job.record.schedule if job.queue == TIMERS_QUEUE else ""


def progress_of(job: Job[Any]) -> str:
    """Return how far it says it is."""
    part = "" if job.progress is None else f"{job.progress:.0%}"
    return " ".join(filter(None, (part, job.message)))


def _losses_of(job: Job[Any]) -> str:
    return f"lost {job.losses} times" if job.losses > 1 else "lost once" if job.losses else ""


def joined(*parts: str) -> str:
    """Return those of the parts that say something."""
    return ", ".join(filter(None, parts))


def took(began: int, ended: int) -> str:
    """Return how long something took; most jobs are done within a second."""
    length = max(0, ended - began) / 1e6
    return duration(length) if length >= 1 else f"{length * 1000:.0f}ms"


def shown_result(record: JobRecord) -> tuple[bytes, str]:
    """Return a result as it is sent over HTTP, and why callers cannot have it."""
    if record.result is None:
        return b"", ""
    try:
        stored = read_stored(record.result)
    except (ValueError, RecursionError):
        return record.result, ""
    return bytes(stored.sent), stored.problem


def plain(data: bytes | None) -> Any:
    """Return what was written down, as plain values."""
    if not data:
        return None
    try:
        return decode_plain(data)
    except (ValueError, RecursionError):
        return f"({len(data):,} bytes that are not JSON)"
