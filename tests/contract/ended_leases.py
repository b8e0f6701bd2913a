"""All the ways in which a lease can end while its holder still trusts it."""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from tenure.core.leases import Lease
from tenure.testing import ManualClock
from tests.contract.conftest import AGES, Place

Gone: TypeAlias = Callable[[Place, ManualClock, Lease], Awaitable[None]]


async def expired(place: Place, clock: ManualClock, lease: Lease) -> None:
    clock.shift(lease.ttl)


async def released(place: Place, clock: ManualClock, lease: Lease) -> None:
    await place.store.leases.release([lease])


async def released_by_holder(place: Place, clock: ManualClock, lease: Lease) -> None:
    await place.store.leases.release([Lease(key=lease.key, holder=lease.holder)])


async def taken_after_release(place: Place, clock: ManualClock, lease: Lease) -> None:
    await place.store.leases.release([lease])
    await place.take("ben", ttl=AGES)


async def taken_after_expiry(place: Place, clock: ManualClock, lease: Lease) -> None:
    clock.shift(lease.ttl)
    await place.take("ben", ttl=AGES)


async def taken_anew_by_the_same_holder(place: Place, clock: ManualClock, lease: Lease) -> None:
    await place.store.leases.release([lease])
    await place.take(lease.holder, ttl=AGES)


async def awaited_by_the_next(place: Place, clock: ManualClock, lease: Lease) -> None:
    await place.be_refused("ben", waiting=AGES)
    clock.shift(lease.ttl)


async def pruned(place: Place, clock: ManualClock, lease: Lease) -> None:
    await place.store.leases.release([*place.others, lease])
    await place.store.prune(idle=0)


async def pruned_and_taken(place: Place, clock: ManualClock, lease: Lease) -> None:
    await pruned(place, clock, lease)
    await place.take("ben", ttl=AGES)


EVERY_WAY: list[Gone] = [
    expired,
    released,
    released_by_holder,
    taken_after_release,
    taken_after_expiry,
    taken_anew_by_the_same_holder,
    awaited_by_the_next,
    pruned,
    pruned_and_taken,
]
