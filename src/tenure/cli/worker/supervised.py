"""Runs a supervisor: waits for the store, then keeps worker processes running until a signal."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from tenure.app import Tenure
from tenure.cli.text import duration
from tenure.cli.worker.metrics import MetricsPage
from tenure.cli.worker.startup import begin
from tenure.jobs.worker import Signals
from tenure.supervisor import Supervisor, SupervisorOptions, check_platform
from tenure.supervisor.child import show_stacks_at_signal
from tenure.supervisor.health import serve_health
from tenure.supervisor.spec import ChildSpec

__all__ = ["supervise"]

log = logging.getLogger("tenure")


async def supervise(
    app: Tenure,
    spec: ChildSpec,
    options: SupervisorOptions,
    health: Path | None,
    page: MetricsPage | None = None,
) -> int:
    """Run until a signal stops it, and return the exit code."""
    loop = asyncio.get_running_loop()
    check_platform()
    show_stacks_at_signal()
    start = _Start(app)
    signals = Signals()

    def stop(number: signal.Signals) -> None:
        if not signals.counts():
            return
        meaning = (
            f"stopping within {duration(spec.grace)}; send the signal again to hand all jobs back "
            "at once"
        )
        if start.is_stopping:
            meaning = "handing running jobs back"
        log.info("%s: %s", number.name, meaning)
        start.stop()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup has it
            loop.add_signal_handler(number, stop, number)
    async with AsyncExitStack() as stack:
        await begin(app)
        stack.push_async_callback(app.close)
        if health is not None:
            await stack.enter_async_context(serve_health(health, start.status))
        if page is not None:
            await stack.enter_async_context(page.served())
        if not await start.reach_store():
            return 0
        start.supervisor = supervisor = Supervisor(app, spec, options)
        await supervisor.run()
    return supervisor.exit_code


class _Start:
    """The time before there is a supervisor: it needs a store, which may be down.

    Signals and health checks work from the beginning, so they come here and are passed on.
    """

    def __init__(self, app: Tenure) -> None:
        self._app = app
        self._stopped = asyncio.Event()
        self.supervisor: Supervisor | None = None

    @property
    def is_stopping(self) -> bool:
        return self._stopped.is_set()

    def stop(self) -> None:
        self._stopped.set()
        if self.supervisor is not None:
            self.supervisor.stop()

    async def reach_store(self) -> bool:
        """Return True when the store was reached, False if stopped before."""
        ready = asyncio.ensure_future(self._app.ready())
        stopped = asyncio.ensure_future(self._stopped.wait())
        try:
            await asyncio.wait((ready, stopped), return_when=asyncio.FIRST_COMPLETED)
            if ready.done():
                ready.result()
            return ready.done() and not self._stopped.is_set()
        finally:
            ready.cancel()
            stopped.cancel()

    def status(self) -> dict[str, Any]:
        """Return the answer to a health check."""
        if self.supervisor is not None:
            return self.supervisor.status()
        return {
            "pid": os.getpid(),
            "stopping": self.is_stopping,
            "ready": False,
            "waiting_for_store": not self._app.is_ready,
            "last_beat_seconds_ago": None,
            "children": [],
        }
