"""Spreads: delays that keep timers with the same nominal ticks from running all at once."""

from __future__ import annotations

from hashlib import blake2b

from tenure.core.calendar.rules import Rule, shortest_distance
from tenure.core.calendar.zones import SECOND
from tenure.core.durations import Duration, micros, seconds
from tenure.errors import ConfigError

__all__ = ["check_spread", "spread_offset"]


def spread_offset(name: str, window_seconds: float) -> int:
    """Return the delay of a timer's runs in microseconds, from 0 up to the window.

    It is derived from the name, so it is the same on every replica and after every restart. It does
    not use Python's hash, which differs between processes.
    """
    window = micros(window_seconds)
    if window <= 0:
        return 0
    drawn = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=16).digest()
    return int.from_bytes(drawn, "big") % window


def check_spread(spread: Duration, rule: Rule, *, now: int) -> float:
    """Return a spread in seconds. Raises ConfigError if it could move a tick past the next one."""
    length = seconds(spread, "spread")
    distance = shortest_distance(rule, now)
    if micros(length) >= distance:
        msg = (
            f"spread={spread!r} must be shorter than the time from one tick to the next, which is "
            f"{distance / SECOND:g} s ({rule.words()})."
        )
        raise ConfigError(msg)
    return length
