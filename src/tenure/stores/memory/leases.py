"""Leases in memory: the specification the other stores are compared with."""

from __future__ import annotations

from collections.abc import Sequence

from tenure.core.durations import micros
from tenure.core.leases import Acquired, Busy, Granted, Lease, Mark, Meta
from tenure.core.policy import next_fence
from tenure.stores.memory.connection import Part
from tenure.stores.memory.world import Grant, Key, Waiter

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
        with self._lock:
            now = self._clock.wall()
            space = self._space
            record = space.key(key, now)
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
            record.fence = next_fence(record.fence, space.floor, now)
            record.granted = now
            grant = Grant(holder, record.fence, limit, meta, now, now, micros(ttl))
            record.grants[holder] = grant
            self._wake_next(record)
            return Granted(grant.as_lease(key, now), other)

    async def renew(self, leases: Sequence[Lease]) -> list[bool | None]:
        with self._lock:
            return [self._renew(lease) for lease in leases]

    def _renew(self, lease: Lease) -> bool:
        now = self._clock.wall()
        grant = self._live(lease, now)
        if grant is None:
            return False
        grant.renewed, grant.ttl = now, micros(lease.ttl)
        return True

    async def release(self, leases: Sequence[Lease]) -> list[bool]:
        with self._lock:
            return [self._release(lease) for lease in leases]

    def _release(self, lease: Lease) -> bool:
        now = self._clock.wall()
        if lease.key not in self._space.keys:
            return False
        record = self._space.key(lease.key, now)
        grant = record.grants.get(lease.holder)
        held = grant is not None and lease.fence in (0, grant.fence)
        if held:
            del record.grants[lease.holder]
        record.line.pop(lease.holder, None)
        self._wake_next(record)
        return held

    async def discard(self, key: str) -> bool:
        with self._lock:
            if key not in self._space.keys:
                return False
            record = self._space.key(key, self._clock.wall())
            found = bool(record.grants or record.line)
            record.grants.clear()
            record.line.clear()
            return found

    async def find(self, prefix: str = "", *, limit: int = 1000) -> list[Lease]:
        with self._lock:
            now = self._clock.wall()
            found: list[Lease] = []
            for name in sorted(name for name in self._space.keys if name.startswith(prefix)):
                record = self._space.key(name, now)
                holders = sorted(record.grants.values(), key=lambda grant: grant.fence)
                found += [grant.as_lease(name, now) for grant in holders]
                found += [waiter.as_lease(name, now) for waiter in record.line.values()]
            return found[:limit]

    async def mark(self, key: str, lease: Lease, value: str) -> bool:
        with self._lock:
            mark = Mark(key, value, lease.fence)
            if self._space.marks.get(key) == mark:
                return True
            if self._live(lease, self._clock.wall()) is None:
                return False
            self._space.marks[key] = mark
            return True

    async def marked(self, keys: Sequence[str]) -> list[Mark | None]:
        with self._lock:
            return [self._space.marks.get(key) for key in keys]

    def prune(self, idle: float, limit: int) -> int:
        now = self._clock.wall()
        space = self._space
        pruned = 0
        for name in list(space.keys):
            record = space.key(name, now)
            unused = now - record.granted >= micros(idle)
            if pruned < limit and unused and not record.grants and not record.line:
                space.floor = max(space.floor, record.fence)
                del space.keys[name]
                pruned += 1
        return pruned

    def _live(self, lease: Lease, now: int) -> Grant | None:
        """Return the grant behind `lease` if it is this very one and has not ended."""
        if lease.key not in self._space.keys:
            return None
        grant = self._space.key(lease.key, now).grants.get(lease.holder)
        return grant if grant is not None and grant.fence == lease.fence else None

    def _wake_next(self, record: Key) -> None:
        first = record.first_served()
        if first is not None:
            self._ring(("lease", first))


def _retry_in(record: Key, limit: int, ahead: int, now: int) -> float:
    ends = sorted(grant.expires for grant in record.grants.values())
    if ends:
        kth = min(len(ends), len(ends) + ahead - record.effective(limit, ahead) + 1)
        return (ends[kth - 1] - now) / 1e6
    first = next(iter(record.line.values()))
    return (first.expires - now) / 1e6


def _other_limit(record: Key, holder: str, limit: int) -> int | None:
    """Return the smallest limit among other live holders, if any of them differs from `limit`."""
    limits = {grant.limit for grant in record.grants.values() if grant.holder != holder}
    return min(limits) if limits - {limit} else None
