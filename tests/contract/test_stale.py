"""What must fail: every call that names a fence, in every way its lease can be gone."""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

import pytest

from tenure.core.model import Lease, Mark
from tenure.stores.contract import Store
from tenure.testing import ManualClock
from tests.contract.calls import renew
from tests.contract.conftest import AGES, Place

Gone: TypeAlias = Callable[[Place, ManualClock, Lease], Awaitable[None]]
Call: TypeAlias = Callable[[Store, Lease], Awaitable[bool]]


async def expired(place: Place, clock: ManualClock, lease: Lease) -> None:
    clock.shift(lease.ttl)


async def released(place: Place, clock: ManualClock, lease: Lease) -> None:
    await place.store.release([lease])


async def released_by_holder(place: Place, clock: ManualClock, lease: Lease) -> None:
    await place.store.release([Lease(key=lease.key, holder=lease.holder)])


async def taken_after_release(place: Place, clock: ManualClock, lease: Lease) -> None:
    await place.store.release([lease])
    await place.take("ben", ttl=AGES)


async def taken_after_expiry(place: Place, clock: ManualClock, lease: Lease) -> None:
    clock.shift(lease.ttl)
    await place.take("ben", ttl=AGES)


async def taken_anew_by_the_same_holder(place: Place, clock: ManualClock, lease: Lease) -> None:
    await place.store.release([lease])
    await place.take(lease.holder, ttl=AGES)


async def awaited_by_the_next(place: Place, clock: ManualClock, lease: Lease) -> None:
    await place.be_refused("ben", waiting=AGES)
    clock.shift(lease.ttl)


async def pruned(place: Place, clock: ManualClock, lease: Lease) -> None:
    await place.store.release([*place.others, lease])
    await place.store.prune(idle=0)


async def pruned_and_taken(place: Place, clock: ManualClock, lease: Lease) -> None:
    await pruned(place, clock, lease)
    await place.take("ben", ttl=AGES)


async def renew_it(store: Store, lease: Lease) -> bool:
    (answer,) = await renew(store, lease)
    return answer


async def release_it(store: Store, lease: Lease) -> bool:
    (answer,) = await store.release([lease])
    return answer


async def mark_with_it(store: Store, lease: Lease) -> bool:
    return await store.mark("done", lease, "stale")


async def mark_anew_with_it(store: Store, lease: Lease) -> bool:
    return await store.mark("marked", lease, "stale")


@pytest.mark.parametrize("call", [renew_it, release_it, mark_with_it, mark_anew_with_it])
@pytest.mark.parametrize(
    "gone",
    [
        expired,
        released,
        released_by_holder,
        taken_after_release,
        taken_after_expiry,
        taken_anew_by_the_same_holder,
        awaited_by_the_next,
        pruned,
        pruned_and_taken,
    ],
)
async def test_a_stale_lease_is_refused_and_changes_nothing(
    place: Place, clock: ManualClock, gone: Gone, call: Call
):
    store = place.store
    lease = await place.take("ann", ttl=30)
    assert await store.mark("marked", lease, "fresh")
    await gone(place, clock, lease)
    before = await store.leases()

    assert await call(store, lease) is False
    assert await call(store, lease) is False

    assert await store.leases() == before
    assert await store.marked(["done", "marked"]) == [None, Mark("marked", "fresh", lease.fence)]


@pytest.mark.parametrize("call", [renew_it, release_it, mark_with_it])
async def test_a_live_lease_is_not_refused(place: Place, call: Call):
    lease = await place.take("ann", ttl=30)
    assert await call(place.store, lease) is True
