"""`tenure worker --metrics`: one page for Prometheus with the metrics of all processes of a worker.

The processes write to files in a temporary folder, which a thread of this process reads and serves.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from typing import Any

from tenure.app import Tenure
from tenure.errors import ConfigError
from tenure.supervisor.app_finder import load_app
from tenure.supervisor.spec import MetricsFiles

__all__ = ["MetricsPage", "metrics_page"]

log = logging.getLogger("tenure")


class MetricsPage:
    """The page of a worker, and the folder from which it is made."""

    def __init__(self, host: str, port: int, folder: str) -> None:
        self.files = MetricsFiles(folder)
        self._address = host, port
        self._app: Tenure | None = None

    def load(self, name: str) -> Tenure:
        """Import the app, and count its events in this process as well."""
        from tenure.prometheus import instrument  # noqa: PLC0415 - an extra package

        self._app = app = load_app(name)
        instrument(app)
        return app

    @asynccontextmanager
    async def served(self) -> AsyncIterator[None]:
        """Answer inside the block. Raises ConfigError if the address is not free."""
        from tenure.prometheus.page import serve_metrics  # noqa: PLC0415 - as above

        assert self._app is not None, "the app is loaded first"
        async with serve_metrics(self._app, *self._address, self.files.folder) as (host, port):
            shown = f"[{host}]" if ":" in host else host
            log.info("metrics at http://%s:%d/metrics", shown, port)
            yield

    async def serve_while(self, work: Coroutine[Any, Any, object]) -> None:
        """Answer until some work is done."""
        try:
            async with self.served():
                await work
        finally:
            work.close()  # it has not begun if the address is taken


@contextmanager
def metrics_page(host: str, port: int) -> Iterator[MetricsPage]:
    """Make the folder for the metrics. Enter it before the modules of the app are imported."""
    try:
        from tenure.prometheus.processes import metrics_folder  # noqa: PLC0415 - as above
    except ModuleNotFoundError as error:
        if error.name != "prometheus_client":
            raise
        msg = f"--metrics needs an extra package: {error}."
        raise ConfigError(msg) from error
    with ExitStack() as stack:
        try:
            folder = stack.enter_context(metrics_folder())
        except OSError as error:
            msg = (
                f"--metrics needs a folder for temporary files: {error.strerror or error}. Set "
                "TMPDIR to one that this user can write to."
            )
            raise ConfigError(msg) from error
        yield MetricsPage(host, port, folder)
