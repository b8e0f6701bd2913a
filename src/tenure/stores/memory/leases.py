"""Leases in memory: the specification that the other stores are compared with.

A lease is acquired while the live leases and the waiters ahead are fewer than the limit. No other
call grants one. Each method states its rule; `database` has the records.
"""

from __future__ import annotations

from collections.abc import Sequence

from tenure.core.durations import micros
from tenure.core.lease_policy import next_fence
from tenure.core.leases import Acquired, Busy, Granted, Lease, Mark, Meta
from tenure.stores.memory.connection import Part
from tenure.stores.memory.database import Grant, Key, Waiter

__all__ = ["Leases"]


class Leases(Part):
    """The lease part of the contract."""

    async def acquire(
        self,
        key: str,
        *,
        holder: str,
        limit: int,
        ttl: float,
        meta: Meta,
        waiting: float = 0.0,
    ) -> Acquired:
        """Grant a lease, or refuse and, with `waiting`, keep a place in the line.

        A holder that has a lease already gets the same one with a full ttl, so a repeat after a
        lost reply is harmless. A new lease gets a fence above all earlier ones, and wakes the next
        waiter if there is room for it as well.
        """
        with self._lock:
            now = self._clock.wall()
            data = self._data
            record = data.key(key, now)
            other = _other_limit(record, holder, limit)
            grant = record.grants.get(holder)
            if grant is not None:
                grant.renewed, grant.ttl = now, micros(ttl)
                return Granted(grant.as_lease(key, now), other)
            ahead = record.ahead_of(holder)
            if not record.room_for(limit, ahead):
                busy = Busy(_retry_in(record, limit, ahead, now), ahead, other)
                if waiting > 0:
                    place = record.line.get(holder)
                    arrived = place.arrived if place else now
                    record.line[holder] = Waiter(
                        holder, limit, micros(ttl), meta, arrived, now, micros(waiting)
                    )
                return busy
            record.line.pop(holder, None)
            record.fence = next_fence(record.fence, data.floor, now)
            record.used = now
            grant = Grant(holder, record.fence, limit, meta, now, now, micros(ttl))
            record.grants[holder] = grant
            took_over = bool(record.expired)
            del record.expired[:1]
            self._wake_next(record)
            return Granted(grant.as_lease(key, now), other, took_over)

    async def renew(self, leases: Sequence[Lease]) -> list[bool | None]:
        with self._lock:
            return [self._renew(lease) for lease in leases]

    def _renew(self, lease: Lease) -> bool:
        """Start the ttl again if this very lease still lives. An ended lease stays ended."""
        now = self._clock.wall()
        grant = self._live(lease, now)
        if grant is None:
            return False
        grant.renewed, grant.ttl = now, micros(lease.ttl)
        grant.kept = grant.kept or lease.kept
        return True

    async def release(self, leases: Sequence[Lease]) -> list[bool]:
        with self._lock:
            return [self._release(lease) for lease in leases]

    def _release(self, lease: Lease) -> bool:
        """End a lease and the holder's place in the line; return whether the lease lived.

        A lease with another fence is a newer one of the same holder and is left alone. Fence 0
        matches any: a caller whose reply was lost does not know the fence. A lease that is
        released after its end was not left behind, so the next grant does not take it over.
        """
        now = self._clock.wall()
        if lease.key not in self._data.keys:
            return False
        record = self._data.key(lease.key, now)
        grant = record.grants.get(lease.holder)
        held = grant is not None and lease.fence in (0, grant.fence)
        if held:
            del record.grants[lease.holder]
        elif lease.fence in record.expired:
            record.expired.remove(lease.fence)
        record.line.pop(lease.holder, None)
        self._wake_next(record)
        return held

    async def discard(self, key: str) -> bool:
        with self._lock:
            if key not in self._data.keys:
                return False
            record = self._data.key(key, self._clock.wall())
            had_any = bool(record.grants or record.line or record.expired)
            record.grants.clear()
            record.line.clear()
            record.expired.clear()
            return had_any

    async def find(self, prefix: str = "", *, limit: int = 1000) -> list[Lease]:
        with self._lock:
            now = self._clock.wall()
            leases: list[Lease] = []
            for name in sorted(name for name in self._data.keys if name.startswith(prefix)):
                record = self._data.key(name, now)
                holders = sorted(record.grants.values(), key=lambda grant: grant.fence)
                leases += [grant.as_lease(name, now) for grant in holders]
                leases += [waiter.as_lease(name, now) for waiter in record.line.values()]
            return leases[:limit]

    async def mark(self, key: str, lease: Lease, value: str) -> bool:
        """Write a mark under a live lease. The same mark again is a repeat, and succeeds."""
        with self._lock:
            mark = Mark(key, value, lease.fence)
            if self._data.marks.get(key) == mark:
                return True
            if self._live(lease, self._clock.wall()) is None:
                return False
            self._data.marks[key] = mark
            return True

    async def marked(self, keys: Sequence[str]) -> list[Mark | None]:
        with self._lock:
            return [self._data.marks.get(key) for key in keys]

    def prune(self, idle: float, limit: int) -> int:
        """Remove keys without leases and waiters that were not used for `idle` seconds."""
        now = self._clock.wall()
        data = self._data
        pruned = 0
        for name in list(data.keys):
            record = data.key(name, now)
            unused = now - record.used >= micros(idle)
            if pruned < limit and unused and not record.grants and not record.line:
                data.floor = max(data.floor, record.fence)
                del data.keys[name]
                pruned += 1
        return pruned

    def _live(self, lease: Lease, now: int) -> Grant | None:
        """Return the stored lease if it has the same holder and fence and has not ended."""
        if lease.key not in self._data.keys:
            return None
        grant = self._data.key(lease.key, now).grants.get(lease.holder)
        return grant if grant is not None and grant.fence == lease.fence else None

    def _wake_next(self, record: Key) -> None:
        """Wake the first waiter if there is room for it. Others would only be refused."""
        first = record.first_served()
        if first is not None:
            self._wake(("lease", first))


def _retry_in(record: Key, limit: int, ahead: int, now: int) -> float:
    """Return the seconds until the caller could get a place if no lease is released or renewed.

    Leases end one by one, and the waiters ahead take the first places that become free. If there
    is no lease, the place of the first waiter has to end.
    """
    ends = sorted(grant.expires for grant in record.grants.values())
    if ends:
        kth = min(len(ends), len(ends) + ahead - record.effective(limit, ahead) + 1)
        return (ends[kth - 1] - now) / 1e6
    first = next(iter(record.line.values()))
    return (first.expires - now) / 1e6


def _other_limit(record: Key, holder: str, limit: int) -> int | None:
    """Return the smallest limit of the other live holders that differs from `limit`."""
    limits = {grant.limit for grant in record.grants.values() if grant.holder != holder}
    return min(limits - {limit}, default=None)
