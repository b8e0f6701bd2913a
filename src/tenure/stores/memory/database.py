"""The data that all store objects of one `memory://` URL share, and its lease records.

A `Database` has a `Namespace` for each namespace in use. Its lock guards everything in it: a store
method holds the lock for the whole call. All times are whole microseconds of the store's clock.

No timer removes an ended lease. `Key.settle` does so at the start of each call about the key, so no
call ever sees a lease or a waiter that has ended.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count, islice
from typing import TypeVar

from tenure.core.leases import EXPIRED_MAX, Lease, Mark, Meta, Topic
from tenure.stores.memory.job_tables import JobTables
from tenure.stores.memory.schedule_table import Schedule

__all__ = ["Database", "Grant", "Key", "Namespace", "Waiter", "named_database"]

_incarnations = count(1)


@dataclass(slots=True)
class Grant:
    """A live lease. It ends `ttl` after it was acquired or last renewed."""

    holder: str
    fence: int
    limit: int
    meta: Meta
    granted: int
    renewed: int
    ttl: int
    kept: bool = False

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
    """A place in the queue for a key. It ends unless the waiter polls again within `life`."""

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


def _drop_ended(records: dict[str, Record], now: int) -> list[Record]:
    """Remove what ends at `now` or earlier, and return it.

    A record that was renewed in the future shows that the clock was set back since. It counts as
    renewed now, so the step adds no more than one ttl to its life.
    """
    for record in records.values():
        record.renewed = min(record.renewed, now)
    ended = [record for record in records.values() if record.expires <= now]
    for record in ended:
        del records[record.holder]
    return ended


@dataclass(slots=True)
class Key:
    """Everything about one lease key: its last fence, its leases, and its waiters.

    `line` has the waiters in order of arrival. `used` is the last acquisition, or the end of a
    lease that expired since, for `prune`. `expired` has the fences of leases that ended without a
    release, in order. A grant takes the place of the first one.
    """

    fence: int = 0
    used: int = 0
    grants: dict[str, Grant] = field(default_factory=dict)
    line: dict[str, Waiter] = field(default_factory=dict)
    expired: list[int] = field(default_factory=list)

    def settle(self, now: int) -> None:
        """Remove leases and places that have ended."""
        expired = [grant for grant in _drop_ended(self.grants, now) if not grant.kept]
        if expired:
            fences = [grant.fence for grant in expired]
            self.expired = sorted([*self.expired, *fences])[-EXPIRED_MAX:]
            self.used = max(self.used, *(grant.expires for grant in expired))
        _drop_ended(self.line, now)

    def room_for(self, limit: int, ahead: int) -> bool:
        """Return whether a caller with `ahead` waiters before it may have a lease now.

        Each waiter ahead counts like a lease. So a free place of a semaphore goes to the first
        waiter, even if the caller asks before that waiter has woken up.
        """
        return len(self.grants) + ahead < self.effective(limit, ahead)

    def effective(self, limit: int, ahead: int) -> int:
        """Return the smallest limit among the caller, the holders and the waiters ahead of it.

        A deployment that changes a limit has both limits in use for a while. The smaller one
        counts until its last user is gone.
        """
        held = (grant.limit for grant in self.grants.values())
        waiting = (waiter.limit for waiter in islice(self.line.values(), ahead))
        return min([limit, *held, *waiting])

    def ahead_of(self, holder: str) -> int:
        """Return how many waiters come before `holder`; all of them if it has no place."""
        return list(self.line).index(holder) if holder in self.line else len(self.line)

    def first_served(self) -> str | None:
        """Return the first waiter if there is room for it."""
        first = next(iter(self.line.values()), None)
        return first.holder if first and self.room_for(first.limit, ahead=0) else None


@dataclass(slots=True)
class Namespace:
    """The data of one namespace.

    `floor` is the highest fence of all keys that were pruned, so that fences of a key keep growing
    after its record is gone.
    """

    keys: dict[str, Key] = field(default_factory=dict)
    marks: dict[str, Mark] = field(default_factory=dict)
    floor: int = 0
    jobs: JobTables = field(default_factory=JobTables)
    schedules: dict[str, Schedule] = field(default_factory=dict)
    incarnation: str = field(default_factory=lambda: f"{next(_incarnations)}")

    def key(self, name: str, now: int) -> Key:
        """Return the record of a key without ended leases; it is created on first use."""
        key = self.keys.setdefault(name, Key())
        key.settle(now)
        return key


class Database:
    """The data of all namespaces, and the listeners to call after a change.

    A listener is called in the thread that makes the change, while that thread has the lock.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.listeners: set[Callable[[str, Topic], None]] = set()
        self._namespaces: dict[str, Namespace] = {}

    def namespace(self, namespace: str) -> Namespace:
        with self.lock:
            if namespace not in self._namespaces:  # looked up several times by each call
                self._namespaces[namespace] = Namespace()
            return self._namespaces[namespace]


_named: dict[str, Database] = {}
_naming = threading.Lock()


def named_database(name: str) -> Database:
    """Return the database of `memory://name`; it lives as long as the process."""
    with _naming:
        return _named.setdefault(name, Database())
