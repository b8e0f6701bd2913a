"""Spreads: timers that tick at the same nominal instant need not all run at the same one."""

from __future__ import annotations

from hashlib import blake2b

from tenure.core.calendar.rules import Rule, shortest_distance
from tenure.core.calendar.zones import SECOND
from tenure.core.durations import Duration, micros, seconds
from tenure.errors import ConfigError

__all__ = ["check_spread", "spread_offset"]


def spread_offset(name: str, window_seconds: float) -> int:
    """Return how many microseconds after its ticks a timer runs: from 0 up to the window.

    It depends on the name alone (and not on Python's hash, which differs from process to process),
    so that it is the same on every replica and after every restart.
    """
    window = micros(window_seconds)
    if window <= 0:
        return 0
    drawn = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=16).digest()
    return int.from_bytes(drawn, "big") % window


def check_spread(spread: Duration, rule: Rule, *, now: int) -> float:
    """Return a spread in seconds; raise ConfigError if a tick could be put past the next one."""
    length = seconds(spread, "spread")
    distance = shortest_distance(rule, now)
    if micros(length) >= distance:
        msg = (
            f"spread={spread!r} must be shorter than the time from one tick to the next, which is "
            f"{distance / SECOND:g} s ({rule.words()})."
        )
        raise ConfigError(msg)
    return length
