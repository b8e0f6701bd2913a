"""Around an enqueue: a span, and the trace context in the headers of each job."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import sentry_sdk

from tenure import Outgoing, OutgoingBatch
from tenure.core.jobs.headers import check_headers
from tenure.errors import ConfigError
from tenure.sentry.trace_headers import BAGGAGE, TRACE, trace_headers

__all__ = ["ORIGIN", "has_transactions", "sending"]

ORIGIN = "auto.queue.tenure"

_OF_SENTRY = "sentry-"


def has_transactions() -> bool:
    """Whether the SDK makes transactions. In its streaming mode it has none."""
    options = sentry_sdk.get_client().options
    experiments = options.get("_experiments") or {}
    return "stream" not in (options.get("trace_lifecycle"), experiments.get("trace_lifecycle"))


@contextmanager
def sending(batch: OutgoingBatch) -> Iterator[None]:
    """Surround one call of `enqueue` or `enqueue_many`."""
    if not batch.jobs or not sentry_sdk.is_initialized():
        yield
        return
    if sentry_sdk.get_current_span() is None or not has_transactions():
        _inject(batch)  # a span that belongs to no transaction is never sent
        yield
        return
    queues = {job.queue for job in batch.jobs}
    queue = queues.pop() if len(queues) == 1 else ""
    name = f"send {queue}".strip()
    with sentry_sdk.start_span(op="queue.publish", name=name, origin=ORIGIN) as span:
        if queue:
            span.set_data("messaging.destination.name", queue)
        if len(batch.jobs) == 1:
            span.set_data("messaging.message.id", batch.jobs[0].id)
        _inject(batch)
        yield


def _inject(batch: OutgoingBatch) -> None:
    own = trace_headers()
    for job in batch.jobs:
        _add(job, own)


def _add(job: Outgoing, own: dict[str, str]) -> None:
    """Write the trace context into the headers of a job, if there is room for it."""
    if TRACE not in own:
        return
    rest = {name: value for name, value in job.headers.items() if name not in (TRACE, BAGGAGE)}
    foreign = _without_sentry(job.headers.get(BAGGAGE, ""))
    kept = rest | ({BAGGAGE: foreign} if foreign else {})
    together = ",".join(filter(None, (foreign, own.get(BAGGAGE, ""))))
    trace = {TRACE: own[TRACE]}
    for headers in (rest | trace | ({BAGGAGE: together} if together else {}), kept | trace):
        try:
            check_headers(headers)
        except ConfigError:  # full, or wrong in themselves, which the enqueue says
            continue
        job.headers.clear()
        job.headers.update(headers)
        return


def _without_sentry(baggage: str) -> str:
    """Return what other systems have in a baggage. Sentry's own part is that of an older span."""
    items = (item.strip() for item in baggage.split(","))
    return ",".join(item for item in items if item and not item.startswith(_OF_SENTRY))
