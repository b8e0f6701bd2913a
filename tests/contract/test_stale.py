"""Every call that names a fence must fail in every way that its lease can end."""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

import pytest

from tenure.core.leases import Lease, Mark
from tenure.stores.contract import Store
from tenure.testing import ManualClock
from tests.contract.calls import renew
from tests.contract.conftest import Place
from tests.contract.ended_leases import EVERY_WAY, Gone

pytestmark = pytest.mark.leases

Call: TypeAlias = Callable[[Store, Lease], Awaitable[bool]]


async def renew_it(store: Store, lease: Lease) -> bool:
    (answer,) = await renew(store, lease)
    return answer


async def release_it(store: Store, lease: Lease) -> bool:
    (answer,) = await store.leases.release([lease])
    return answer


async def mark_with_it(store: Store, lease: Lease) -> bool:
    return await store.leases.mark("done", lease, "stale")


async def mark_anew_with_it(store: Store, lease: Lease) -> bool:
    return await store.leases.mark("marked", lease, "stale")


@pytest.mark.parametrize("call", [renew_it, release_it, mark_with_it, mark_anew_with_it])
@pytest.mark.parametrize("gone", EVERY_WAY)
async def test_a_stale_lease_is_refused_and_changes_nothing(
    place: Place, clock: ManualClock, gone: Gone, call: Call
):
    store = place.store
    lease = await place.take("ann", ttl=30)
    assert await store.leases.mark("marked", lease, "fresh")
    await gone(place, clock, lease)
    before = await store.leases.find()

    assert await call(store, lease) is False
    assert await call(store, lease) is False

    assert await store.leases.find() == before
    assert await store.leases.marked(["done", "marked"]) == [
        None,
        Mark("marked", "fresh", lease.fence),
    ]


@pytest.mark.parametrize("call", [renew_it, release_it, mark_with_it])
async def test_a_live_lease_is_not_refused(place: Place, call: Call):
    lease = await place.take("ann", ttl=30)
    assert await call(place.store, lease) is True
