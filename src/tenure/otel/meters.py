"""Metrics for OpenTelemetry: those of its conventions for messaging, and Tenure's own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from opentelemetry.metrics import (
    CallbackOptions,
    Counter,
    Histogram,
    Meter,
    Observation,
)

from tenure.core.jobs.records import QueueCounts
from tenure.metrics.definitions import METRICS, Metric
from tenure.metrics.labels import OTHER, Bounded
from tenure.metrics.lowest import Lowest, Owner
from tenure.metrics.recorder import Write
from tenure.metrics.snapshot import StoreSnapshot, bounded_queues, largest_offset
from tenure.observe import (
    Event,
    JobEnqueued,
    JobFailed,
    JobRetried,
    JobStarted,
    JobSucceeded,
    StoreCalled,
)
from tenure.otel.conventions import ERROR_TYPE, about

__all__ = ["Instruments", "MessagingRecorder"]

# Exporters read in a thread of their own, once a minute or so. The store gets 2 s of it.
_PATIENCE = 3.0
_SECONDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 2.5, 5, 10, 60, 300, 3600)

_OPERATIONS: Final = {
    "insert": ("send", "send"),
    "claim": ("claim", "receive"),
    "settle": ("settle", "settle"),
}
"""The calls of the store that the conventions know: name and type of the operation."""


class Instruments:
    """Tenure's own metrics as instruments of a meter. All apps with this meter share them.

    An SDK keeps the first of several observable instruments of a name, and drops the others.
    """

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._snapshots: list[StoreSnapshot] = []
        self._lowest = Lowest()
        self._up = 1.0
        self._counters: dict[Metric, Counter] = {}
        self._histograms: dict[Metric, Histogram] = {}
        self._attributes = {
            metric: tuple(f"tenure.{label}" for label in metric.labels) for metric in METRICS
        }
        for metric in METRICS:
            self._make(metric)
        meter.create_observable_gauge(
            "tenure.queue.jobs", [self._jobs], "{job}", "Jobs of each queue."
        )
        meter.create_observable_gauge(
            "tenure.queue.oldest_age",
            [self._ages],
            "s",
            "How long the oldest due job of a queue has been due.",
        )
        meter.create_observable_gauge(
            "tenure.clock.offset",
            [self._offset],
            "s",
            "How far the store's clock is ahead of this host's.",
        )

    def of_app(self, snapshot: StoreSnapshot) -> Write:
        """Show the queues of one more app, and return what adds its values to the metrics."""
        self._snapshots.append(snapshot)
        owner = Owner()

        def write(metric: Metric, value: float, labels: tuple[str, ...]) -> None:
            if metric.kind == "gauge":
                value = self._lowest.with_value(owner, value)
            self.write(metric, value, labels)

        return write

    def write(self, metric: Metric, value: float, labels: tuple[str, ...]) -> None:
        attributes = dict(zip(self._attributes[metric], labels, strict=True))
        if metric.kind == "counter":
            self._counters[metric].add(value, attributes)
        elif metric.kind == "histogram":
            self._histograms[metric].record(value, attributes)
        else:
            self._up = value

    def _make(self, metric: Metric) -> None:
        name = f"tenure.{metric.name}"
        if metric.kind == "counter":
            self._counters[metric] = self._meter.create_counter(name, "1", metric.text)
        elif metric.kind == "histogram":
            self._histograms[metric] = self._meter.create_histogram(
                name, "s", metric.text, explicit_bucket_boundaries_advisory=metric.buckets
            )
        else:
            self._meter.create_observable_gauge(name, [self._is_up], "1", metric.text)

    def _is_up(self, _: CallbackOptions) -> Iterator[Observation]:
        yield Observation(self._up)

    def _jobs(self, _: CallbackOptions) -> Iterator[Observation]:
        for counts in self._queues():
            for state, number in (("waiting", counts.waiting), ("running", counts.running)):
                yield Observation(number, {"tenure.queue": counts.queue, "tenure.state": state})

    def _ages(self, _: CallbackOptions) -> Iterator[Observation]:
        for counts in self._queues():
            yield Observation(counts.oldest or 0.0, {"tenure.queue": counts.queue})

    def _offset(self, _: CallbackOptions) -> Iterator[Observation]:
        self._refresh()
        if (offset := largest_offset(self._snapshots)) is not None:
            yield Observation(offset)

    def _refresh(self) -> None:
        for snapshot in self._snapshots:
            snapshot.refresh_from_thread(_PATIENCE)

    def _queues(self) -> list[QueueCounts]:
        self._refresh()
        return bounded_queues(
            [counts for snapshot in self._snapshots for counts in snapshot.current()]
        )


class MessagingRecorder:
    """The metrics that the conventions for messaging ask for. Subscribe it to an app."""

    def __init__(self, meter: Meter) -> None:
        self._queues = Bounded(OTHER)
        self._sent = meter.create_counter(
            "messaging.client.sent.messages", "{message}", "Jobs enqueued."
        )
        self._consumed = meter.create_counter(
            "messaging.client.consumed.messages", "{message}", "Attempts begun."
        )
        self._operations = meter.create_histogram(
            "messaging.client.operation.duration",
            "s",
            "How long calls of the store took.",
            explicit_bucket_boundaries_advisory=_SECONDS,
        )
        self._processed = meter.create_histogram(
            "messaging.process.duration",
            "s",
            "How long attempts ran.",
            explicit_bucket_boundaries_advisory=_SECONDS,
        )

    def __call__(self, event: Event) -> None:
        match event:
            case JobEnqueued():
                self._sent.add(1, self._about("send", "send", event.queue))
            case JobStarted():
                self._consumed.add(1, self._about("claim", "receive", event.queue))
            case JobSucceeded() | JobRetried() | JobFailed():
                self._attempt_ended(event)
            case StoreCalled(call=call) if call in _OPERATIONS:
                attributes = about(*_OPERATIONS[call])
                if event.error:
                    attributes[ERROR_TYPE] = event.error
                self._operations.record(event.seconds, attributes)
            case _:
                pass

    def _attempt_ended(self, event: JobSucceeded | JobRetried | JobFailed) -> None:
        if event.seconds <= 0:  # nobody measured an attempt that was lost with its worker
            return
        attributes = dict(self._about("process", "process", event.queue))
        if isinstance(event, JobFailed):
            attributes[ERROR_TYPE] = event.cause
        elif isinstance(event, JobRetried):
            attributes[ERROR_TYPE] = "error"
        self._processed.record(event.seconds, attributes)

    def _about(self, operation: str, kind: str, queue: str) -> Mapping[str, str | int]:
        return about(operation, kind, self._queues(queue))
