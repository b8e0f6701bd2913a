"""`instrument`: connects the events of an app with the metrics of a registry, once per app."""

from __future__ import annotations

import weakref

from prometheus_client import REGISTRY, CollectorRegistry

from tenure.app import Tenure
from tenure.errors import ConfigError
from tenure.metrics.lateness import warn_if_open
from tenure.metrics.recorder import LockLabel, Recorder
from tenure.metrics.snapshot import StoreSnapshot, snapshot_of
from tenure.prometheus.families import families_of
from tenure.prometheus.processes import kept_labels

__all__ = ["Metrics", "instrument"]


class Metrics:
    """The metrics of one app."""

    def __init__(self, snapshot: StoreSnapshot, registry: CollectorRegistry) -> None:
        self.registry = registry
        self.snapshot = snapshot

    async def refresh(self) -> None:
        """Count the jobs of all queues, if this replica is the one to do so.

        `metrics_app` does it by itself. Call it before you read the registry in another way, on the
        event loop of the app. It asks the store at most every 5 s, and raises no error.
        """
        await self.snapshot.refresh()

    async def close(self) -> None:
        """Let another replica count the queues from now on. Call it before you close the app.

        Without it, another replica takes over within 30 s, as after a crash.
        """
        await self.snapshot.close()


_instrumented: weakref.WeakKeyDictionary[Tenure, Metrics] = weakref.WeakKeyDictionary()


def instrument(
    app: Tenure,
    registry: CollectorRegistry | None = None,
    *,
    lock_label: LockLabel | None = None,
) -> Metrics:
    """Count the events of an app in Prometheus metrics. Call it before you open the app.

    A second call for the same app returns the same metrics.

    Args:
        app: the app. Its clones for other event loops are counted as well.
        registry: where the metrics belong; by default, the global registry of prometheus_client.
        lock_label: what to write in the label `lock` for the name of a lock. By default, the text
            before the first colon. Names may hold ids, so they are never used whole.

    Raises ConfigError if the app is instrumented already in another way.
    """
    metrics = _instrumented.get(app)
    if metrics is not None:
        if (registry is None or registry is metrics.registry) and lock_label is None:
            return metrics
        msg = (
            f"{app!r} has metrics already. Call instrument() with a registry or a lock_label once, "
            "before metrics_app()."
        )
        raise ConfigError(msg)
    warn_if_open(app)
    registry = registry or REGISTRY
    families = families_of(registry)
    metrics = _instrumented[app] = Metrics(snapshot_of(app), registry)
    families.queues.snapshots.append(metrics.snapshot)
    recorder = Recorder(families.of_app(), lock_label)
    for labels in kept_labels():
        recorder.remember(labels)
    app.on_event(recorder)
    return metrics
