import pytest

from tenure.core.model import Granted
from tenure.stores.contract import Store
from tests.contract.calls import ask, be_refused, fill, holders, take


async def test_a_deploy_from_three_to_five_grows_when_the_last_old_holder_has_gone(store: Store):
    old = await fill(store, "key", dict.fromkeys(["o1", "o2", "o3"], 30.0), limit=3)
    for gone in range(3):
        answer = await be_refused(store, "key", f"n{gone}", limit=5)
        assert answer.other_limit == 3
        await store.release([old[gone]])
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
        await store.release([lease])
    await take(store, "key", "new", limit=3)
    answer = await be_refused(store, "key", "old", limit=5)
    assert answer.other_limit == 3


async def test_never_more_live_than_the_smallest_limit_among_them_allows(store: Store):
    """Whoever is admitted saw a limit for all that live; only a smaller newcomer waits longer."""
    limits = [5, 3, 4, 2, 5, 1, 3, 5, 2, 4] * 3
    for number, limit in enumerate(limits):
        answer = await ask(store, "key", f"h{number}", limit=limit)
        live = await store.leases("key")
        if isinstance(answer, Granted):
            assert len(live) <= min(lease.limit for lease in live)
        else:
            assert len(live) >= min([limit, *(lease.limit for lease in live)])
        if number % 3 == 2:
            await store.release(live[:1])


async def test_waiters_limits_bind_only_themselves(store: Store):
    """A place in line is no lease: the limit it was asked for with binds nobody yet."""
    leases = await fill(store, "key", dict.fromkeys("abcde", 30.0), limit=5)
    await be_refused(store, "key", "small", limit=1, waiting=100)
    await store.release(leases[:2])
    answer = await ask(store, "key", "large", limit=5)
    assert isinstance(answer, Granted)
    assert answer.other_limit is None
    assert (await be_refused(store, "key", "small", limit=1, waiting=100)).ahead == 0


@pytest.mark.parametrize(
    ("others", "limit", "told"),
    [
        ([], 3, None),
        ([3], 3, None),
        ([3, 3], 3, None),
        ([5], 3, 5),
        ([5, 5], 3, 5),
        ([5, 3], 3, 3),
        ([5, 4], 6, 4),
        ([3], 5, 3),
    ],
)
async def test_a_caller_is_told_of_another_limit(
    store: Store, others: list[int], limit: int, told: int | None
):
    for number, other in enumerate(others):
        await take(store, "key", f"other-{number}", limit=other)
    answer = await ask(store, "key", "ann", limit=limit)
    assert isinstance(answer, Granted)
    assert answer.other_limit == told


async def test_ones_own_lease_is_no_other_limit(store: Store):
    await take(store, "key", "ann", limit=3)
    answer = await ask(store, "key", "ann", limit=5)
    assert isinstance(answer, Granted)
    assert answer.other_limit is None


async def test_a_repeat_is_told_of_another_limit_too(store: Store):
    await take(store, "key", "ann", limit=3)
    await take(store, "key", "ben", limit=5)
    answer = await ask(store, "key", "ann", limit=3)
    assert isinstance(answer, Granted)
    assert answer.other_limit == 5


async def test_ended_leases_limit_nobody(store: Store):
    ann = await take(store, "key", "ann", limit=1)
    await store.release([ann])
    answer = await ask(store, "key", "ben", limit=2)
    assert isinstance(answer, Granted)
    assert answer.other_limit is None
    await take(store, "key", "cid", limit=2)
