"""Events: facts worth counting or alerting on, as plain values.

A subscriber is called where the event happens, which may be the keeper's thread: it must be quick
and must not block. What it raises is logged and goes no further.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeAlias

from msgspec import Struct

__all__ = ["Event", "Events", "HoldLost", "LimitsDiffer", "RenewalFailing", "RenewalRestored"]

log = logging.getLogger("tenure")


class HoldLost(Struct, frozen=True):
    """A lease ended before its holder gave it back."""

    name: str
    fence: int
    reason: str


class LimitsDiffer(Struct, frozen=True):
    """Live holders of a semaphore use different limits; the smallest one rules."""

    name: str
    limit: int
    other: int


class RenewalFailing(Struct, frozen=True):
    """Leases could not be renewed; they are trusted until their deadlines. Once per outage."""

    leases: int
    error: str


class RenewalRestored(Struct, frozen=True):
    """Renewals work again after an outage."""

    failures: int


Event: TypeAlias = HoldLost | LimitsDiffer | RenewalFailing | RenewalRestored

_WORTH_A_WARNING = HoldLost | LimitsDiffer | RenewalFailing


class Events:
    """Hands events to the log and to whoever subscribed."""

    def __init__(self) -> None:
        self._subscribers: list[Callable[[Event], None]] = []

    def subscribe(self, subscriber: Callable[[Event], None]) -> None:
        self._subscribers.append(subscriber)

    def emit(self, event: Event) -> None:
        level = logging.WARNING if isinstance(event, _WORTH_A_WARNING) else logging.INFO
        log.log(level, "%s", event)
        for subscriber in self._subscribers:
            try:
                subscriber(event)
            except Exception:
                log.exception("an event subscriber failed on %s", event)
