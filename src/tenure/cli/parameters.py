"""What options take beside plain text and numbers."""

from __future__ import annotations

import click

from tenure.core.durations import Duration, seconds
from tenure.core.model import check_name
from tenure.errors import ConfigError

__all__ = ["names", "span"]


def span(_context: click.Context, _option: click.Parameter, given: str | None) -> float | None:
    """Return a time in seconds."""
    if given is None:
        return None
    try:
        return seconds(_number(given), "it")
    except ConfigError:
        msg = f"{given!r} is no time; write seconds (30), or 250ms, 30s, 1h30m."
        raise click.BadParameter(msg) from None


def names(
    _context: click.Context, _option: click.Parameter, given: str | None
) -> tuple[str, ...] | None:
    """Return names that are separated by commas, in their order."""
    if given is None:
        return None
    parts = [part.strip() for part in given.split(",") if part.strip()]
    if not parts:
        msg = "it names nothing."
        raise click.BadParameter(msg)
    try:
        return tuple(dict.fromkeys(check_name(part, "it") for part in parts))
    except ConfigError as error:
        raise click.BadParameter(str(error)) from None


def _number(text: str) -> Duration:
    try:
        return float(text)
    except ValueError:
        return text
