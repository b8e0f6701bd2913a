"""Spans: `send` around an enqueue, `process` around each attempt, `settle` until it is stored.

The context of the `send` span travels in the headers `traceparent` and `tracestate` of the job. So
each attempt knows it: after retries and losses, on whichever worker.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from time import time_ns  # noqa: TID251 - spans are in the time of this host, as all others

from msgspec import Struct
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    StatusCode,
    Tracer,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from tenure import JobContext, Outgoing, OutgoingBatch
from tenure.core.jobs.headers import check_headers
from tenure.errors import ConfigError
from tenure.metrics.recorder import OUTCOMES
from tenure.observe import (
    AttemptLost,
    Event,
    JobCancelled,
    JobFailed,
    JobHandedBack,
    JobRetried,
    JobSucceeded,
)
from tenure.otel.conventions import (
    ATTEMPT,
    BATCH_COUNT,
    ERROR_TYPE,
    MESSAGE_ID,
    OUTCOME,
    REQUEST_ID,
    TASK,
    about,
)

__all__ = ["Traces"]

# Attempts whose end is not stored yet. Each is forgotten with its event; a worker that stops while
# its store is away leaves some.
_UNSETTLED_MAX = 10_000

# What a client of an `AsyncRouter` may choose. A header of a job may be longer.
_REQUEST_ID_MAX = 200

_CANCELLED = "cancelled"

_PROPAGATOR = TraceContextTextMapPropagator()


class _Processed(Struct):
    """A `process` span that has ended; its outcome is still to be stored."""

    context: SpanContext
    ended: int
    error: str
    about_request: dict[str, str]


class Traces:
    """Makes the spans of an app."""

    def __init__(self, tracer: Tracer, *, has_parent: bool) -> None:
        self._tracer = tracer
        self._has_parent = has_parent
        self._unsettled: OrderedDict[str, _Processed] = OrderedDict()
        self._changing = threading.Lock()  # several event loops may run work

    @contextmanager
    def sending(self, batch: OutgoingBatch) -> Iterator[None]:
        """Surround one call of `enqueue` or `enqueue_many`."""
        jobs = batch.jobs
        if not jobs:
            yield
            return
        queues = {job.queue for job in jobs}
        queue = queues.pop() if len(queues) == 1 else ""
        attributes = about("send", "send", queue)
        if len(jobs) == 1:
            attributes |= {MESSAGE_ID: jobs[0].id, TASK: jobs[0].task}
        else:
            attributes[BATCH_COUNT] = len(jobs)
        attributes |= _about_request(*(job.headers for job in jobs))
        with self._tracer.start_as_current_span(
            f"send {queue}".strip(),
            _context_of_sender(jobs[0]),
            SpanKind.PRODUCER,
            attributes,
            record_exception=False,  # a message may hold arguments
            set_status_on_exception=False,
        ) as span:
            for job in jobs:
                _inject(job, span)
            try:
                yield
            except BaseException as error:
                _fail(span, type(error).__name__)
                raise

    @asynccontextmanager
    async def processing(self, job: JobContext) -> AsyncIterator[None]:
        """Surround one attempt."""
        creator = _PROPAGATOR.extract(job.headers, Context())
        origin = trace.get_current_span(creator).get_span_context()
        is_child = self._has_parent and origin.is_valid
        links = [Link(origin)] if origin.is_valid and not is_child else []
        attributes = about("process", "process", job.queue)
        attributes |= {MESSAGE_ID: job.id, TASK: job.task, ATTEMPT: job.attempt}
        about_request = _about_request(job.headers)
        attributes |= about_request
        error_type = ""
        with self._tracer.start_as_current_span(
            f"process {job.queue}",
            creator if is_child else Context(),
            SpanKind.CONSUMER,
            attributes,
            links,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield
            except asyncio.CancelledError:  # the store's answer will say why
                error_type = _CANCELLED
                raise
            except BaseException as error:
                error_type = type(error).__name__
                _fail(span, error_type)
                raise
            finally:
                context = span.get_span_context()
                self._remember(job.id, _Processed(context, time_ns(), error_type, about_request))

    def settled(self, event: Event) -> None:
        """Add a span from the end of a handler to the store's answer: how the attempt ended."""
        match event:
            case JobSucceeded() | JobFailed() | JobRetried() | JobCancelled() | JobHandedBack():
                with self._changing:
                    processed = self._unsettled.pop(event.job, None)
                if processed is not None and not _is_inner_retry(event):
                    self._add_settle(event, processed)
            case AttemptLost():  # what becomes of the job later is not the end of this attempt
                with self._changing:
                    self._unsettled.pop(event.job, None)
            case _:
                pass

    def _add_settle(
        self,
        event: JobSucceeded | JobFailed | JobRetried | JobCancelled | JobHandedBack,
        processed: _Processed,
    ) -> None:
        outcome = OUTCOMES[type(event)]
        attributes = about("settle", "settle", event.queue)
        attributes |= {MESSAGE_ID: event.job, TASK: event.task, OUTCOME: outcome}
        attributes |= processed.about_request
        span = self._tracer.start_span(
            f"settle {event.queue}",
            trace.set_span_in_context(NonRecordingSpan(processed.context), Context()),
            SpanKind.CLIENT,
            attributes,
            start_time=processed.ended,
        )
        if isinstance(event, JobFailed | JobRetried):
            _fail(span, _error_type(event, processed))
        span.end()

    def _remember(self, job: str, processed: _Processed) -> None:
        with self._changing:
            self._unsettled[job] = processed
            self._unsettled.move_to_end(job)
            if len(self._unsettled) > _UNSETTLED_MAX:
                self._unsettled.popitem(last=False)


def _about_request(*headers: Mapping[str, str]) -> dict[str, str]:
    """Return the attribute with the request that jobs come from, if it is the same for all."""
    ids = {each.get("x-request-id", "") for each in headers}
    request_id = ids.pop() if len(ids) == 1 else ""
    return {REQUEST_ID: request_id[:_REQUEST_ID_MAX]} if request_id else {}


def _context_of_sender(job: Outgoing) -> Context | None:
    """Return where a `send` span belongs: to the current span, else to the request's headers."""
    if trace.get_current_span().get_span_context().is_valid:
        return None
    return _PROPAGATOR.extract(job.headers)


def _inject(job: Outgoing, span: Span) -> None:
    """Write the context of a span into the headers of a job, if there is room for it."""
    context = trace.set_span_in_context(span)
    carrier: dict[str, str] = {}
    _PROPAGATOR.inject(carrier, context)
    if not carrier:
        return
    # That of the sender before would be of another span.
    rest = {name: job.headers[name] for name in job.headers if name not in _PROPAGATOR.fields}
    for headers in (rest | carrier, rest | {"traceparent": carrier["traceparent"]}):
        try:
            check_headers(headers)
        except ConfigError:  # full, or wrong in themselves, which the enqueue says
            continue
        job.headers.clear()
        job.headers.update(headers)
        return


def _is_inner_retry(event: Event) -> bool:
    """Whether a run of a timer calls its function again, which the store does not learn."""
    return isinstance(event, JobRetried) and event.task.startswith("@")


def _error_type(event: JobFailed | JobRetried, processed: _Processed) -> str:
    """Return the class of the handler's error, or why there is none."""
    if isinstance(event, JobFailed) and event.cause != "error":
        return event.cause
    # A handler that took too long was cancelled, or has returned too late from its thread.
    return "timeout" if processed.error in ("", _CANCELLED) else processed.error


def _fail(span: Span, error: str) -> None:
    """Mark a span as failed, with the class of the error and never its message."""
    span.set_status(StatusCode.ERROR)
    span.set_attribute(ERROR_TYPE, error)
