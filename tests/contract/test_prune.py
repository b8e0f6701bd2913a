import pytest

from tenure.core.jobs.records import Pruned
from tenure.core.leases import Granted
from tenure.stores.contract import Store
from tenure.testing import ManualClock
from tests.contract.calls import (
    TTL,
    ask,
    be_refused,
    holders,
    line,
    prune_leases,
    renew,
    take,
    use,
)

pytestmark = pytest.mark.leases

DAY = 86_400.0


async def test_idle_keys_are_forgotten_once(store: Store, kept: int):
    await use(store, "one", "two", "three")
    assert await prune_leases(store, idle=0) == 3 * kept
    assert await prune_leases(store, idle=0) == 0


async def test_a_store_without_keys_has_nothing_to_forget(store: Store):
    assert await prune_leases(store, idle=0) == 0


async def test_live_leases_and_waiters_are_kept(store: Store, clock: ManualClock):
    lease = await take(store, "held", "ann", ttl=DAY * 2)
    await be_refused(store, "held", "ben", waiting=DAY * 2)
    gone = await take(store, "awaited", "ann")
    await be_refused(store, "awaited", "ben", waiting=DAY * 2)
    await store.leases.release([gone])
    clock.shift(DAY)

    assert await prune_leases(store, idle=0) == 0

    assert (await holders(store, "held"), await line(store, "held")) == (["ann"], ["ben"])
    assert (await holders(store, "awaited"), await line(store, "awaited")) == ([], ["ben"])
    assert await renew(store, lease) == [True]
    await be_refused(store, "awaited", "newcomer")


async def test_keys_are_kept_until_they_have_been_idle_for_long_enough(
    store: Store, clock: ManualClock, kept: int
):
    await use(store, "early")
    clock.shift(10)
    await use(store, "late")
    assert await prune_leases(store, idle=10.000_001) == 0
    assert await prune_leases(store, idle=10) == kept
    assert await prune_leases(store, idle=10) == 0
    clock.shift(10)
    assert await prune_leases(store, idle=10) == kept
    assert await prune_leases(store, idle=10) == 0


async def test_keys_whose_leases_ran_out_are_idle_too(store: Store, clock: ManualClock):
    await take(store, "key", "ann", ttl=30)
    await be_refused(store, "key", "ben", waiting=30)
    clock.shift(30)
    assert await prune_leases(store, idle=30) in (0, 1)
    assert await prune_leases(store, idle=30) == 0
    await take(store, "key", "cid")


async def test_a_prune_forgets_no_more_keys_than_its_limit(store: Store, kept: int):
    await use(store, *(f"key-{number}" for number in range(5)))
    counts = [await prune_leases(store, idle=0, limit=2) for _ in range(4)]
    assert counts == [2 * kept, 2 * kept, kept, 0]


async def test_the_answer_says_whether_more_keys_are_left(store: Store, kept: int):
    assert await store.prune(idle=0) == Pruned(0, 0, False)
    await use(store, *(f"key-{number}" for number in range(5)))
    assert await store.prune(idle=0, limit=3) == Pruned(3 * kept, 0, bool(kept))
    assert await store.prune(idle=0, limit=3) == Pruned(2 * kept, 0, False)


async def test_pruning_until_no_more_is_left_forgets_every_expired_lease(
    store: Store, clock: ManualClock
):
    for number in range(5):
        await take(store, f"key-{number}", "ann")
    clock.shift(TTL)
    calls = 1
    while (await store.prune(idle=0, limit=2)).more:
        calls += 1
        assert calls < 10, "prune says without end that there is more to remove"
    for number in range(5):
        answer = await ask(store, f"key-{number}", "ben")
        assert isinstance(answer, Granted)
        assert not answer.took_over, "prune has left an expired lease behind, and says it has not"


async def test_a_forgotten_key_starts_afresh(store: Store):
    first = await take(store, "key", "ann", limit=1)
    await store.leases.release([first])
    await store.prune(idle=0)
    second = await take(store, "key", "ben", limit=3)
    assert second.fence > first.fence
    await take(store, "key", "cid", limit=3)
    assert await renew(store, first) == [False]
    assert await store.leases.release([first]) == [False]
