"""took_over: a grant says whether it takes the place of a lease that was never released."""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

import msgspec
import pytest

from tenure.core.leases import EXPIRED_MAX, Granted, Lease
from tenure.stores.contract import Store
from tenure.testing import ManualClock
from tests.contract.calls import TTL, ask, be_refused, fill, renew, take
from tests.contract.conftest import AGES, Place
from tests.contract.worlds import YOURS, World

pytestmark = pytest.mark.leases

Step: TypeAlias = Callable[[Place, ManualClock, Lease], Awaitable[object]]


async def took_over(store: Store, key: str, holder: str, **details) -> bool:
    """Acquire, be granted, and return whether the grant takes over."""
    answer = await ask(store, key, holder, **details)
    assert isinstance(answer, Granted)
    return answer.took_over


async def end(place: Place, clock: ManualClock, lease: Lease) -> None:
    clock.shift(lease.ttl)


async def release(place: Place, clock: ManualClock, lease: Lease) -> None:
    await place.store.leases.release([lease])


async def release_unknown_fence(place: Place, clock: ManualClock, lease: Lease) -> None:
    await place.store.leases.release([Lease(key=lease.key, holder=lease.holder)])


async def keep(place: Place, clock: ManualClock, lease: Lease) -> None:
    assert await renew(place.store, msgspec.structs.replace(lease, ttl=5.0, kept=True)) == [True]


async def renew_as_before(place: Place, clock: ManualClock, lease: Lease) -> None:
    await renew(place.store, lease)


async def look(place: Place, clock: ManualClock, lease: Lease) -> None:
    await place.store.leases.find()


async def wait_almost_a_day(place: Place, clock: ManualClock, lease: Lease) -> None:
    clock.shift(86_399)


async def another_is_refused(place: Place, clock: ManualClock, lease: Lease) -> None:
    await place.be_refused("cem")


async def another_waits(place: Place, clock: ManualClock, lease: Lease) -> None:
    await place.be_refused("ben", waiting=AGES)


async def discard(place: Place, clock: ManualClock, lease: Lease) -> None:
    assert await place.store.leases.discard(lease.key)


async def prune(place: Place, clock: ManualClock, lease: Lease) -> None:
    await place.store.leases.release(place.others)
    await place.store.prune(idle=0)


async def prune_idle(place: Place, clock: ManualClock, lease: Lease) -> None:
    await place.store.prune(idle=TTL + 1)


async def hold_on(place: Place, clock: ManualClock, lease: Lease) -> None:
    clock.shift(lease.ttl - 1)
    assert await renew(place.store, lease) == [True]


async def prune_when_idle(place: Place, clock: ManualClock, lease: Lease) -> None:
    await place.store.leases.release(place.others)
    clock.shift(TTL + 1)
    await place.store.prune(idle=TTL + 1)


async def repeat(place: Place, clock: ManualClock, lease: Lease) -> None:
    assert not await took_over(place.store, place.key, "ann", limit=place.limit)


STORIES: dict[str, tuple[list[Step], bool]] = {
    "never released": ([end], True),
    "never released, and acquired almost a day later": ([end, wait_almost_a_day], True),
    "seen by others after its end, and acquired almost a day later": (
        [end, look, wait_almost_a_day],
        True,
    ),
    "renewed once": ([renew_as_before, end], True),
    "acquired again by its holder": ([repeat, end], True),
    "seen by others after its end": ([end, look, renew_as_before], True),
    "its holder is known by its id alone": ([end, release_unknown_fence], True),
    "another waits, and a third is refused": (
        [another_waits, end, another_is_refused, look],
        True,
    ),
    "pruned before it is idle": ([end, prune_idle], True),
    "seen, and pruned before it is idle": ([end, look, prune_idle], True),
    "held for long, and pruned soon after its end": ([hold_on, hold_on, end, prune_idle], True),
    "held for long, seen, and pruned soon after its end": (
        [hold_on, hold_on, end, look, prune_idle],
        True,
    ),
    "held for long, released by its id alone after its end, and pruned soon": (
        [hold_on, hold_on, end, release_unknown_fence, prune_idle],
        True,
    ),
    "held for long, and pruned soon after its end, while another waits": (
        [another_waits, hold_on, hold_on, end, prune_idle],
        True,
    ),
    "released": ([release], False),
    "released, and seen": ([release, look], False),
    "released while another waits": ([another_waits, release], False),
    "released by holder": ([release_unknown_fence], False),
    "released twice": ([release, release], False),
    "released late": ([end, release], False),
    "released late, after others saw its end": ([end, look, release, look], False),
    "released late, while another waits": ([another_waits, end, release], False),
    "released late, after a third was refused": (
        [another_waits, end, another_is_refused, release],
        False,
    ),
    "kept for a while": ([keep, end], False),
    "kept for a while, and renewed": ([keep, renew_as_before, end], False),
    "kept for a while, while another waits": ([another_waits, keep, end, look], False),
    "discarded": ([discard], False),
    "discarded after its end": ([end, discard], False),
    "discarded after others saw its end": ([end, look, discard], False),
    "pruned": ([end, prune], False),
    "pruned after others saw its end": ([end, look, prune], False),
    "held for long, and pruned long after its end": (
        [hold_on, hold_on, end, prune_idle, prune_when_idle],
        False,
    ),
}


@pytest.mark.parametrize(("steps", "expected"), STORIES.values(), ids=STORIES)
async def test_a_grant_takes_over_what_was_never_released(
    place: Place, clock: ManualClock, steps: list[Step], expected: bool
):
    lease = await place.take("ann", ttl=TTL)
    for step in steps:
        await step(place, clock, lease)
    answer = await took_over(place.store, place.key, "ben", limit=place.limit)
    assert answer is expected, f"took_over must be {expected} after {[s.__name__ for s in steps]}"


async def test_a_prune_after_long_holds_leaves_a_semaphore_to_take_over(
    store: Store, clock: ManualClock
):
    leases = [await take(store, "gpu", holder, limit=3, ttl=TTL) for holder in "abc"]
    for _ in range(2):
        clock.shift(TTL - 1)
        assert await renew(store, *leases) == [True] * 3
    clock.shift(TTL)
    await store.prune(idle=TTL + 1)
    assert [await took_over(store, "gpu", holder, limit=3) for holder in "de"] == [True, True]
    await store.leases.discard("gpu")
    await store.prune(idle=0)
    assert not await took_over(store, "gpu", "f", limit=3)


async def test_the_first_grant_of_a_key_takes_nothing_over(place: Place):
    assert not await took_over(place.store, place.key, "ann", limit=place.limit)


async def test_one_grant_takes_over_and_no_later_one(place: Place, clock: ManualClock):
    await place.take("ann")
    clock.shift(TTL)
    assert await took_over(place.store, place.key, "ben", limit=place.limit)
    assert not await took_over(place.store, place.key, "ben", limit=place.limit)  # a repeat
    await place.store.leases.release([Lease(key=place.key, holder="ben")])
    assert not await took_over(place.store, place.key, "cem", limit=place.limit)


async def test_a_lock_that_expires_each_time_is_taken_over_each_time(
    place: Place, clock: ManualClock
):
    await place.take("ann")
    for holder in ("ben", "cem", "dan"):
        clock.shift(TTL)
        assert await took_over(place.store, place.key, holder, limit=place.limit)


async def test_a_late_release_takes_back_only_the_lease_that_it_names(
    place: Place, clock: ManualClock
):
    first = await place.take("ann")
    clock.shift(TTL)
    assert await took_over(place.store, place.key, "ben", limit=place.limit)
    clock.shift(TTL)
    assert await place.store.leases.release([first]) == [False]
    assert await took_over(place.store, place.key, "cem", limit=place.limit)


@pytest.mark.parametrize("waits", [False, True])
async def test_each_expired_place_of_a_semaphore_is_taken_over_once(
    store: Store, clock: ManualClock, waits: bool
):
    _, _, lease, _ = await fill(store, "gpu", {"a": 1, "b": 2, "c": AGES, "d": 2}, limit=4)
    if waits:
        await be_refused(store, "gpu", "e", limit=4, waiting=AGES)
    clock.shift(2)
    took = [await took_over(store, "gpu", holder, limit=4) for holder in "efg"]
    assert took == [True, True, True]
    await store.leases.release([lease])
    assert not await took_over(store, "gpu", "h", limit=4)


async def test_a_semaphore_whose_holders_all_died_is_taken_over_place_by_place(
    store: Store, clock: ManualClock
):
    leases = await fill(store, "gpu", dict.fromkeys("abc", 1.0), limit=3)
    clock.shift(1)
    await store.leases.find()
    assert await took_over(store, "gpu", "d", limit=3)
    await store.leases.release([Lease(key="gpu", holder="d")])
    assert await took_over(store, "gpu", "e", limit=3)
    assert await store.leases.release([leases[2]]) == [False]
    assert not await took_over(store, "gpu", "f", limit=3)


async def test_a_key_that_becomes_a_lock_keeps_count_of_expired_places(
    store: Store, clock: ManualClock
):
    await fill(store, "key", dict.fromkeys("ab", 1.0), limit=2)
    clock.shift(1)
    assert await took_over(store, "key", "c")
    await be_refused(store, "key", "d", waiting=AGES)
    await store.leases.release([Lease(key="key", holder="c")])
    assert await took_over(store, "key", "d")
    await store.leases.release([Lease(key="key", holder="d")])
    assert not await took_over(store, "key", "e")


async def test_a_large_semaphore_remembers_the_newest_hundred(
    store: Store, family: str, clock: ManualClock
):
    ages = {f"a{number}": 1.0 for number in range(EXPIRED_MAX + 3)}
    leases = await fill(store, "gpu", ages, limit=103)
    clock.shift(1)
    await store.leases.find()
    await store.leases.release(leases[:3])  # late, and forgotten: they leave all places to others
    took = [await took_over(store, "gpu", f"b{number}", limit=103) for number in range(103)]
    assert took[:EXPIRED_MAX] == [True] * EXPIRED_MAX
    # Another store may remember more.
    assert not any(took[EXPIRED_MAX:]) or family == YOURS


async def test_keys_and_namespaces_do_not_share_what_has_expired(world: World, clock: ManualClock):
    store, other = await world.store(), await world.store(f"{world.namespace}-b")
    await take(store, "key", "ann")
    clock.shift(TTL)
    await store.leases.find()
    assert not await took_over(store, "key-2", "ben")
    assert not await took_over(other, "key", "ben")
    assert await took_over(store, "key", "ben")


async def test_a_clock_that_steps_back_does_not_undo_an_end(place: Place, clock: ManualClock):
    await place.take("ann")
    clock.shift(TTL)
    await place.store.leases.find()
    clock.shift(-TTL)
    answer = await place.ask("ben")
    if isinstance(answer, Granted):
        assert answer.took_over
