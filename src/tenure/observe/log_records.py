"""Records for the logger `tenure`: text, fields, and tracebacks that are safe to show.

Every record about a job has the fields `job task queue attempt replica`, and `request_id` if the
job has the header `x-request-id`. One about a lock has `lock` and `fence`. A formatter or a filter
of the program finds them as attributes of the record.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import Final, NamedTuple

from tenure.core.jobs.options import read_options
from tenure.core.jobs.records import JobRecord, NewJob
from tenure.core.jobs.run_numbers import runs_of
from tenure.core.safe_text import indented, safe

__all__ = ["Raised", "fields_of", "write"]

log: Final = logging.getLogger("tenure")


class Raised(NamedTuple):
    """An error for the log."""

    error: BaseException
    traceback: TracebackType | None
    """The traceback from the first frame of the user's code."""
    text: str
    """The traceback as text without secrets, or the error in one line."""


def fields_of(job: JobRecord | NewJob | None) -> dict[str, object]:
    """Return the `extra` of a record about a job. No name is an attribute of LogRecord."""
    if job is None:
        return {}
    fields: dict[str, object] = {
        "job": job.id,
        "task": job.task,
        "queue": job.queue,
        "attempt": 0,
    }
    if isinstance(job, JobRecord):
        fields |= {"attempt": runs_of(job), "replica": job.replica}
    if request_id := read_options(job.options).headers.get("x-request-id"):
        fields["request_id"] = safe(request_id)  # a client may have chosen it
    return fields


def write(
    level: int, text: object, fields: Mapping[str, object], raised: Raised | None = None
) -> None:
    """Write a record. Never raises, although a logging filter of the program may."""
    with suppress(Exception):
        if not log.isEnabledFor(level):
            return
        if raised is None:
            log.log(level, "%s", text, extra=dict(fields), stacklevel=3)
            return
        path, line, function, _ = log.findCaller(stacklevel=3)
        info = (type(raised.error), raised.error, raised.traceback)
        record = log.makeRecord(
            log.name, level, path, line, "%s", (text,), info, function, dict(fields)
        )
        # Handlers such as Sentry's read exc_info. Formatters print exc_text if there is one: here
        # with all lines indented, so that no message of an error looks like a record of its own.
        record.exc_text = indented(raised.text).removeprefix("\n")
        log.handle(record)
