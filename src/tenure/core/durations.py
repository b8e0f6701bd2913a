"""Durations as users write them: seconds, a timedelta, or text such as "250ms" or "1h30m".

`until` of every pause is such a duration, counted from now, or a datetime with a time zone.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TypeAlias

from tenure.errors import ConfigError

__all__ = ["Duration", "Until", "age", "duration", "instant", "micros", "seconds"]

Duration: TypeAlias = float | int | timedelta | str

Until: TypeAlias = datetime | Duration | None
"""The end of a pause: an instant, a duration from now, or None for no end."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_UNITS = {"ms": 0.001, "s": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_SHOWN = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))
_MILLISECONDS_TO = 0.9995
_TENTHS_TO = 9.95
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|min|m|h|d|w)")
_WHOLE = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|s|min|m|h|d|w))+")


def seconds(
    value: Duration, what: str, *, minimum: float = 0.0, maximum: float = math.inf
) -> float:
    """Return `value` in seconds. Raises ConfigError unless it is finite and within the bounds.

    `what` names the argument in the message.
    """
    length = _length(value, what)
    if not math.isfinite(length):
        msg = f"{what} must be a finite time, not {value!r}."
        raise ConfigError(msg)
    if length < minimum:
        msg = f"{what} must be at least {minimum:g} s, not {value!r}."
        raise ConfigError(msg)
    if length > maximum:
        days = maximum / _UNITS["d"]
        most = f"{days:,.0f} days" if days >= 1 else f"{maximum:g} s"
        msg = f"{what} must be at most {most}, not {value!r}."
        raise ConfigError(msg)
    return length


def micros(length: float) -> int:
    """Return seconds as whole microseconds, the unit of instants in stores."""
    return round(length * 1_000_000)


def instant(until: datetime | Duration, now: int, *, maximum: float = math.inf) -> int:
    """Return the instant in microseconds at which a pause ends that begins `now`."""
    if not isinstance(until, datetime):
        return now + micros(seconds(until, "until", maximum=maximum))
    if until.utcoffset() is None:
        msg = (
            f"until={until.isoformat()} has no time zone. Use datetime.now(UTC) + ..., give it a "
            "tzinfo, or say for how long: until='2h'."
        )
        raise ConfigError(msg)
    return (until - _EPOCH) // timedelta(microseconds=1)


def duration(length: float) -> str:
    """Return seconds as text for people, in at most two units: "26 ms", "4.1 s", "2 min 5 s".

    The pages of the dashboard write the same, see `duration` in its `format.js`.
    """
    if length <= 0:
        return "0 s"
    if length < _MILLISECONDS_TO:
        return f"{length * 1000:.0f} ms"
    if length < _TENTHS_TO:
        return f"{length:.1f}".removesuffix(".0") + " s"
    whole = round(length)
    for (unit, size), (smaller, part) in pairwise(_SHOWN):
        count, rest = whole // size, whole % size // part
        if count:
            return f"{count} {unit} {rest} {smaller}" if rest else f"{count} {unit}"
    return f"{whole} s"


def age(length: float) -> str:
    """Return how long ago something was, in one unit: lists that count seconds are restless."""
    return " ".join(duration(length).split()[:2])


def _length(value: Duration, what: str) -> float:
    # bool is an int to Python; ttl=True is a mistake, not one second.
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, str) and _WHOLE.fullmatch(text := value.replace(" ", "")):
        return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))
    msg = (
        f"{what} must be seconds (30), a timedelta, or text such as '250ms', '1h30m' or '7d', "
        f"not {value!r}."
    )
    raise ConfigError(msg)
