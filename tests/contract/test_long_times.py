"""The longest times that a caller may request: every store must be able to count them."""

import pytest

from tenure.core.lease_policy import TTL_MAX
from tenure.stores.contract import Store
from tenure.testing import ManualClock
from tests.contract.calls import MOMENT, renew
from tests.contract.conftest import Place
from tests.contract.worlds import World

pytestmark = pytest.mark.leases

DAY = 86_400.0


async def test_a_lease_may_last_ten_years(place: Place, clock: ManualClock):
    ann = await place.take("ann", ttl=TTL_MAX)
    assert (ann.ttl, ann.expires_in) == (TTL_MAX, TTL_MAX)
    [lease] = [lease for lease in await place.store.leases.find() if lease.holder == "ann"]
    assert (lease.ttl, lease.expires_in, lease.fence) == (TTL_MAX, TTL_MAX, ann.fence)
    clock.shift(DAY)
    assert await renew(place.store, ann) == [True]
    again = await place.take("ann", ttl=TTL_MAX)
    assert (again.fence, again.expires_in, again.held_for) == (ann.fence, TTL_MAX, DAY)


async def test_a_lease_of_ten_years_ends_to_the_moment(place: Place, clock: ManualClock):
    await place.store.leases.release(place.others)
    leases = [await place.take(f"long-{number}", ttl=TTL_MAX) for number in range(place.limit)]
    assert (await place.be_refused("ben")).retry_in == TTL_MAX
    clock.shift(TTL_MAX - MOMENT)
    assert (await place.be_refused("ben")).retry_in == pytest.approx(MOMENT)
    clock.shift(MOMENT)
    assert (await place.take("ben")).fence > max(lease.fence for lease in leases)


async def test_a_waiter_may_be_patient_for_a_day(place: Place, clock: ManualClock):
    await place.take("ann", ttl=TTL_MAX)
    await place.be_refused("ben", ttl=TTL_MAX, waiting=DAY)
    [waiter] = [lease for lease in await place.store.leases.find() if lease.waiting]
    assert (waiter.ttl, waiter.expires_in) == (TTL_MAX, DAY)
    clock.shift(DAY - MOMENT)
    assert await place.line() == ["ben"]
    clock.shift(MOMENT)
    assert await place.line() == []


async def test_the_longest_times_work_on_the_clock_of_the_server(real_world: World):
    store: Store = await real_world.store()
    place = Place(store, limit=2)
    leases = [await place.take(holder, ttl=TTL_MAX) for holder in "ab"]
    assert TTL_MAX - DAY < (await place.be_refused("ben", waiting=DAY)).retry_in <= TTL_MAX
    assert await renew(store, *leases) == [True, True]
    assert await place.line() == ["ben"]
    assert await store.leases.release(leases) == [True, True]
    await place.take("ben", ttl=TTL_MAX)
