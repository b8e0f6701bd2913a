"""What options take beside plain text and numbers."""

from __future__ import annotations

import click

from tenure.core.durations import Duration, seconds
from tenure.core.ids import is_job_id
from tenure.core.model import check_name
from tenure.core.sizes import size
from tenure.errors import ConfigError

__all__ = ["bytes_", "cursor", "name", "names", "span"]


# A worker process with nothing in it takes 30 MB.
_LEAST_MEMORY = 40_000_000


def span(_context: click.Context, _option: click.Parameter, given: str | None) -> float | None:
    """Return a time in seconds."""
    if given is None:
        return None
    try:
        return seconds(_number(given), "it")
    except ConfigError:
        msg = f"{given!r} is no time; write seconds (30), or 250ms, 30s, 1h30m."
        raise click.BadParameter(msg) from None


def name(_context: click.Context, _option: click.Parameter, given: str | None) -> str | None:
    """Return a name that something can have."""
    if given is None:
        return None
    try:
        return check_name(given, "it")
    except ConfigError as error:
        raise click.BadParameter(str(error)) from None


def cursor(_context: click.Context, _option: click.Parameter, given: str | None) -> str | None:
    """Return where an earlier list of jobs ended."""
    if given is None or is_job_id(given):
        return given
    msg = f"{given!r} is none; it stands at the end of the list before."
    raise click.BadParameter(msg)


def bytes_(_context: click.Context, _option: click.Parameter, given: str | None) -> int | None:
    """Return a size in bytes."""
    if given is None:
        return None
    try:
        return size(given, "it", minimum=_LEAST_MEMORY)
    except ConfigError:
        msg = f"{given!r} is no size of a process; write 500MB, 1.5GiB, at least 40MB."
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
