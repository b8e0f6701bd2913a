"""Calls about leases that most tests make, with the answer that they expect."""

import asyncio
from collections.abc import Mapping

from tenure.core.leases import Acquired, Busy, Granted, Lease, Meta
from tenure.stores.contract import Store
from tenure.testing import ManualClock

TTL = 30.0
MOMENT = 0.000_001  # the smallest step of time: stores count in microseconds


async def ask(
    store: Store,
    key: str,
    holder: str,
    *,
    limit: int = 1,
    ttl: float = TTL,
    waiting: float = 0.0,
    meta: Meta | None = None,
) -> Acquired:
    """Acquire; return any answer."""
    return await store.leases.acquire(
        key, holder=holder, limit=limit, ttl=ttl, meta=meta or {}, waiting=waiting
    )


async def take(store: Store, key: str, holder: str, **details) -> Lease:
    """Acquire, and be granted."""
    answer = await ask(store, key, holder, **details)
    assert isinstance(answer, Granted), f"{holder} must be granted {key!r}, but got {answer}"
    return answer.lease


async def take_in_time(store: Store, key: str, holder: str, *, clock: ManualClock) -> Lease:
    """Acquire at once, or within one ttl, because a stepped clock may prolong a lease."""
    answer = await ask(store, key, holder)
    if isinstance(answer, Granted):
        return answer.lease
    assert 0 < answer.retry_in <= TTL
    clock.shift(answer.retry_in)
    return await take(store, key, holder)


async def be_refused(store: Store, key: str, holder: str, **details) -> Busy:
    """Acquire, and be refused."""
    answer = await ask(store, key, holder, **details)
    assert isinstance(answer, Busy), f"{holder} must be refused {key!r}, but got {answer}"
    return answer


async def renew(store: Store, *leases: Lease) -> list[bool]:
    """Renew; repeat the call for leases that it did not decide about."""
    answers: list[bool | None] = await store.leases.renew(leases)
    for _ in range(100):
        open_ones = [index for index, answer in enumerate(answers) if answer is None]
        if not open_ones:
            break
        await asyncio.sleep(0.01)
        again = await store.leases.renew([leases[index] for index in open_ones])
        for index, answer in zip(open_ones, again, strict=True):
            answers[index] = answer
    assert None not in answers
    return [bool(answer) for answer in answers]


async def holders(store: Store, key: str) -> list[str]:
    """Return the holders of live leases on `key`, by fence."""
    return [
        lease.holder
        for lease in await store.leases.find(key)
        if lease.key == key and not lease.waiting
    ]


async def line(store: Store, key: str) -> list[str]:
    """Return the waiters for `key`, by arrival."""
    return [
        lease.holder for lease in await store.leases.find(key) if lease.key == key and lease.waiting
    ]


async def fill(store: Store, key: str, ends: Mapping[str, float], *, limit: int) -> list[Lease]:
    """Take leases that end after the given times."""
    return [
        await take(store, key, holder, limit=limit, ttl=after) for holder, after in ends.items()
    ]


async def use(store: Store, *keys: str) -> None:
    """Take and release each key."""
    for key in keys:
        await store.leases.release([await take(store, key, "ann")])


async def prune_leases(store: Store, *, idle: float, limit: int = 1000) -> int:
    """Prune keys; return how many were forgotten."""
    pruned = await store.prune(idle=idle, limit=limit)
    assert pruned.jobs == 0
    return pruned.leases
