"""What options take beside plain text and numbers."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import datetime, time, timedelta

import click

from tenure.core.clock import SystemClock
from tenure.core.durations import Duration, seconds
from tenure.core.ids import is_job_id
from tenure.core.jobs.shares import check_weights
from tenure.core.jobs.view import as_datetime
from tenure.core.leases import check_name
from tenure.core.sizes import size
from tenure.errors import ConfigError

__all__ = ["a_number", "bytes_", "cursor", "name", "names", "point_in_time", "queues", "span"]


# A worker process with nothing in it takes 30 MB.
_LEAST_MEMORY = 40_000_000


def span(_context: click.Context, _option: click.Parameter, given: str | None) -> float | None:
    """Return a time in seconds."""
    if given is None:
        return None
    try:
        return seconds(a_number(given), "it")
    except ConfigError:
        msg = f"{given!r} is no time; write seconds (30), or 250ms, 30s, 1h30m."
        raise click.BadParameter(msg) from None


def point_in_time(
    _context: click.Context, _option: click.Parameter, given: str | None
) -> datetime | float | None:
    """Return a moment to come, or the seconds until then. A time of day is the next one here."""
    if given is None:
        return None
    now = as_datetime(SystemClock().wall())
    length: float | None = None
    with suppress(ConfigError):
        length = seconds(a_number(given), "it")
    try:
        moment = now if length is not None else _moment(given, now)
    except (ValueError, OverflowError):
        msg = f"{given!r} is neither a time such as 2h nor a moment: 18:00, 2026-12-01T06:00+01:00."
        raise click.BadParameter(msg) from None
    if length == 0 or (length is None and moment <= now):
        msg = f"{given!r} is not in the future."
        raise click.BadParameter(msg)
    return moment if length is None else length


def _moment(given: str, now: datetime) -> datetime:
    """Return the moment that is written there: in the zone of this machine if it names none."""
    found = re.fullmatch(r"(\d{1,2}):(\d{2})(?::(\d{2}))?", given)
    if found is None:
        moment = datetime.fromisoformat(given)
        return moment if moment.utcoffset() is not None else moment.astimezone()
    hour, minute, second = (int(part or 0) for part in found.groups())
    today = now.astimezone().date()
    # Without a zone until the end: the clocks may change before then.
    wanted = datetime.combine(today, time(hour, minute, second))
    if wanted.astimezone() <= now:
        wanted += timedelta(days=1)
    return wanted.astimezone()


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


def queues(
    context: click.Context, option: click.Parameter, given: str | None
) -> tuple[str, ...] | dict[str, int] | None:
    """Return queues in their order, or with their weights if one has a weight."""
    parts = names(context, option, given)
    if any(part.partition("=")[0].strip() == "*" for part in parts or ()):
        msg = (
            "'*' does not stand for all queues. Name each one, or leave the option out to serve "
            "the queues of all declared tasks."
        )
        raise click.BadParameter(msg)
    if parts is None or not any("=" in part for part in parts):
        return parts
    weights: dict[str, int] = {}
    for part in parts:
        queue, _, weight = part.partition("=")
        if not weight.strip().isdecimal() and "=" in part:
            msg = f"{part!r} has no weight: write queues with whole numbers, such as mail=3,bulk=1."
            raise click.BadParameter(msg)
        weights[queue.strip()] = int(weight or 1)
    try:
        check_weights(weights)
    except ConfigError as error:
        raise click.BadParameter(str(error)) from None
    return weights


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


def a_number(text: str) -> Duration:
    """Return seconds if it is a bare number, else the text as it is."""
    try:
        return float(text)
    except ValueError:
        return text
