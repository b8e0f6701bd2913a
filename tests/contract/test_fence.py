import pytest

from tenure.stores.contract import Store
from tenure.testing import ManualClock
from tests.contract.calls import take, take_in_time
from tests.contract.conftest import Place
from tests.contract.worlds import World

pytestmark = pytest.mark.leases

HOUR = 3600.0


async def test_a_fence_is_larger_than_the_last_though_no_time_has_passed(place: Place):
    fences = []
    for holder in ("ann", "ben", "ann", "cid", "ann"):
        lease = await place.take(holder)
        fences.append(lease.fence)
        await place.store.leases.release([lease])
    assert fences == sorted(set(fences))


async def test_a_fence_is_larger_than_that_of_a_lease_that_ran_out(
    place: Place, clock: ManualClock
):
    first = await place.take("ann", ttl=1)
    clock.shift(1)
    second = await place.take("ben", ttl=1)
    clock.shift(1)
    third = await place.take("ann", ttl=1)
    assert first.fence < second.fence < third.fence


async def test_fences_of_a_semaphore_rise_in_the_order_of_the_grants(store: Store):
    fences = [(await take(store, "key", f"h{n}", limit=9)).fence for n in range(9)]
    assert fences == sorted(set(fences))


async def test_a_fence_carries_the_stores_time(store: Store, clock: ManualClock):
    """It then grows even if the store has lost everything but its clock."""
    for seconds in (0, 1.5, HOUR):
        clock.shift(seconds)
        lease = await take(store, "key", f"at-{seconds}", ttl=1)
        assert lease.fence >= (await store.ping()).now
        clock.shift(1)


async def test_a_fence_fits_into_a_double(store: Store, clock: ManualClock):
    """Lua, JavaScript and JSON readers count in doubles."""
    in_2250 = 8_835_000_000_000_000
    clock.step((in_2250 - clock.wall()) / 1e6)
    for number in range(3):
        lease = await take(store, "key", "ann", ttl=1)
        assert in_2250 <= lease.fence < 2**53
        assert type(lease.fence) is int
        assert (await store.leases.find())[0].fence == lease.fence
        await store.leases.release([lease])
        clock.shift(number)


async def test_fences_rise_over_a_removal_of_idle_keys(store: Store):
    """Several grants in one instant push the fence past the clock: only memory carries it on."""
    last = 0
    for _ in range(3):
        for _ in range(10):
            lease = await take(store, "key", "ann")
            assert lease.fence > last
            last = lease.fence
            await store.leases.release([lease])
        await store.prune(idle=0)


async def test_fences_rise_over_the_removal_of_another_key_with_higher_fences(store: Store):
    lows, highs = [], []
    for _ in range(3):
        for key, fences, times in (("low", lows, 1), ("high", highs, 10)):
            for _ in range(times):
                lease = await take(store, key, "ann")
                fences.append(lease.fence)
                await store.leases.release([lease])
        await store.prune(idle=0, limit=1)
        await store.prune(idle=0, limit=1)
    assert lows == sorted(set(lows))
    assert highs == sorted(set(highs))


@pytest.mark.parametrize("pruned", [False, True], ids=["kept", "pruned"])
@pytest.mark.parametrize("ended", ["released", "expired"])
async def test_fences_rise_over_a_clock_stepped_back(
    store: Store, clock: ManualClock, pruned: bool, ended: str
):
    fences = []
    for holder in ("ann", "ben", "cid"):
        lease = await take_in_time(store, "key", holder, clock=clock)
        fences.append(lease.fence)
        if ended == "released":
            await store.leases.release([lease])
        else:
            clock.shift(lease.ttl)
        if pruned:
            await store.prune(idle=0)
        clock.step(-HOUR)
    assert fences == sorted(set(fences))


async def test_fences_rise_over_a_clock_stepped_forward_and_back(store: Store, clock: ManualClock):
    fences = []
    for step in (HOUR, -HOUR, 10 * HOUR, -20 * HOUR, 0):
        lease = await take(store, "key", "ann")
        fences.append(lease.fence)
        await store.leases.release([lease])
        clock.step(step)
    assert fences == sorted(set(fences))


async def test_fences_rise_over_closing_and_opening(world: World, clock: ManualClock):
    store = await world.store()
    first = await take(store, "key", "ann")
    await store.leases.release([first])
    await store.close()
    clock.step(-HOUR)
    second = await take(await world.store(), "key", "ann")
    assert second.fence > first.fence
