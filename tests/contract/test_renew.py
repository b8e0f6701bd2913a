import msgspec
import pytest

from tenure.core.leases import Lease
from tenure.stores.contract import Store
from tenure.testing import ManualClock
from tests.contract.calls import MOMENT, renew, take
from tests.contract.conftest import Place
from tests.contract.worlds import World

pytestmark = pytest.mark.leases


async def test_a_renewed_lease_has_its_full_ttl_again(place: Place, clock: ManualClock):
    lease = await place.take("ann", ttl=30)
    for _ in range(3):
        clock.shift(29)
        assert await renew(place.store, lease) == [True]
    (now,) = [lease for lease in await place.store.leases.find() if lease.holder == "ann"]
    assert now.expires_in == pytest.approx(30)
    assert now.held_for == pytest.approx(87)
    assert now.fence == lease.fence
    clock.shift(30 - MOMENT)
    assert await place.holder() == "ann"
    clock.shift(MOMENT)
    assert await place.holder() is None


async def test_renewing_goes_by_the_ttl_in_the_lease_given(place: Place, clock: ManualClock):
    lease = await place.take("ann", ttl=30)
    assert await renew(place.store, msgspec.structs.replace(lease, ttl=5.0)) == [True]
    (now,) = [lease for lease in await place.store.leases.find() if lease.holder == "ann"]
    assert (now.ttl, now.expires_in) == (5, pytest.approx(5))
    clock.shift(5)
    assert await renew(place.store, lease) == [False]


async def test_renewing_twice_is_renewing_once(place: Place):
    lease = await place.take("ann", ttl=30)
    assert await renew(place.store, lease) == [True]
    assert await renew(place.store, lease) == [True]
    assert await renew(place.store, lease, lease) == [True, True]
    (now,) = [lease for lease in await place.store.leases.find() if lease.holder == "ann"]
    assert now.expires_in == pytest.approx(30)


async def test_a_lease_is_not_renewed_at_the_instant_it_ends(place: Place, clock: ManualClock):
    lease = await place.take("ann", ttl=30)
    clock.shift(30)
    assert await renew(place.store, lease) == [False]
    assert await place.holder() is None


async def test_a_lease_that_ended_is_never_resurrected(place: Place, clock: ManualClock):
    lease = await place.take("ann", ttl=30)
    clock.shift(30)
    assert await renew(place.store, lease) == [False]
    assert await renew(place.store, lease) == [False]
    await place.take("ben")
    assert await renew(place.store, lease) == [False]
    assert await place.holder() == "ben"


async def test_only_this_very_lease_is_renewed(place: Place, clock: ManualClock):
    lease = await place.take("ann", ttl=30)
    clock.shift(10)
    strangers = [
        msgspec.structs.replace(lease, key="other"),
        msgspec.structs.replace(lease, holder="ben"),
        msgspec.structs.replace(lease, fence=lease.fence - 1),
        msgspec.structs.replace(lease, fence=lease.fence + 1),
        msgspec.structs.replace(lease, fence=0),
    ]
    assert await renew(place.store, *strangers) == [False] * 5
    (now,) = [lease for lease in await place.store.leases.find() if lease.holder == "ann"]
    assert now.expires_in == pytest.approx(20)


async def test_a_place_in_line_is_not_renewed(place: Place, clock: ManualClock):
    await place.take("ann", ttl=30)
    await place.be_refused("ben", waiting=5)
    (waiter,) = [lease for lease in await place.store.leases.find() if lease.waiting]
    clock.shift(3)
    assert await renew(place.store, waiter) == [False]
    clock.shift(2)
    assert await place.line() == []


async def test_waiters_do_not_keep_a_holder_from_renewing(place: Place, clock: ManualClock):
    lease = await place.take("ann", ttl=30)
    await place.be_refused("ben", waiting=60)
    clock.shift(29)
    assert await renew(place.store, lease) == [True]
    clock.shift(29)
    await place.be_refused("ben", waiting=60)


async def test_every_lease_of_a_batch_gets_its_own_answer(store: Store, clock: ManualClock):
    short = await take(store, "short", "ann", ttl=1)
    live = [await take(store, f"live-{n}", "ann") for n in range(3)]
    gone = await take(store, "gone", "ann")
    await store.leases.release([gone])
    never = Lease(key="never", holder="ann", fence=7, ttl=30)
    clock.shift(1)
    answers = await renew(store, live[0], short, live[1], gone, never, live[2])
    assert answers == [True, False, True, False, False, True]


async def test_renewing_an_empty_batch_is_no_error(store: Store):
    assert await store.leases.renew([]) == []


async def test_a_batch_may_be_large(store: Store, clock: ManualClock):
    leases = [await take(store, "key", f"holder-{n}", limit=300) for n in range(300)]
    clock.shift(20)
    gone = [msgspec.structs.replace(lease, key="gone") for lease in leases]
    answers = await renew(
        store, *(lease for pair in zip(leases, gone, strict=True) for lease in pair)
    )
    assert answers == [True, False] * 300
    clock.shift(20)
    assert len(await store.leases.find()) == 300


async def test_any_store_object_may_renew(world: World, clock: ManualClock):
    mine, yours = await world.store(), await world.store()
    lease = await take(mine, "key", "ann", ttl=30)
    clock.shift(20)
    assert await renew(yours, lease) == [True]
    clock.shift(20)
    assert await renew(mine, lease) == [True]


async def test_renewing_counts_from_the_stores_own_clock(real_world: World):
    store = await real_world.store()
    lease = await take(store, "key", "ann", ttl=30)
    await real_world.clock.sleep(0.05)
    (before,) = await store.leases.find()
    assert before.held_for >= 0.049
    assert before.held_for + before.expires_in == pytest.approx(30, abs=0.001)
    assert await renew(store, lease) == [True]
    (after,) = await store.leases.find()
    assert after.held_for + after.expires_in >= 30.049
    assert after.expires_in <= 30
