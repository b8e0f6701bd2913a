import pytest

from tenure.stores.contract import Store
from tenure.testing import ManualClock
from tests.contract.calls import MOMENT, be_refused, fill, holders, line, take
from tests.contract.conftest import AGES, Place

pytestmark = pytest.mark.leases


async def test_a_refused_caller_that_waits_joins_the_line(place: Place, clock: ManualClock):
    await place.take("ann")
    await place.be_refused("ben", ttl=20, waiting=5, meta={"host": "b1"})
    clock.shift(2)

    (waiter,) = [lease for lease in await place.store.leases.find() if lease.waiting]

    assert (waiter.key, waiter.holder, waiter.fence) == (place.key, "ben", 0)
    assert (waiter.ttl, waiter.limit, waiter.meta) == (20, place.limit, {"host": "b1"})
    assert waiter.expires_in == pytest.approx(3)
    assert waiter.held_for == pytest.approx(2)


async def test_waiters_are_served_in_order_of_arrival(place: Place, clock: ManualClock):
    ann = await place.take("ann")
    for holder in ("zoe", "ben", "mia"):
        await place.be_refused(holder, waiting=100)
        clock.shift(1)
    assert await place.line() == ["zoe", "ben", "mia"]

    await place.store.leases.release([ann])
    served = []
    while waiters := await place.line():
        for behind in waiters[1:]:
            await place.be_refused(behind, waiting=100)
        lease = await place.take(waiters[0])
        served.append(lease.holder)
        await place.store.leases.release([lease])
    assert served == ["zoe", "ben", "mia"]


async def test_the_order_of_arrival_is_kept_within_one_instant(place: Place):
    await place.take("ann")
    arrivals = ["mia", "ben", "zoe", "cid", "Ann", "9", "10"]
    for holder in arrivals:
        await place.be_refused(holder, waiting=100)
    assert await place.line() == arrivals


async def test_a_clock_stepped_back_does_not_let_newcomers_in_front(
    place: Place, clock: ManualClock
):
    await place.take("ann", ttl=100)
    await place.be_refused("ben", waiting=100)
    clock.step(-50)
    await place.be_refused("cid", waiting=100)
    assert await place.line() == ["ben", "cid"]


async def test_each_waiter_learns_how_many_are_ahead(place: Place):
    await place.take("ann")
    for ahead, holder in enumerate(["ben", "cid", "dee"]):
        assert (await place.be_refused(holder, waiting=10)).ahead == ahead
    assert (await place.be_refused("ben", waiting=10)).ahead == 0
    assert (await place.be_refused("dee", waiting=10)).ahead == 2
    assert (await place.be_refused("newcomer")).ahead == 3


async def test_a_newcomer_does_not_overtake_even_on_a_free_place(place: Place):
    ann = await place.take("ann")
    await place.be_refused("ben", waiting=10)
    await place.store.leases.release([ann])

    answer = await place.be_refused("newcomer", waiting=10)

    assert answer.ahead == 1
    assert await place.holder() is None
    await place.take("ben")


async def test_the_former_holder_is_a_newcomer(place: Place):
    ann = await place.take("ann")
    await place.be_refused("ben", waiting=10)
    await place.store.leases.release([ann])
    await place.be_refused("ann")
    await place.take("ben")


async def test_a_newcomer_is_admitted_if_there_is_room_for_all_waiters_ahead_too(store: Store):
    first = await fill(store, "key", dict.fromkeys("abcde", 30.0), limit=5)
    await be_refused(store, "key", "ben", limit=5, waiting=10)
    await store.leases.release(first[:1])
    await be_refused(store, "key", "newcomer", limit=5)
    await store.leases.release(first[1:2])
    await take(store, "key", "newcomer", limit=5)
    await be_refused(store, "key", "another", limit=5)
    await take(store, "key", "ben", limit=5)
    assert len(await holders(store, "key")) == 5


async def test_asking_again_keeps_the_place_and_renews_its_life(place: Place, clock: ManualClock):
    await place.take("ann", ttl=AGES)
    for holder in ("ben", "cid"):
        await place.be_refused(holder, waiting=3)
    for _ in range(5):
        clock.shift(2)
        for holder in ("cid", "ben"):
            await place.be_refused(holder, waiting=3)
    assert await place.line() == ["ben", "cid"]
    (ben, _) = [lease for lease in await place.store.leases.find() if lease.waiting]
    assert ben.expires_in == pytest.approx(3)
    assert ben.held_for == pytest.approx(10)


async def test_asking_again_replaces_the_wishes_of_a_waiter(store: Store):
    await take(store, "key", "ann")
    await be_refused(store, "key", "ben", limit=1, ttl=10, waiting=3, meta={"try": "first"})
    await be_refused(store, "key", "ben", limit=4, ttl=20, waiting=5, meta={"try": "second"})
    (_, waiter) = await store.leases.find()
    assert (waiter.limit, waiter.ttl, waiter.meta) == (4, 20, {"try": "second"})


async def test_asking_again_without_waiting_neither_loses_the_place_nor_renews_it(
    place: Place, clock: ManualClock
):
    await place.take("ann", ttl=AGES)
    await place.be_refused("ben", waiting=3)
    await place.be_refused("cid", waiting=10)
    clock.shift(2)
    assert (await place.be_refused("ben")).ahead == 0
    assert await place.line() == ["ben", "cid"]
    clock.shift(1)
    assert await place.line() == ["cid"]


async def test_a_dead_waiter_delays_others_no_longer_than_its_life(
    place: Place, clock: ManualClock
):
    ann = await place.take("ann")
    await place.be_refused("dead", waiting=3)
    await place.be_refused("ben", waiting=60)
    await place.store.leases.release([ann])

    clock.shift(3 - MOMENT)
    await place.be_refused("ben", waiting=60)
    clock.shift(MOMENT)
    await place.take("ben")


async def test_a_waiter_that_comes_back_after_its_life_is_last_in_line(
    place: Place, clock: ManualClock
):
    await place.take("ann", ttl=AGES)
    await place.be_refused("ben", waiting=3)
    await place.be_refused("cid", waiting=60)
    clock.shift(3)
    assert (await place.be_refused("ben", waiting=3)).ahead == 1
    assert await place.line() == ["cid", "ben"]


async def test_a_granted_waiter_leaves_the_line(place: Place):
    ann = await place.take("ann")
    await place.be_refused("ben", waiting=100)
    await place.store.leases.release([ann])
    lease = await place.take("ben", waiting=100)
    assert lease.held_for == 0
    assert await place.line() == []
    assert await place.holder() == "ben"


async def test_a_grant_uses_the_newest_wishes_of_a_waiter(store: Store, clock: ManualClock):
    ann = await take(store, "key", "ann")
    await be_refused(store, "key", "ben", limit=1, ttl=10, waiting=50, meta={"try": "first"})
    await store.leases.release([ann])
    clock.shift(1)
    lease = await take(store, "key", "ben", limit=2, ttl=20, meta={"try": "second"})
    assert (lease.limit, lease.ttl, lease.meta) == (2, 20, {"try": "second"})


async def test_a_line_is_for_one_key(store: Store):
    ann = await take(store, "key", "ann")
    await be_refused(store, "key", "ben", waiting=100)
    await take(store, "key2", "cid")
    await store.leases.release([ann])
    assert (await line(store, "key"), await line(store, "key2")) == (["ben"], [])
    await take(store, "ke", "cid")


async def test_a_holder_may_wait_for_several_keys(store: Store):
    for key in ("one", "two"):
        await take(store, key, "ann")
        await be_refused(store, key, "ben", waiting=100)
    await store.leases.release(
        [lease for lease in await store.leases.find("one") if not lease.waiting]
    )
    await take(store, "one", "ben")
    assert await line(store, "two") == ["ben"]


async def test_a_waiters_life_outlasts_the_lease_it_waits_for(place: Place, clock: ManualClock):
    await place.take("ann", ttl=30)
    await place.be_refused("ben", waiting=40)
    clock.shift(30)
    await place.be_refused("newcomer")
    await place.take("ben")


# retry_in: the end of the lease whose place the caller would get.


async def test_a_waiter_waits_for_the_lease_that_the_waiters_ahead_leave_to_it(store: Store):
    await fill(store, "key", {"late": 30, "soon": 10, "mid": 20}, limit=3)
    answers = [
        await be_refused(store, "key", holder, limit=3, waiting=100)
        for holder in ("ben", "cid", "dee", "eve", "fay")
    ]
    # No lease ends for the fourth and fifth waiter; the end of the last one is the best guess.
    assert [answer.retry_in for answer in answers] == pytest.approx([10, 20, 30, 30, 30])
    assert [answer.ahead for answer in answers] == [0, 1, 2, 3, 4]
    again = await be_refused(store, "key", "cid", limit=3, waiting=100)
    assert again.retry_in == pytest.approx(20)


async def test_after_retry_in_the_waiter_is_granted(store: Store, clock: ManualClock):
    await fill(store, "key", {"late": 30, "soon": 10, "mid": 20}, limit=3)
    for holder in ("ben", "cid", "dee"):
        await be_refused(store, "key", holder, limit=3, waiting=100)
    for holder in ("ben", "cid", "dee"):
        answer = await be_refused(store, "key", holder, limit=3, ttl=100, waiting=100)
        clock.shift(answer.retry_in - MOMENT)
        await be_refused(store, "key", holder, limit=3, ttl=100, waiting=100)
        clock.shift(MOMENT)
        await take(store, "key", holder, limit=3, ttl=100)


async def test_free_places_count_in_the_reported_wait(store: Store):
    leases = await fill(store, "key", {"a": 10, "b": 20, "c": 30}, limit=3)
    for holder in ("ben", "cid", "dee"):
        await be_refused(store, "key", holder, limit=3, waiting=100)
    await store.leases.release(leases[:1])
    # Two live leases: the first place goes to ben, so cid gets that of b, and dee that of c.
    retry_in = [
        (await be_refused(store, "key", holder, limit=3, waiting=100)).retry_in
        for holder in ("cid", "dee")
    ]
    assert retry_in == pytest.approx([20, 30])


async def test_the_smallest_limit_counts_in_the_reported_wait(store: Store):
    await fill(store, "key", {"a": 10, "b": 20, "c": 30}, limit=3)
    # With limit 2 there is a place when only one of the three is left.
    assert (await be_refused(store, "key", "ben", limit=2)).retry_in == pytest.approx(20)
    assert (await be_refused(store, "key", "ben", limit=1)).retry_in == pytest.approx(30)
    assert (await be_refused(store, "key", "ben", limit=9)).retry_in == pytest.approx(10)


async def test_without_any_lease_the_first_in_line_is_waited_for(place: Place, clock: ManualClock):
    for lease in (*place.others, await place.take("ann")):
        await place.store.leases.release([lease])
    for number in range(place.limit):
        await place.take(f"short-{number}", ttl=1)
    for number in range(place.limit):
        await place.be_refused(f"waiter-{number}", waiting=5 + number)
    clock.shift(1)
    answer = await place.be_refused("newcomer")
    assert answer.ahead == place.limit
    assert answer.retry_in == pytest.approx(4)


async def test_a_lease_that_was_renewed_is_waited_for_anew(place: Place, clock: ManualClock):
    lease = await place.take("ann", ttl=30)
    clock.shift(20)
    assert (await place.be_refused("ben", waiting=60)).retry_in == pytest.approx(10)
    await place.store.leases.renew([lease])
    assert (await place.be_refused("ben", waiting=60)).retry_in == pytest.approx(30)
