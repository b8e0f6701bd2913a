"""Events of locks, semaphores and elections, and of the renewals of their leases."""

from __future__ import annotations

import logging

from tenure.core.safe_text import safe
from tenure.observe.base import BaseEvent

__all__ = ["HoldLost", "LimitsDiffer", "RanUnlocked", "RenewalFailing", "RenewalRestored"]


class HoldLost(BaseEvent, frozen=True):
    """A lease ended before its holder released it."""

    name: str
    fence: int
    reason: str

    @property
    def fields(self) -> dict[str, object]:
        return {"lock": self.name, "fence": self.fence}


class LimitsDiffer(BaseEvent, frozen=True):
    """Live holders of a semaphore use different limits; the smallest one applies."""

    name: str
    limit: int
    other: int

    @property
    def fields(self) -> dict[str, object]:
        return {"lock": self.name}


class RanUnlocked(BaseEvent, frozen=True):
    """A function ran without its lock, because of on_unavailable="run". Emitted for each run."""

    name: str
    error: str

    def __str__(self) -> str:
        return (
            f"with_lock({safe(self.name)!r}) ran its function without the lock, as "
            f"on_unavailable='run' asks: {safe(self.error)} Other replicas may have run it, too."
        )


class RenewalFailing(BaseEvent, frozen=True):
    """Leases could not be renewed; they are trusted until their deadlines. Once per outage."""

    leases: int
    error: str


class RenewalRestored(BaseEvent, frozen=True):
    """Renewals work again after an outage."""

    failures: int

    @property
    def level(self) -> int:
        return logging.INFO
