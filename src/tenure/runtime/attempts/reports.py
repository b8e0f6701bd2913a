"""Errors of handlers, and the report that a job stores of them.

A report is the same for a handler on the loop, in a thread or in a child process.
"""

from __future__ import annotations

import inspect
import traceback
from types import TracebackType
from typing import Any

from tenure.core.durations import Duration, seconds
from tenure.core.jobs.error_report import ErrorReport
from tenure.core.lease_policy import TTL_MAX
from tenure.core.leases import storable
from tenure.errors import ArgumentsError, ProcessDied

__all__ = [
    "ErrorReport",
    "RaisedInChild",
    "Reject",
    "RejectedInChild",
    "Retry",
    "RetryInChild",
    "TimedOut",
    "Unreadable",
    "UnreadableInChild",
    "awaited",
    "report_on",
    "traceback_of",
]

_TRACE_MAX = 8000
_MESSAGE_MAX = 4000
# Frames of these packages come before the handler's, and do not help to find its error.
_OWN_PACKAGES = ("tenure.runtime.attempts.", "tenure.timers.")


class Retry(Exception):
    """A handler raises it to run the job again later. Counts as a failure.

    raise Retry(after="5m")     # without `after`: as the task's Backoff says
    """

    def __init__(self, message: str = "", *, after: Duration | None = None) -> None:
        super().__init__(message or "asked to run again")
        self.after = None if after is None else seconds(after, "after", maximum=TTL_MAX)


class Reject(Exception):
    """A handler raises it if the job can never succeed: it fails at once, without more retries."""

    def message_within(self, most: int) -> str:
        """Return the message in at most `most` characters, for the report."""
        return str(self)[:most]


class TimedOut(Exception):
    """The attempt took too long."""

    def __init__(self, timeout: float) -> None:
        super().__init__(f"it ran longer than its time-out of {timeout:g} s")


class Unreadable(ArgumentsError):
    """The stored arguments of a job do not fit the task. The handler was not called."""


class RaisedInChild(Exception):
    """Stands for an error that a handler raised in a child process."""

    def __init__(self, report: ErrorReport) -> None:
        super().__init__(report.line)
        self.report = report
        if report.trace:
            self.add_note(report.trace)  # shown with the traceback


class RejectedInChild(RaisedInChild, Reject):
    """A `Reject` of a handler in a child process."""


class UnreadableInChild(RaisedInChild):
    """Arguments that a child process could not read."""


class RetryInChild(RaisedInChild, Retry):
    """A `Retry` of a handler in a child process."""

    def __init__(self, report: ErrorReport, after: float | None) -> None:
        RaisedInChild.__init__(self, report)
        self.after = after


def awaited(result: Any) -> Any:
    """Return the result of a handler. Raises Reject for a coroutine, which never ran."""
    if inspect.iscoroutine(result):
        result.close()
        msg = "the handler returned a coroutine; declare it with 'async def', and await it there"
        raise Reject(msg)
    return result


def report_on(error: BaseException) -> ErrorReport:
    """Return what a job stores of an error."""
    if isinstance(error, RaisedInChild):
        return error.report
    kind = ArgumentsError if isinstance(error, Unreadable) else type(error)
    name = "TimeoutError" if isinstance(error, TimedOut) else kind.__qualname__
    if kind.__module__ not in ("builtins", __name__):
        name = f"{kind.__module__}.{name}"
    # These are raised by Tenure, so their trace would not show the handler's code.
    plain = isinstance(error, TimedOut | Reject | ArgumentsError | ProcessDied)
    trace = "" if plain else _trace(error)
    return ErrorReport(name, storable(_message(error), _MESSAGE_MAX), storable(trace, _TRACE_MAX))


def _trace(error: BaseException) -> str:
    trace = traceback_of(error)
    return "".join(traceback.format_exception(type(error), error, trace))[-_TRACE_MAX:]


def traceback_of(error: BaseException) -> TracebackType | None:
    """Return the traceback of an error from the handler's first frame."""
    trace = error.__traceback__
    while trace is not None and _is_own_frame(trace):
        trace = trace.tb_next
    return trace


def _is_own_frame(trace: TracebackType) -> bool:
    return str(trace.tb_frame.f_globals.get("__name__", "")).startswith(_OWN_PACKAGES)


def _message(error: BaseException) -> str:
    try:
        return error.message_within(_MESSAGE_MAX) if isinstance(error, Reject) else str(error)
    except Exception:  # noqa: BLE001 - an error that cannot be shown is still an error
        return "(its message cannot be shown)"
