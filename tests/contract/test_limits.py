import pytest

from tenure.core.leases import Granted, Lease
from tenure.stores.contract import Store
from tenure.testing import ManualClock
from tests.contract.calls import MOMENT, ask, be_refused, fill, holders, take

pytestmark = pytest.mark.leases


async def test_a_deploy_from_three_to_five_grows_when_the_last_old_holder_has_gone(store: Store):
    old = await fill(store, "key", dict.fromkeys(["o1", "o2", "o3"], 30.0), limit=3)
    for gone in range(3):
        answer = await be_refused(store, "key", f"n{gone}", limit=5)
        assert answer.other_limit == 3
        await store.leases.release([old[gone]])
        await take(store, "key", f"n{gone}", limit=5)
        assert len(await holders(store, "key")) == 3
    await take(store, "key", "n3", limit=5)
    await take(store, "key", "n4", limit=5)
    await be_refused(store, "key", "n5", limit=5)


async def test_a_deploy_back_from_five_to_three_admits_when_fewer_than_three_are_left(
    store: Store,
):
    old = await fill(store, "key", dict.fromkeys("vwxyz", 30.0), limit=5)
    for lease in old[:3]:
        answer = await be_refused(store, "key", "new", limit=3)
        assert answer.other_limit == 5
        await store.leases.release([lease])
    await take(store, "key", "new", limit=3)
    answer = await be_refused(store, "key", "old", limit=5)
    assert answer.other_limit == 3


async def test_never_more_live_than_the_smallest_limit_among_them_allows(store: Store):
    """A holder was admitted within its limit; only a newcomer with a smaller limit waits longer."""
    limits = [5, 3, 4, 2, 5, 1, 3, 5, 2, 4] * 3
    for number, limit in enumerate(limits):
        answer = await ask(store, "key", f"h{number}", limit=limit)
        live = await store.leases.find("key")
        if isinstance(answer, Granted):
            assert len(live) <= min(lease.limit for lease in live)
        else:
            assert len(live) >= min([limit, *(lease.limit for lease in live)])
        if number % 3 == 2:
            await store.leases.release(live[:1])


async def test_a_waiter_with_a_smaller_limit_is_not_overtaken(store: Store):
    leases = await fill(store, "key", dict.fromkeys("abcd", 30.0), limit=10)
    await be_refused(store, "key", "small", limit=3, waiting=100)
    assert (await be_refused(store, "key", "large", limit=10)).ahead == 1
    assert (await be_refused(store, "key", "large", limit=10, waiting=100)).ahead == 1
    await store.leases.release(leases[:1])
    for holder, limit in (("large", 10), ("small", 3)):
        await be_refused(store, "key", holder, limit=limit, waiting=100)
    await store.leases.release(leases[1:2])
    await be_refused(store, "key", "large", limit=10, waiting=100)
    await take(store, "key", "small", limit=3)
    await be_refused(store, "key", "large", limit=10, waiting=100)
    await store.leases.release(leases[2:3])
    await take(store, "key", "large", limit=10)


async def test_a_small_limit_is_served_while_large_ones_keep_asking(store: Store):
    """Holders leave in pairs and ask again at once; none of them may overtake the waiter."""
    leases = await fill(store, "key", {f"h{n}": 30.0 for n in range(10)}, limit=10)
    for pair in range(0, 8, 2):
        await be_refused(store, "key", "small", limit=3, waiting=100)
        await store.leases.release(leases[pair : pair + 2])
        for holder in ("again", "and again"):
            await be_refused(store, "key", holder, limit=10)
    await take(store, "key", "small", limit=3)
    assert await holders(store, "key") == ["h8", "h9", "small"]


async def test_the_limit_of_a_waiter_applies_only_to_waiters_behind_it(store: Store):
    leases = await fill(store, "key", {f"h{n}": 30.0 for n in range(5)}, limit=5)
    wishes = {"first": 5, "small": 2, "last": 5}
    for holder, limit in wishes.items():
        await be_refused(store, "key", holder, limit=limit, waiting=100)
    await store.leases.release(leases[:1])
    for holder in ("last", "small"):
        await be_refused(store, "key", holder, limit=wishes[holder], waiting=100)
    await take(store, "key", "first", limit=5)
    await store.leases.release(leases[1:4])
    await be_refused(store, "key", "small", limit=2, waiting=100)
    await store.leases.release(leases[4:])
    await take(store, "key", "small", limit=2)


async def test_places_between_are_counted_with_the_smallest_limit_ahead(store: Store):
    """Two of five places are held, three callers wait: the limit of the second binds the third."""
    leases = await fill(store, "key", dict.fromkeys("abcde", 30.0), limit=5)
    for holder, limit in {"first": 5, "small": 4, "last": 5}.items():
        await be_refused(store, "key", holder, limit=limit, waiting=100)
    await store.leases.release(leases[:3])
    await be_refused(store, "key", "last", limit=5, waiting=100)
    await take(store, "key", "small", limit=4)
    await take(store, "key", "first", limit=5)


async def test_the_limit_of_a_waiter_goes_with_its_place(store: Store, clock: ManualClock):
    await fill(store, "key", dict.fromkeys("abcd", 30.0), limit=10)
    await be_refused(store, "key", "gives up", limit=3, waiting=100)
    await be_refused(store, "key", "large", limit=10, waiting=100)
    await store.leases.release([Lease(key="key", holder="gives up")])
    await take(store, "key", "large", limit=10)

    await be_refused(store, "key", "dies", limit=3, waiting=2)
    await be_refused(store, "key", "another", limit=10)
    clock.shift(2)
    await take(store, "key", "another", limit=10)


async def test_asking_again_with_another_limit_replaces_the_first_one(store: Store):
    await fill(store, "key", dict.fromkeys("abcd", 30.0), limit=10)
    await be_refused(store, "key", "ben", limit=3, waiting=100)
    await be_refused(store, "key", "cid", limit=4, waiting=100)
    await be_refused(store, "key", "newcomer", limit=10)
    await be_refused(store, "key", "ben", limit=4, waiting=100)
    await take(store, "key", "ben", limit=6, waiting=100)
    await be_refused(store, "key", "newcomer", limit=10)
    await take(store, "key", "cid", limit=6, waiting=100)


async def test_a_caller_that_does_not_wait_limits_no_other(store: Store):
    await fill(store, "key", dict.fromkeys("abcd", 30.0), limit=10)
    await be_refused(store, "key", "small", limit=3)
    await take(store, "key", "large", limit=10)


async def test_the_smallest_limit_ahead_decides_the_reported_wait(store: Store, clock: ManualClock):
    await fill(store, "key", {"a": 10, "b": 20, "c": 30, "d": 40}, limit=10)
    small = await be_refused(store, "key", "small", limit=3, waiting=100)
    large = await be_refused(store, "key", "large", limit=10, waiting=100)
    assert (small.retry_in, large.retry_in) == (pytest.approx(20), pytest.approx(30))
    clock.shift(20)
    await take(store, "key", "small", limit=3, ttl=100)
    clock.shift(10 - MOMENT)
    await be_refused(store, "key", "large", limit=10, waiting=100)
    clock.shift(MOMENT)
    await take(store, "key", "large", limit=10)


@pytest.mark.parametrize(
    ("others", "limit", "other_limit"),
    [
        ([], 3, None),
        ([3], 3, None),
        ([3, 3], 3, None),
        ([5], 3, 5),
        ([5, 5], 3, 5),
        ([5, 3], 3, 5),
        ([5, 4], 6, 4),
        ([3], 5, 3),
    ],
)
async def test_a_grant_reports_another_limit(
    store: Store, others: list[int], limit: int, other_limit: int | None
):
    for number, other in enumerate(others):
        await take(store, "key", f"other-{number}", limit=other)
    answer = await ask(store, "key", "ann", limit=limit)
    assert isinstance(answer, Granted)
    assert answer.other_limit == other_limit


@pytest.mark.parametrize(
    ("others", "limit", "other_limit"),
    [([3, 3, 3], 3, None), ([5, 3, 3], 3, 5), ([6, 5, 3], 3, 5), ([5, 4, 4], 1, 4)],
)
async def test_a_refusal_reports_another_limit(
    store: Store, others: list[int], limit: int, other_limit: int | None
):
    for number, other in enumerate(others):
        await take(store, "key", f"other-{number}", limit=other)
    await be_refused(store, "key", "waits", limit=2, waiting=100)
    answer = await be_refused(store, "key", "ann", limit=limit)
    assert answer.other_limit == other_limit


async def test_the_lease_of_the_caller_does_not_count_as_another_limit(store: Store):
    await take(store, "key", "ann", limit=3)
    answer = await ask(store, "key", "ann", limit=5)
    assert isinstance(answer, Granted)
    assert answer.other_limit is None


async def test_a_repeated_grant_reports_another_limit_too(store: Store):
    await take(store, "key", "ann", limit=3)
    await take(store, "key", "ben", limit=5)
    for limit, other_limit in ((3, 5), (5, None)):
        answer = await ask(store, "key", "ann", limit=limit)
        assert isinstance(answer, Granted)
        assert answer.other_limit == other_limit


async def test_ended_leases_limit_no_caller(store: Store):
    ann = await take(store, "key", "ann", limit=1)
    await store.leases.release([ann])
    answer = await ask(store, "key", "ben", limit=2)
    assert isinstance(answer, Granted)
    assert answer.other_limit is None
    await take(store, "key", "cid", limit=2)
