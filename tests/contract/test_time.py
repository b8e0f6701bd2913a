import pytest

from tenure.core.leases import Granted
from tenure.stores.contract import Store
from tenure.testing import ManualClock
from tests.contract.calls import MOMENT, be_refused, holders, line, renew, take
from tests.contract.conftest import Place

pytestmark = pytest.mark.leases

HOUR = 3600.0


async def test_a_lease_is_over_at_the_very_instant_it_ends(store: Store, clock: ManualClock):
    lease = await take(store, "key", "ann", ttl=10)
    await be_refused(store, "key", "ben", waiting=10)
    clock.shift(10 - MOMENT)
    assert (await holders(store, "key"), await line(store, "key")) == (["ann"], ["ben"])
    clock.shift(MOMENT)
    assert (await holders(store, "key"), await line(store, "key")) == ([], [])
    assert await renew(store, lease) == [False]
    assert await store.leases.release([lease]) == [False]
    assert not await store.leases.mark("done", lease, "v1")


async def test_a_lease_ends_even_if_no_call_looks_at_it(store: Store, clock: ManualClock):
    await take(store, "key", "ann", ttl=10)
    clock.shift(400 * 24 * HOUR)
    assert await store.leases.find() == []
    await take(store, "key", "ben")


async def test_ttls_of_one_key_run_independently(store: Store, clock: ManualClock):
    for ttl in (30, 10, 20):
        await take(store, "key", f"for-{ttl}", limit=3, ttl=ttl)
    for left in (["for-30", "for-20"], ["for-30"], []):
        clock.shift(10)
        assert await holders(store, "key") == left


async def test_after_a_step_back_a_lease_ends_within_its_ttl_after_the_next_look(
    place: Place, clock: ManualClock
):
    first = await place.take("ann", ttl=30)
    clock.step(-HOUR)
    assert (await place.be_refused("ben")).retry_in <= 30
    (ann,) = [lease for lease in await place.store.leases.find() if lease.holder == "ann"]
    assert 0 < ann.expires_in <= 30
    assert ann.held_for >= 0
    clock.shift(30)
    second = await place.take("ben")
    assert second.fence > first.fence


async def test_after_a_step_back_a_waiter_ends_within_its_life_after_the_next_look(
    place: Place, clock: ManualClock
):
    ann = await place.take("ann", ttl=30)
    await place.be_refused("dead", waiting=3)
    clock.step(-HOUR)
    await place.be_refused("ben", waiting=60)
    (dead, _) = [lease for lease in await place.store.leases.find() if lease.waiting]
    assert 0 < dead.expires_in <= 3
    assert dead.held_for >= 0
    await place.store.leases.release([ann])
    clock.shift(3)
    await place.take("ben")


async def test_after_a_step_back_a_holder_keeps_its_lease(place: Place, clock: ManualClock):
    lease = await place.take("ann", ttl=30)
    for _ in range(3):
        clock.step(-HOUR)
        assert await renew(place.store, lease) == [True]
        clock.shift(29)
    assert await place.store.leases.mark("done", lease, "v1")
    await place.be_refused("ben")
    clock.shift(1)
    await place.take("ben")


async def test_a_lease_that_was_seen_to_end_stays_ended_over_a_step_back(
    place: Place, clock: ManualClock
):
    ann = await place.take("ann", ttl=30)
    clock.shift(30)
    ben = await place.take("ben", ttl=30)
    clock.step(-HOUR)
    assert await renew(place.store, ann) == [False]
    assert await place.store.leases.release([ann]) == [False]
    assert not await place.store.leases.mark("done", ann, "v1")
    assert await place.holder() == "ben"
    assert await renew(place.store, ben) == [True]


async def test_after_a_step_forward_the_answers_agree_with_each_other(
    place: Place, clock: ManualClock
):
    """A step may end leases early or go unnoticed, but all calls agree, and fences rise."""
    ann = await place.take("ann", ttl=30)
    clock.step(HOUR)
    answer = await place.ask("ben", ttl=30)
    if isinstance(answer, Granted):
        assert await renew(place.store, ann) == [False]
        assert await place.holder() == "ben"
        assert answer.lease.fence > ann.fence
    else:
        assert 0 < answer.retry_in <= 30
        assert await place.holder() == "ann"
        assert await renew(place.store, ann) == [True]
    clock.shift(30)
    assert (await place.take("cid")).fence > ann.fence


async def test_after_a_step_forward_and_back_the_store_still_works(
    store: Store, clock: ManualClock
):
    fences = []
    for step in (HOUR, -2 * HOUR, HOUR, -HOUR):
        lease = await take(store, "key", f"h{step}{len(fences)}", ttl=30)
        fences.append(lease.fence)
        assert lease.expires_in == pytest.approx(30)
        assert lease.held_for == 0
        await be_refused(store, "key", "ben")
        clock.step(step)
        await look(store)
        clock.shift(30)
    assert fences == sorted(set(fences))


async def look(store: Store) -> None:
    """Look: every lease has at most its ttl left."""
    await store.leases.acquire("key", holder="look", limit=1, ttl=MOMENT, meta={})
    assert all(lease.expires_in <= lease.ttl for lease in await store.leases.find())
