"""Around an attempt: an isolation scope and a transaction; then a report if the job has failed.

Only the event of its end says whether a failed attempt is tried again. So each attempt is
remembered until then, and a report is made in the scope of its attempt.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from types import TracebackType
from typing import Any

import sentry_sdk
from msgspec import Struct
from sentry_sdk.scope import Scope, use_isolation_scope
from sentry_sdk.utils import event_from_exception

from tenure import JobContext
from tenure.observe import (
    AttemptLost,
    Event,
    JobCancelled,
    JobFailed,
    JobHandedBack,
    JobRetried,
    JobSucceeded,
)
from tenure.sentry.enqueues import ORIGIN, has_transactions
from tenure.sentry.local_variables import without_local_variables

__all__ = ["Attempts"]

# Each is forgotten when its end is stored; those that were taken over may have no such event.
_UNSETTLED_MAX = 1000

# Sentry cuts longer values of tags.
_TAG_MAX = 200


class _Attempt(Struct):
    """An attempt whose end is not stored yet."""

    scope: Scope
    span: Any
    error: BaseException | None


class Attempts:
    """Scopes and reports of the attempts of an app."""

    def __init__(self, *, retries: bool, local_variables: bool) -> None:
        self._retries = retries
        self._local_variables = local_variables
        self._unsettled: OrderedDict[str, _Attempt] = OrderedDict()
        self._changing = threading.Lock()  # several event loops may run work

    @asynccontextmanager
    async def processing(self, job: JobContext) -> AsyncIterator[None]:
        """Surround one attempt. An async one: its scope then surrounds a thread as well."""
        if not sentry_sdk.is_initialized():
            yield
            return
        with sentry_sdk.isolation_scope() as scope:
            self._describe(scope, job)
            attempt = _Attempt(scope, None, None)
            try:
                with _transaction(job) as attempt.span:
                    yield
                    if attempt.span is not None:
                        attempt.span.set_status("ok")
            except BaseException as error:
                attempt.error = error
                raise
            finally:
                self._remember(job.id, attempt)

    def _describe(self, scope: Scope, job: JobContext) -> None:
        scope.clear_breadcrumbs()
        scope.set_transaction_name(job.task, source="task")
        scope.set_tag("tenure.task", job.task)
        scope.set_tag("tenure.queue", job.queue)
        scope.set_tag("tenure.job", job.id)
        scope.set_tag("tenure.attempt", str(job.attempt))
        if request_id := job.headers.get("x-request-id"):
            scope.set_tag("tenure.request_id", request_id[:_TAG_MAX])
        if not self._local_variables:
            scope.add_event_processor(without_local_variables)

    def knows(self, job: str) -> bool:
        """Whether the end of this job will be reported from here, and not by its log record."""
        with self._changing:
            return job in self._unsettled

    def ended(self, event: Event) -> None:
        """Forget an attempt, and report it if it has failed. A subscriber of the app."""
        match event:
            case JobSucceeded() | JobCancelled() | JobHandedBack() | AttemptLost():
                self._forget(event.job)
            case JobFailed():
                attempt = self._forget(event.job)
                if attempt is not None:
                    _report(attempt, event)
            case JobRetried():
                attempt = self._forget(event.job)
                if attempt is not None and self._retries:
                    _report(attempt, event)
            case _:
                pass

    def _remember(self, job: str, attempt: _Attempt) -> None:
        with self._changing:
            self._unsettled[job] = attempt
            self._unsettled.move_to_end(job)
            if len(self._unsettled) > _UNSETTLED_MAX:
                self._unsettled.popitem(last=False)

    def _forget(self, job: str) -> _Attempt | None:
        with self._changing:
            return self._unsettled.pop(job, None)


def _transaction(job: JobContext) -> AbstractContextManager[Any]:
    """Return the transaction of an attempt, which continues the trace of the enqueue."""
    transaction = sentry_sdk.continue_trace(
        dict(job.headers), op="queue.process", name=job.task, source="task", origin=ORIGIN
    )
    if not has_transactions():
        return nullcontext()
    transaction.set_data("messaging.message.id", job.id)
    transaction.set_data("messaging.destination.name", job.queue)
    transaction.set_data("messaging.message.retry.count", job.attempt - 1)
    sampling = {"tenure": {"task": job.task, "queue": job.queue, "attempt": job.attempt}}
    return sentry_sdk.start_transaction(transaction, custom_sampling_context=sampling)


def _report(attempt: _Attempt, event: JobFailed | JobRetried) -> None:
    """Send the error of an attempt to Sentry, as if it was captured within the attempt."""
    is_final = isinstance(event, JobFailed)
    with use_isolation_scope(attempt.scope):
        if attempt.span is not None:
            sentry_sdk.get_current_scope().span = attempt.span
        error = _error(attempt, event)
        if error is None:
            kind, _, text = event.error.partition(": ")
            # As an exception, as a message would be sent with a stack of Tenure's own.
            values = [{"type": kind or "JobFailed", "value": text or event.line}]
            sentry_sdk.capture_event(
                {"level": "error" if is_final else "warning", "exception": {"values": values}}
            )
            return
        report, hint = event_from_exception(
            (type(error), error, _from_the_handler_on(error.__traceback__)),
            client_options=sentry_sdk.get_client().options,
            mechanism={"type": "tenure", "handled": not is_final},
        )
        report["level"] = "error" if is_final else "warning"
        sentry_sdk.capture_event(report, hint=hint)


def _error(attempt: _Attempt, event: JobFailed | JobRetried) -> BaseException | None:
    """Return the error to report; None if the event describes it better.

    A time-out reached the handler as a cancellation.
    """
    error = attempt.error
    if isinstance(event, JobFailed) and event.cause == "arguments":
        return None
    if not isinstance(error, asyncio.CancelledError):
        return error
    kind, _, text = event.error.partition(": ")
    if kind != "TimeoutError":
        return None
    return TimeoutError(text).with_traceback(error.__traceback__)


def _from_the_handler_on(trace: TracebackType | None) -> TracebackType | None:
    """Skip the frames of Tenure that come before those of the handler."""
    own = trace
    while own is not None and str(own.tb_frame.f_globals.get("__name__")).startswith("tenure."):
        own = own.tb_next
    return own or trace
