"""Ticks as people see them."""

from datetime import datetime
from zoneinfo import ZoneInfo

from tenure.core.calendar.rules import Rule
from tenure.core.calendar.zones import instant_of
from tenure.core.jobs.view import as_datetime


def at(text: str, zone: str = "UTC") -> int:
    """Return the instant at which clocks in a zone show this, the first time."""
    return instant_of(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)))


def coming(rule: Rule, instant: int, ticks: int) -> list[str]:
    """Return the next ticks as people in the rule's zone see them."""
    zone = ZoneInfo(getattr(rule, "zone", "UTC"))
    texts = []
    for _ in range(ticks):
        instant = rule.next_after(instant)
        texts.append(as_datetime(instant).astimezone(zone).isoformat(timespec="minutes"))
    return texts


def gone(rule: Rule, instant: int, ticks: int) -> list[int]:
    instants = []
    for _ in range(ticks):
        instants.append(rule.last_at(instant))
        instant = instants[-1] - 1
    return instants
