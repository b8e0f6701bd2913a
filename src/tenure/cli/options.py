"""Reads option values beside plain text and numbers: lengths of time, instants, names, sizes.

Each function is a click callback: it returns the value, or raises BadParameter with the accepted
forms.
"""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import datetime, time, timedelta

import click

from tenure.core.clock import SystemClock
from tenure.core.durations import Duration, seconds
from tenure.core.ids import is_job_id
from tenure.core.jobs.queue_shares import check_weights
from tenure.core.jobs.view import as_datetime
from tenure.core.leases import check_name
from tenure.core.sizes import size
from tenure.errors import ConfigError

__all__ = [
    "address",
    "cursor",
    "memory",
    "name",
    "names",
    "number_or_text",
    "point_in_time",
    "queues",
    "span",
]


# A worker process with nothing in it takes 30 MB.
_LEAST_MEMORY = 40_000_000
_PORT_MAX = 65_535


def span(_context: click.Context, _option: click.Parameter, text: str | None) -> float | None:
    """Return a length of time in seconds."""
    if text is None:
        return None
    try:
        return seconds(number_or_text(text), "it")
    except ConfigError:
        msg = f"{text!r} is not a length of time. Write seconds (30), or 250ms, 30s, 1h30m."
        raise click.BadParameter(msg) from None


def point_in_time(
    _context: click.Context, _option: click.Parameter, text: str | None
) -> datetime | float | None:
    """Return a future instant, or the seconds until then. A time of day is the next one here."""
    if text is None:
        return None
    now = as_datetime(SystemClock().wall())
    length: float | None = None
    with suppress(ConfigError):
        length = seconds(number_or_text(text), "it")
    try:
        moment = now if length is not None else _moment(text, now)
    except (ValueError, OverflowError):
        msg = (
            f"{text!r} is neither a length of time such as 2h nor an instant such as 18:00 or "
            "2026-12-01T06:00+01:00."
        )
        raise click.BadParameter(msg) from None
    if length == 0 or (length is None and moment <= now):
        msg = f"{text!r} is not in the future."
        raise click.BadParameter(msg)
    return moment if length is None else length


def _moment(text: str, now: datetime) -> datetime:
    """Return the instant that is written there, in the zone of this machine if it names none."""
    time_of_day = re.fullmatch(r"(\d{1,2}):(\d{2})(?::(\d{2}))?", text)
    if time_of_day is None:
        moment = datetime.fromisoformat(text)
        return moment if moment.utcoffset() is not None else moment.astimezone()
    hour, minute, second = (int(part or 0) for part in time_of_day.groups())
    today = now.astimezone().date()
    # Without a zone until the end: the clocks may change before then.
    moment = datetime.combine(today, time(hour, minute, second))
    if moment.astimezone() <= now:
        moment += timedelta(days=1)
    return moment.astimezone()


def name(_context: click.Context, _option: click.Parameter, text: str | None) -> str | None:
    """Return a valid name."""
    if text is None:
        return None
    try:
        return check_name(text, "it")
    except ConfigError as error:
        raise click.BadParameter(str(error)) from None


def cursor(_context: click.Context, _option: click.Parameter, text: str | None) -> str | None:
    """Return where an earlier list of jobs ended."""
    if text is None or is_job_id(text):
        return text
    msg = f"{text!r} is not a cursor. Copy the one below the list before."
    raise click.BadParameter(msg)


def memory(_context: click.Context, _option: click.Parameter, text: str | None) -> int | None:
    """Return the memory of a process in bytes."""
    if text is None:
        return None
    try:
        return size(text, "it", minimum=_LEAST_MEMORY)
    except ConfigError:
        msg = f"{text!r} is not the memory of a process. Write 500MB or 1.5GiB, at least 40MB."
        raise click.BadParameter(msg) from None


def address(
    _context: click.Context, _option: click.Parameter, text: str | None
) -> tuple[str, int] | None:
    """Return the host and port to listen at. A port alone is one of this machine only."""
    if text is None:
        return None
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > _PORT_MAX:
        msg = f"{text!r} is not an address. Write a host and a port, such as 127.0.0.1:9464."
        raise click.BadParameter(msg)
    return host.removeprefix("[").removesuffix("]") or "127.0.0.1", int(port)


def queues(
    context: click.Context, option: click.Parameter, text: str | None
) -> tuple[str, ...] | dict[str, int] | None:
    """Return queues in strict order, or with weights if any of them has one."""
    parts = names(context, option, text)
    if any(part.partition("=")[0].strip() == "*" for part in parts or ()):
        msg = (
            "'*' does not mean all queues. Name each queue, or leave the option out to serve the "
            "queues of all declared tasks."
        )
        raise click.BadParameter(msg)
    if parts is None or not any("=" in part for part in parts):
        return parts
    weights: dict[str, int] = {}
    for part in parts:
        queue, _, weight = part.partition("=")
        if not weight.strip().isdecimal() and "=" in part:
            msg = f"{part!r} has no weight. Write whole numbers, such as mail=3,bulk=1."
            raise click.BadParameter(msg)
        weights[queue.strip()] = int(weight or 1)
    try:
        check_weights(weights)
    except ConfigError as error:
        raise click.BadParameter(str(error)) from None
    return weights


def names(
    _context: click.Context, _option: click.Parameter, text: str | None
) -> tuple[str, ...] | None:
    """Return names that are separated by commas, in their order."""
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        msg = "it names nothing."
        raise click.BadParameter(msg)
    try:
        return tuple(dict.fromkeys(check_name(part, "it") for part in parts))
    except ConfigError as error:
        raise click.BadParameter(str(error)) from None


def number_or_text(text: str) -> Duration:
    """Return seconds if the text is a bare number, else the text as it is."""
    try:
        return float(text)
    except ValueError:
        return text
