"""Records for the logger `tenure`: text, fields, and tracebacks that are safe to show.

Every record about a job has the fields `job task queue attempt replica`, one about a lock `lock`
and `fence`. A formatter or a filter of the program finds them as attributes of the record.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import Final, NamedTuple

from tenure.core.jobs.records import JobRecord
from tenure.core.jobs.run_numbers import runs_of
from tenure.core.safe_text import indented

__all__ = ["Raised", "fields_of", "write"]

log: Final = logging.getLogger("tenure")


class Raised(NamedTuple):
    """An error for the log."""

    error: BaseException
    traceback: TracebackType | None
    """The traceback from the first frame of the user's code."""
    text: str
    """The traceback as text without secrets, or the error in one line."""


def fields_of(job: JobRecord | None) -> dict[str, object]:
    """Return the `extra` of a record about a job. No name is an attribute of LogRecord."""
    if job is None:
        return {}
    return {
        "job": job.id,
        "task": job.task,
        "queue": job.queue,
        "attempt": runs_of(job),
        "replica": job.replica,
    }


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
