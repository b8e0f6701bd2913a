"""`tenure doctor --probe`: the health of the store and its workers, for probes and scripts."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Final

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


def _lines(health: Health) -> Iterator[RenderableType]:
    yield Text(health.status, _STYLES[health.status])
    yield table(_rows(health))


def _rows(health: Health) -> Iterator[list[Cell]]:
    for check in health.checks:
        style = _STYLES[check.status]
        yield [Text(check.status, style), check.name, Text(safe(check.detail))]
