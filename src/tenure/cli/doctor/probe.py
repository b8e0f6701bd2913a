"""`tenure doctor --probe`: the health of the store and its workers, for probes and scripts."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, Final, ParamSpec, TypeVar

import click
from rich.console import RenderableType
from rich.text import Text

from tenure.app import Tenure
from tenure.app.health import unreachable, within
from tenure.cli.tables import Cell, table
from tenure.cli.target import Target
from tenure.cli.text import safe
from tenure.core.clock import SystemClock
from tenure.core.health import Health, HealthStatus
from tenure.errors import TenureError

__all__ = ["probe"]

P = ParamSpec("P")
T = TypeVar("T")

_EXIT_CODES: Final[dict[HealthStatus, int]] = {"healthy": 0, "degraded": 1, "unhealthy": 2}
_STYLES = {
    "healthy": "green",
    "degraded": "bold yellow",
    "unhealthy": "bold red",
    "unknown": "cyan",
}
# How long connections may take to close when the answer is there.
_CLOSE_PATIENCE: Final = 0.5


def probe(target: Target, *, timeout: float, require: str) -> None:
    """Show the health, and exit with 0 if healthy, 1 if degraded, 2 if unhealthy."""
    health = asyncio.run(_look(target, timeout, require))
    store = target.store()
    document = {**target.about(store), **health.document()}
    target.screen.answer(document, *_lines(health))
    raise click.exceptions.Exit(_EXIT_CODES[health.status])


async def _look(target: Target, timeout: float, require: str) -> Health:
    clock = SystemClock()
    began = clock.boot()
    asyncio.get_running_loop().set_default_executor(_DaemonThreads())
    # TENURE_REQUIRE, TENURE_SCOPE and TENURE_CONNECT are for services, not for operators.
    own: dict[str, Any] = {"require": require, "scope": "process", "connect": "eager"}
    app = Tenure(target.store(), namespace=target.namespace, migrate="check", **own)
    opening = await within(clock, timeout, app.open())
    if opening is None:
        return unreachable(f"no answer within {timeout:g} s")
    error = opening.exception()
    if isinstance(error, TenureError):
        return unreachable(str(error))
    if error is not None:
        raise error
    left = max(timeout - (clock.boot() - began), 0.001)
    health = await app.health(left)
    await within(clock, _CLOSE_PATIENCE, app.close())
    return health


class _DaemonThreads(ThreadPoolExecutor):
    """Runs calls in threads that do not keep the process alive.

    The name of a server is looked up in such a thread. If the name server is silent, that takes up
    to half a minute, and `asyncio.run` as well as Python itself would wait for the usual threads.
    """

    def submit(
        self, fn: Callable[P, T], /, *arguments: P.args, **options: P.kwargs
    ) -> concurrent.futures.Future[T]:
        future: concurrent.futures.Future[T] = concurrent.futures.Future()

        def run() -> None:
            try:
                value = fn(*arguments, **options)
            except BaseException as error:  # noqa: BLE001 - for the caller, as in any executor
                outcome = partial(future.set_exception, error)
            else:
                outcome = partial(future.set_result, value)
            with suppress(concurrent.futures.InvalidStateError):  # the caller has given up
                outcome()

        threading.Thread(target=run, daemon=True).start()
        return future


def _lines(health: Health) -> Iterator[RenderableType]:
    yield Text(health.status, _STYLES[health.status])
    yield table(_rows(health))


def _rows(health: Health) -> Iterator[list[Cell]]:
    for check in health.checks:
        style = _STYLES[check.status]
        yield [Text(check.status, style), check.name, Text(safe(check.detail))]
