"""How jobs look on a screen and in a document."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from rich.console import RenderableType
from rich.text import Text

from tenure.cli.show import Cell, Shrinking, duration, safe, table
from tenure.core.records import Attempt
from tenure.core.signature import decode_plain
from tenure.core.states import JobState
from tenure.jobs import Job

__all__ = ["document", "full_document", "instant", "listed", "shown"]

_STYLES: dict[JobState, str] = {
    "waiting": "cyan",
    "running": "bold cyan",
    "succeeded": "green",
    "failed": "bold red",
    "cancelled": "yellow",
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


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
        "arguments": _plain(record.payload),
    }


def full_document(job: Job[Any]) -> dict[str, Any]:
    """Return all that is known about a job."""
    record = job.record
    return {
        **document(job),
        "timeout": record.timeout,
        "retention": record.retention,
        "fence": record.fence,
        "revision": record.revision,
        "result": _plain(record.result),
        "checkpoint": _plain(record.checkpoint),
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
            for one in job.history
        ],
    }


def instant(micros: int) -> str | None:
    """Return an instant of the store's clock as text that sorts; None for one that never was."""
    if not micros:
        return None
    when = _EPOCH + timedelta(microseconds=micros)
    return when.isoformat(timespec="microseconds").replace("+00:00", "Z")


def listed(jobs: Sequence[Job[Any]], now: int) -> RenderableType:
    """Return a table with a line for each job."""
    rows: list[list[Cell]] = [
        [
            job.id,
            Shrinking(safe(job.task)),
            Shrinking(safe(job.queue)),
            Text(_state(job), _STYLES[job.state]),
            duration((now - job.record.created) / 1e6),
            Shrinking(safe(_about(job, now))),
        ]
        for job in jobs
    ]
    return table(rows, ("ID", "TASK", "QUEUE", "STATE", "AGE", "ABOUT"), right=("AGE",))


def _state(job: Job[Any]) -> str:
    return "cancelling" if job.record.cancelling else job.state


def _about(job: Job[Any], now: int) -> str:
    """Return what is most worth knowing about a job beside its state."""
    record = job.record
    match job.state:
        case "waiting":
            wait = (record.due - now) / 1e6
            when = f"due in {duration(wait)}" if wait > 0 else ""
            return _joined(when, job.error or _losses(job))
        case "running":
            return _joined(_progress(job), f"for {duration((now - record.started) / 1e6)}")
        case "succeeded":
            return f"took {_took(record.started, record.finished)}"
        case "failed":
            return _joined(job.error or _losses(job) or job.reason)
        case "cancelled":
            return job.reason


def _progress(job: Job[Any]) -> str:
    part = "" if job.progress is None else f"{job.progress:.0%}"
    return " ".join(filter(None, (part, job.message)))


def _losses(job: Job[Any]) -> str:
    return f"lost {job.losses} times" if job.losses > 1 else "lost once" if job.losses else ""


def _joined(*parts: str) -> str:
    return ", ".join(filter(None, parts))


def shown(job: Job[Any], now: int) -> Iterator[RenderableType]:
    """Return all that is known about a job, for people."""
    style = _STYLES[job.state]
    yield Text.assemble((safe(job.task), "bold"), f"  {job.id}  ", (_state(job), style))
    yield Text()
    yield table([name, Text(value)] for name, value in _facts(job, now) if value)
    if job.history:
        yield Text()
        yield _attempts(job.history)
    if job.trace:
        yield Text()
        for line in job.trace.splitlines():
            yield Text(safe(line))


def _facts(job: Job[Any], now: int) -> Iterator[tuple[str, str]]:
    record = job.record
    yield "queue", f"{safe(job.queue)}, priority {job.priority}"
    yield "tags", safe(", ".join(job.tags))
    yield "arguments", _text(record.payload)
    yield "created", _when(record.created, now)
    yield "due", _when(record.due, now) if job.state == "waiting" else ""
    yield "started", _when(record.started, now)
    yield "finished", _when(record.finished, now)
    yield "attempts", _counted(job)
    yield "replica", safe(job.replica)
    yield "progress", safe(_progress(job))
    yield "timeout", "" if record.timeout is None else f"{duration(record.timeout)} an attempt"
    yield "kept for", f"{duration(record.retention)} after it has finished"
    yield "checkpoint", _text(record.checkpoint)
    yield "result", _text(record.result)
    yield "reason", safe(job.reason)
    yield "error", safe(job.error or "")


def _counted(job: Job[Any]) -> str:
    failures = f"{job.failures} failed" if job.failures else ""
    losses = f"{job.losses} lost with the worker" if job.losses else ""
    bad = _joined(failures, losses)
    return f"{job.attempt} ({bad})" if bad else str(job.attempt)


def _attempts(history: Sequence[Attempt]) -> RenderableType:
    return table(
        [
            [
                str(one.attempt),
                _date(one.started),
                _took(one.started, one.ended),
                one.outcome,
                safe(one.replica[:8]),  # as in the logs
                Shrinking(safe(one.error)),
            ]
            for one in history
        ],
        ("ATTEMPT", "STARTED", "TOOK", "OUTCOME", "REPLICA", "ERROR"),
        right=("ATTEMPT", "TOOK"),
    )


def _took(began: int, ended: int) -> str:
    """Return how long something took; most jobs are done within a second."""
    length = max(0, ended - began) / 1e6
    return duration(length) if length >= 1 else f"{length * 1000:.0f}ms"


def _when(micros: int, now: int) -> str:
    if not micros:
        return ""
    past = (now - micros) / 1e6
    return f"{_date(micros)}, " + (f"in {duration(-past)}" if past < 0 else f"{duration(past)} ago")


def _date(micros: int) -> str:
    when = _EPOCH + timedelta(microseconds=micros)
    return f"{when:%Y-%m-%d %H:%M:%S} UTC"


def _plain(data: bytes | None) -> Any:
    """Return what was written down, as plain values."""
    if not data:
        return None
    try:
        return decode_plain(data)
    except msgspec.DecodeError:
        return f"({len(data):,} bytes that are not JSON)"


def _text(data: bytes | None) -> str:
    return safe(json.dumps(_plain(data), ensure_ascii=False)) if data else ""
