"""The metrics of Tenure as objects of prometheus_client, one set for each registry."""

from __future__ import annotations

import weakref
from collections.abc import Iterator

import prometheus_client.values
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily

from tenure.metrics.definitions import METRICS, Metric
from tenure.metrics.lowest import Lowest, Owner
from tenure.metrics.recorder import Write
from tenure.metrics.snapshot import StoreSnapshot, bounded_queues, largest_offset
from tenure.prometheus.reserved_file import use_reserved_files

__all__ = ["Families", "QueueGauges", "families_of"]


class Families:
    """The metrics of one registry. All apps that use it share them."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        if prometheus_client.values.ValueClass is not prometheus_client.values.MutexValue:
            use_reserved_files()  # several processes share a folder
        self._up = Lowest()
        self._made = {metric: self._make(metric) for metric in METRICS}
        self.queues = QueueGauges()
        registry.register(self.queues)

    def of_app(self) -> Write:
        """Return what adds the values of one app to the metrics."""
        owner = Owner()

        def write(metric: Metric, value: float, labels: tuple[str, ...]) -> None:
            if metric.kind == "gauge":
                value = self._up.with_value(owner, value)
            self.write(metric, value, labels)

        return write

    def write(self, metric: Metric, value: float, labels: tuple[str, ...]) -> None:
        family = self._made[metric]
        if labels:
            family = family.labels(*labels)
        if isinstance(family, Counter):
            family.inc(value)
        elif isinstance(family, Histogram):
            family.observe(value)
        else:
            family.set(value)

    def _make(self, metric: Metric) -> Counter | Gauge | Histogram:
        name = "tenure_" + metric.name.replace(".", "_")
        text, labels, registry = metric.text, metric.labels, self._registry
        if metric.kind == "counter":
            return Counter(f"{name}_total", text, labels, registry=registry)
        if metric.kind == "histogram":
            name = f"{name}_seconds"
            return Histogram(name, text, labels, registry=registry, buckets=metric.buckets)
        # Of several processes, the lowest: one that cannot reach the store counts.
        gauge = Gauge(name, text, labels, registry=registry, multiprocess_mode="livemin")
        gauge.set(1)  # a process that has not called the store has found nothing wrong with it
        return gauge


class QueueGauges:
    """The collector of the gauges of the store; without a sample if there is nothing to show."""

    def __init__(self) -> None:
        self.snapshots: list[StoreSnapshot] = []

    def collect(self) -> Iterator[GaugeMetricFamily]:
        jobs = GaugeMetricFamily(
            "tenure_queue_jobs", "Jobs of each queue.", labels=("queue", "state")
        )
        oldest = GaugeMetricFamily(
            "tenure_queue_oldest_age_seconds",
            "How long the oldest due job of a queue has been due.",
            labels=("queue",),
        )
        all_counts = [counts for snapshot in self.snapshots for counts in snapshot.current()]
        for counts in bounded_queues(all_counts):
            jobs.add_metric((counts.queue, "waiting"), counts.waiting)
            jobs.add_metric((counts.queue, "running"), counts.running)
            oldest.add_metric((counts.queue,), counts.oldest or 0.0)
        clock = GaugeMetricFamily(
            "tenure_clock_offset_seconds", "How far the store's clock is ahead of this host's."
        )
        if (offset := largest_offset(self.snapshots)) is not None:
            clock.add_metric((), offset)
        yield jobs
        yield oldest
        yield clock


_families: weakref.WeakKeyDictionary[CollectorRegistry, Families] = weakref.WeakKeyDictionary()


def families_of(registry: CollectorRegistry) -> Families:
    """Return the metrics of a registry, made at the first call."""
    families = _families.get(registry)
    if families is None:
        families = _families[registry] = Families(registry)
    return families
