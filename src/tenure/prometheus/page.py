"""The page that Prometheus reads: as an ASGI app, or from a small server of its own."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, MutableMapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

from prometheus_client import CollectorRegistry, make_asgi_app, start_http_server
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.multiprocess import MultiProcessCollector

from tenure.app import Tenure
from tenure.errors import ConfigError
from tenure.metrics.snapshot import StoreSnapshot
from tenure.prometheus.families import QueueGauges
from tenure.prometheus.instrument import Metrics, instrument
from tenure.prometheus.processes import forget_ended, is_damaged, is_gauge_of_fork

__all__ = ["metrics_app", "serve_metrics"]

log = logging.getLogger("tenure")

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
AsgiApp: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

# The store gets 2 s of it.
_PATIENCE = 3.0


def metrics_app(app: Tenure, registry: CollectorRegistry | None = None) -> AsgiApp:
    """Return an ASGI app that answers with all metrics of the registry of `app`.

    Mount it where only your monitoring can reach it: it asks nobody who they are. It instruments
    the app if `instrument` was not called before. With PROMETHEUS_MULTIPROC_DIR, it shows the
    metrics of all processes that share this folder.
    """
    metrics = instrument(app, registry)
    answer = make_asgi_app(_registry_of_page(metrics))

    async def page(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await metrics.refresh()
        await answer(scope, receive, send)

    return page


@asynccontextmanager
async def serve_metrics(
    app: Tenure, host: str, port: int, folder: str
) -> AsyncIterator[tuple[str, int]]:
    """Answer at this address with the metrics that processes write to `folder`, in a thread.

    Yields the address. Raises ConfigError if it is not free.
    """
    metrics = instrument(app)
    registry = CollectorRegistry()
    registry.register(_Files(folder))
    registry.register(_RefreshedGauges(metrics.snapshot))
    try:
        server, thread = start_http_server(port, host, registry)
    except (OSError, UnicodeError) as error:  # the latter for what can be no name of a host
        reason = getattr(error, "strerror", None) or error
        msg = f"--metrics cannot listen at {host}:{port}: {reason}."
        raise ConfigError(msg) from error
    try:
        yield host, server.server_port
    finally:
        # In a thread: a reader in the middle of the page waits for this loop.
        await asyncio.to_thread(server.shutdown)
        await asyncio.to_thread(server.server_close)
        await asyncio.to_thread(thread.join)
        await metrics.close()


def _registry_of_page(metrics: Metrics) -> CollectorRegistry:
    folder = os.environ.get("PROMETHEUS_MULTIPROC_DIR")
    if not folder:
        return metrics.registry
    registry = CollectorRegistry()
    registry.register(_FilesByPid(folder))
    gauges = QueueGauges()
    gauges.snapshots.append(metrics.snapshot)
    registry.register(gauges)
    return registry


class _Files:
    """The metrics that processes have written to a folder.

    A process may have died in the middle of a file, or may be about to make one. Such a file is
    left out, so that the page has all others. Gauges of processes that a handler has forked are
    left out, too: they begin at 0, and nothing removes them when such a process ends.
    """

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._files: Any = MultiProcessCollector(None, folder)  # type: ignore[no-untyped-call]
        self._reported: set[Path] = set()

    def collect(self) -> Iterator[Metric]:
        files = [file for file in sorted(self._folder.glob("*.db")) if not is_gauge_of_fork(file)]
        try:
            metrics = list(self._files.merge(list(map(str, files))))
        except Exception:  # noqa: BLE001 - whatever is wrong with a file
            metrics = list(self._files.merge(self._whole(files)))
        yield from metrics

    def _whole(self, files: list[Path]) -> list[str]:
        damaged = {file for file in files if is_damaged(file)}
        for file in sorted(damaged - self._reported):
            log.warning("the metrics in %s cannot be read, so the page is without them", file)
        self._reported = damaged
        return [str(file) for file in files if file not in damaged]


class _FilesByPid(_Files):
    """The same for files named by process ids, where no supervisor reports the end of one."""

    def collect(self) -> Iterator[Metric]:
        forget_ended(str(self._folder))
        yield from super().collect()


class _RefreshedGauges(QueueGauges):
    """The gauges of the store, refreshed on the event loop of the app from the server's thread."""

    def __init__(self, snapshot: StoreSnapshot) -> None:
        super().__init__()
        self.snapshots.append(snapshot)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        for snapshot in self.snapshots:
            snapshot.refresh_from_thread(_PATIENCE)
        yield from super().collect()
