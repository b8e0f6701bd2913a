"""What a memory store remembers: plain records, guarded by one lock.

Times in here are whole microseconds of the store's clock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count, islice
from typing import TypeVar

from tenure.core.leases import Lease, Mark, Meta, Topic
from tenure.stores.memory.job_world import JobSpace
from tenure.stores.memory.schedule_world import Schedule

__all__ = ["Grant", "Key", "Space", "Waiter", "World", "named_world"]

_incarnations = count(1)


@dataclass(slots=True)
class Grant:
    """A lease as the store sees it."""

    holder: str
    fence: int
    limit: int
    meta: Meta
    granted: int
    renewed: int
    ttl: int

    @property
    def expires(self) -> int:
        return self.renewed + self.ttl

    def as_lease(self, key: str, now: int) -> Lease:
        return Lease(
            key=key,
            holder=self.holder,
            fence=self.fence,
            ttl=self.ttl / 1e6,
            limit=self.limit,
            meta=self.meta,
            expires_in=(self.expires - now) / 1e6,
            held_for=max(0, now - self.granted) / 1e6,
        )


@dataclass(slots=True)
class Waiter:
    """A place in the line for a key."""

    holder: str
    limit: int
    ttl: int
    meta: Meta
    arrived: int
    renewed: int
    life: int

    @property
    def expires(self) -> int:
        return self.renewed + self.life

    def as_lease(self, key: str, now: int) -> Lease:
        return Lease(
            key=key,
            holder=self.holder,
            ttl=self.ttl / 1e6,
            limit=self.limit,
            meta=self.meta,
            waiting=True,
            expires_in=(self.expires - now) / 1e6,
            held_for=max(0, now - self.arrived) / 1e6,
        )


Record = TypeVar("Record", Grant, Waiter)


def _drop_ended(records: dict[str, Record], now: int) -> None:
    for record in list(records.values()):
        record.renewed = min(record.renewed, now)
        if record.expires <= now:
            del records[record.holder]


@dataclass(slots=True)
class Key:
    """Everything about one lease key. `line` is in order of arrival."""

    fence: int = 0
    granted: int = 0
    grants: dict[str, Grant] = field(default_factory=dict)
    line: dict[str, Waiter] = field(default_factory=dict)

    def settle(self, now: int) -> None:
        """Drop what has ended, and clamp what a backward clock step made too long."""
        _drop_ended(self.grants, now)
        _drop_ended(self.line, now)

    def room_for(self, limit: int, ahead: int) -> bool:
        """Return whether one more lease may live beside the present ones and those ahead."""
        return len(self.grants) + ahead < self.effective(limit, ahead)

    def effective(self, limit: int, ahead: int) -> int:
        """Return the smallest limit among the caller, the holders and the waiters ahead of it."""
        held = (grant.limit for grant in self.grants.values())
        wanted = (waiter.limit for waiter in islice(self.line.values(), ahead))
        return min([limit, *held, *wanted])

    def ahead_of(self, holder: str) -> int:
        """Return how many waiters come before `holder`; all of them if it has no place."""
        return list(self.line).index(holder) if holder in self.line else len(self.line)

    def first_served(self) -> str | None:
        """Return the first in line if there is room for it."""
        first = next(iter(self.line.values()), None)
        return first.holder if first and self.room_for(first.limit, ahead=0) else None


@dataclass(slots=True)
class Space:
    """One namespace."""

    keys: dict[str, Key] = field(default_factory=dict)
    marks: dict[str, Mark] = field(default_factory=dict)
    floor: int = 0
    jobs: JobSpace = field(default_factory=JobSpace)
    schedules: dict[str, Schedule] = field(default_factory=dict)
    incarnation: str = field(default_factory=lambda: f"{next(_incarnations)}")

    def key(self, name: str, now: int) -> Key:
        """Return the key as it stands now, made on first use."""
        key = self.keys.setdefault(name, Key())
        key.settle(now)
        return key


class World:
    """What all store objects of one URL share."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.listeners: set[Callable[[str, Topic], None]] = set()
        self._spaces: dict[str, Space] = {}

    def space(self, namespace: str) -> Space:
        with self.lock:
            if namespace not in self._spaces:  # asked for several times by each call
                self._spaces[namespace] = Space()
            return self._spaces[namespace]


_named: dict[str, World] = {}
_naming = threading.Lock()


def named_world(name: str) -> World:
    """Return the process-wide world of `memory://name`; it lives as long as the process."""
    with _naming:
        return _named.setdefault(name, World())
