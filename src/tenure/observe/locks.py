"""Events of locks, semaphores and elections, and of the renewals of their leases."""

from __future__ import annotations

import logging

from tenure.core.durations import duration
from tenure.core.safe_text import safe
from tenure.observe.base import BaseEvent, Detail, sentence

__all__ = [
    "HoldLost",
    "LimitsDiffer",
    "LockAcquired",
    "LockHeldLong",
    "LockRefused",
    "LockReleased",
    "LockTakenOver",
    "LockTimedOut",
    "RanUnlocked",
    "RenewalFailing",
    "RenewalRestored",
]


class LockEvent(BaseEvent, frozen=True):
    """What all events about one lock or semaphore have in common."""

    name: str

    @property
    def fields(self) -> dict[str, object]:
        return {"lock": self.name, "fence": getattr(self, "fence", None)}


class LockAcquired(Detail, LockEvent, frozen=True):
    """This process holds a lock, or a place of a semaphore."""

    fence: int
    limit: int = 1
    waited: float = 0.0
    """Seconds from the call to the grant."""

    @property
    def line(self) -> str:
        waited = duration(self.waited)
        return f"lock {safe(self.name)!r} acquired after {waited}, fence {self.fence}"


class LockRefused(Detail, LockEvent, frozen=True):
    """A caller that does not wait did not get the lock: others hold it, or wait for it."""

    limit: int = 1

    @property
    def line(self) -> str:
        return f"lock {safe(self.name)!r} refused: others hold it"


class LockTimedOut(Detail, LockEvent, frozen=True):
    """A caller stopped waiting for a lock, because its `wait` was over.

    Not sent if the caller was cancelled, also by an `asyncio.timeout` of its own.
    """

    limit: int = 1
    waited: float = 0.0

    @property
    def line(self) -> str:
        waited = duration(self.waited)
        return f"lock {safe(self.name)!r} timed out after {waited}: others hold it"


class LockReleased(Detail, LockEvent, frozen=True):
    """A holder has released its lock in time. `HoldLost` reports one that it had lost before.

    Sent as well if the store could not be reached: the lease then ends with its ttl.
    """

    fence: int
    held: float = 0.0
    """Seconds from the grant to the release; `min_hold` keeps others out for longer."""

    @property
    def line(self) -> str:
        held = duration(self.held)
        return f"lock {safe(self.name)!r} released after {held}, fence {self.fence}"


class LockTakenOver(LockEvent, frozen=True):
    """A lock was acquired whose last holder never released it. Comes after `LockAcquired`.

    The process of that holder has died, could not reach the store, or has dropped the hold. Not
    reported if the store's answer to the acquisition is lost: its repeat no longer says so.
    """

    fence: int
    """The fence of the new holder."""

    @property
    def level(self) -> int:
        return logging.INFO

    @property
    def line(self) -> str:
        return (
            f"lock {safe(self.name)!r} taken over with fence {self.fence}: its last holder did not "
            "release it, so its lease expired"
        )


class LockHeldLong(LockEvent, frozen=True):
    """A lock is held for 1.5 times as long as its holder expected. Once per hold."""

    fence: int
    held: float
    expected: float

    @property
    def line(self) -> str:
        return (
            f"lock {safe(self.name)!r}, fence {self.fence}, is held for {duration(self.held)}; "
            f"expected is {duration(self.expected)}. Find out what its holder waits for, or raise "
            "expected."
        )


class HoldLost(BaseEvent, frozen=True):
    """A lease ended before its holder released it."""

    name: str
    fence: int
    reason: str

    @property
    def line(self) -> str:
        return (
            f"lock {safe(self.name)!r}, fence {self.fence}, was lost: {sentence(self.reason)} "
            "Another process may hold it now. Unless on_lost says otherwise, its block is "
            "cancelled; late writes must be refused by their fence."
        )

    @property
    def fields(self) -> dict[str, object]:
        return {"lock": self.name, "fence": self.fence}


class LimitsDiffer(BaseEvent, frozen=True):
    """Live holders of a semaphore use different limits; the smallest one applies."""

    name: str
    limit: int
    other: int

    @property
    def line(self) -> str:
        return (
            f"semaphore {safe(self.name)!r} is used with the limits {self.limit} and {self.other}: "
            "the smallest one applies. A deploy that changes the limit needs nothing; else correct "
            "one of them."
        )

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

    @property
    def line(self) -> str:
        locks = "1 lock" if self.leases == 1 else f"{self.leases} locks"
        return (
            f"cannot renew {locks}: {sentence(self.error)} Nothing is lost so far: each is held "
            "until its ttl is over, and renewals are tried again until then."
        )


class RenewalRestored(BaseEvent, frozen=True):
    """Renewals work again after an outage."""

    failures: int

    @property
    def line(self) -> str:
        return f"locks are renewed again, after {_tries(self.failures)}"

    @property
    def level(self) -> int:
        return logging.INFO


def _tries(failures: int) -> str:
    return "1 failed try" if failures == 1 else f"{failures} failed tries"
