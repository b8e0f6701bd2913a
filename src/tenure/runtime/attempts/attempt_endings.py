"""How attempts that did not succeed end: another try, a failure for good, or unreadable arguments.

`core.jobs.endings` has the rules that need only a record. This adds what a worker knows: the error
that was raised, its own clock, and the events to emit.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import msgspec

from tenure.core.clock import Clock
from tenure.core.durations import micros
from tenure.core.jobs import endings
from tenure.core.jobs.history import AttemptOutcome
from tenure.core.jobs.options import read_options
from tenure.core.jobs.records import JobRecord, Settlement
from tenure.core.jobs.retry_policy import read_backoff
from tenure.core.jobs.run_numbers import runs_of
from tenure.core.lease_policy import TTL_MAX
from tenure.observe.events import Events
from tenure.observe.jobs import JobFailed, JobFailure, JobRetried
from tenure.observe.log_records import Raised
from tenure.runtime.attempts.handler import Handler
from tenure.runtime.attempts.reports import (
    ErrorReport,
    Reject,
    Retry,
    TimedOut,
    Unreadable,
    UnreadableInChild,
    report_on,
    traceback_of,
)

__all__ = ["AttemptEndings", "requested_pause"]


class AttemptEndings:
    """Turns errors into settlements, for the attempts of one worker."""

    def __init__(
        self,
        clock: Clock,
        events: Events,
        on_failed: Callable[[JobRecord, JobFailed | JobRetried, Raised | None], None],
    ) -> None:
        """`on_failed` gets the event of each failure, to emit it once the store has stored it."""
        self._clock = clock
        self._events = events
        self._on_failed = on_failed

    def timed_out(self, handler: Handler, record: JobRecord, began: float) -> Settlement:
        """Return the end of an attempt whose thread came back after its time-out."""
        return self.failed(handler, record, TimedOut(record.timeout or 0.0), began)

    def failed(
        self, handler: Handler, record: JobRecord, error: BaseException, began: float
    ) -> Settlement:
        """Return the end of an attempt that raised: another try, or none."""
        failures = record.failures + 1
        if isinstance(error, Reject):
            return self._given_up(record, error, "rejected", began)
        if isinstance(error, Unreadable | UnreadableInChild):
            # Another try would read the same bytes.
            return self._given_up(record, error, "arguments", began)
        retry = read_backoff(read_options(record.options).retry) or handler.retry
        if not retry.allows(failures):
            reason: JobFailure = "timeout" if isinstance(error, TimedOut) else "error"
            return self._given_up(record, error, reason, began)
        report = report_on(error)
        requested = requested_pause(error)
        delay = retry.delay(failures, self._clock.random()) if requested is None else requested
        self._on_failed(record, self._retried(record, report, delay, began), None)
        return endings.retried(
            record,
            delay=min(delay, TTL_MAX),
            error=msgspec.json.encode(report),
            history=self.history(record, "retry", began, report.line),
        )

    def _given_up(
        self, record: JobRecord, error: BaseException, reason: JobFailure, began: float
    ) -> Settlement:
        report = report_on(error)
        raised = Raised(error, traceback_of(error), report.trace or report.line)
        self._on_failed(record, self._failed(record, report, reason, began), raised)
        history = self.history(record, "failed", began, report.line)
        error_kept = msgspec.json.encode(report)
        return endings.failed(record, reason=reason, error=error_kept, history=history)

    def failed_unreadably(
        self, record: JobRecord, error: BaseException, began: float
    ) -> Settlement:
        """Return the end of an attempt whose error raises when it is formatted."""
        report = ErrorReport(type(error).__qualname__, "it could not be formatted; see the log")
        self._on_failed(record, self._failed(record, report, "error", began), None)
        return endings.failed(record, reason="error", error=msgspec.json.encode(report))

    def report_retry(
        self, record: JobRecord, report: ErrorReport, pause: float, began: float
    ) -> None:
        """Emit the event of a failure after which the same attempt calls its function again."""
        self._events.emit(self._retried(record, report, pause, began), record)

    def _retried(
        self, record: JobRecord, report: ErrorReport, pause: float, began: float
    ) -> JobRetried:
        return JobRetried(
            task=record.task,
            job=record.id,
            queue=record.queue,
            attempt=runs_of(record),
            error=report.line,
            retry_in=round(pause, 1),
            seconds=self._since(began),
        )

    def _failed(
        self, record: JobRecord, report: ErrorReport, cause: JobFailure, began: float
    ) -> JobFailed:
        return JobFailed(
            task=record.task,
            job=record.id,
            queue=record.queue,
            attempt=runs_of(record),
            cause=cause,
            error=report.line,
            trace=report.trace,
            losses=record.losses,
            replica=record.replica,
            seconds=self._since(began),
        )

    def _since(self, began: float) -> float:
        return round(self._clock.boot() - began, 6)

    def history(
        self, record: JobRecord, outcome: AttemptOutcome, began: float, error: str = ""
    ) -> bytes:
        """Return the job's history with this attempt as its last line.

        The attempt ends at the store's instant of the claim plus the time that has passed here: the
        two clocks need not agree.
        """
        ended = record.started + micros(self._clock.boot() - began)
        return endings.history_of(record, outcome, ended, error)


def requested_pause(error: BaseException) -> float | None:
    """Return the pause that a `Retry` requests; None if a subclass has set something else."""
    after = getattr(error, "after", None) if isinstance(error, Retry) else None
    is_pause = isinstance(after, int | float) and math.isfinite(after) and after >= 0
    return after if is_pause else None
