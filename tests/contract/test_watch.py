import asyncio

import pytest

from tenure.core.leases import Lease, Topic
from tenure.stores.contract import Store, Watch
from tenure.testing import ManualClock
from tests.contract.calls import be_refused, fill, take
from tests.contract.worlds import World
from tests.rig.sizes import SIZE

pytestmark = pytest.mark.leases

SOON = SIZE.patience


def of(holder: str) -> Topic:
    return ("lease", holder)


@pytest.fixture
async def here(real_world: World) -> Store:
    return await real_world.store()


@pytest.fixture
async def there(real_world: World) -> Store:
    return await real_world.store()


async def wake_ups_have_arrived(here: Store, there: Store) -> None:
    """Send one more wake-up and receive it: all earlier ones have then been received."""
    lease = await take(there, "last call", "caller")
    await be_refused(here, "last call", "listener", waiting=60)
    async with here.watch(of("listener")) as last_call:
        await there.leases.release([lease])
        assert await last_call.wait(SOON)
    await here.leases.release([Lease(key="last call", holder="listener")])


async def move_until(wait: asyncio.Task[bool], clock: ManualClock) -> None:
    """Move the clock until a wait ends: a store that polls goes by it."""
    async with asyncio.timeout(SOON):
        while not wait.done():
            await clock.advance(0.05)
            await asyncio.sleep(0.005)


async def rung(watch: Watch) -> bool:
    return await watch.wait(0)


async def test_a_release_wakes_only_the_first_in_line(here: Store, there: Store):
    ann = await take(there, "key", "ann")
    for holder in ("ben", "cid"):
        await be_refused(here, "key", holder, waiting=60)
    async with (
        here.watch(of("ann")) as holder,
        here.watch(of("ben")) as first,
        here.watch(of("cid")) as second,
    ):
        await there.leases.release([ann])
        assert await first.wait(SOON)
        await wake_ups_have_arrived(here, there)
        assert not await rung(second)
        assert not await rung(holder)


async def test_a_release_by_holder_alone_wakes_too(here: Store, there: Store):
    await take(there, "key", "ann")
    await be_refused(here, "key", "ben", waiting=60)
    async with here.watch(of("ben")) as first:
        await there.leases.release([Lease(key="key", holder="ann")])
        assert await first.wait(SOON)


async def test_a_release_on_the_same_store_object_wakes_too(here: Store):
    ann = await take(here, "key", "ann")
    await be_refused(here, "key", "ben", waiting=60)
    async with here.watch(of("ben")) as first:
        await here.leases.release([ann])
        assert await first.wait(SOON)


async def test_a_woken_waiter_can_acquire(here: Store, there: Store):
    ann = await take(there, "key", "ann")
    await be_refused(here, "key", "ben", waiting=60)
    async with here.watch(of("ben")) as first:
        await there.leases.release([ann])
        assert await first.wait(SOON)
        await take(here, "key", "ben")


async def test_a_release_without_waiters_wakes_no_watcher(here: Store, there: Store):
    ann = await take(there, "key", "ann")
    await take(there, "other", "ben")
    async with here.watch(of("ann"), of("ben"), of("key"), of("")) as watch:
        await there.leases.release([ann])
        await wake_ups_have_arrived(here, there)
        assert not await rung(watch)


async def test_a_release_that_makes_no_room_wakes_no_waiter(here: Store, there: Store):
    leases = await fill(there, "key", dict.fromkeys("vwxyz", 60.0), limit=5)
    await be_refused(here, "key", "ben", limit=3, waiting=60)
    async with here.watch(of("ben")) as watch:
        for lease in leases[:2]:
            await there.leases.release([lease])
        await wake_ups_have_arrived(here, there)
        assert not await rung(watch)
        await there.leases.release(leases[2:3])
        assert await watch.wait(SOON)


async def test_a_place_given_up_wakes_the_next_if_there_is_room(here: Store, there: Store):
    ann = await take(there, "key", "ann")
    for holder in ("ben", "cid"):
        await be_refused(here, "key", holder, waiting=60)
    async with here.watch(of("cid")) as second:
        await there.leases.release([Lease(key="key", holder="ben"), ann])
        assert await second.wait(SOON)


async def test_a_release_wakes_the_first_waiter_whose_place_has_not_expired(
    world: World, clock: ManualClock
):
    here, there = await world.store(), await world.store()
    leases = await fill(there, "key", {"ann": 60, "bob": 60}, limit=2)
    for holder, waiting in {"dead": 3, "ben": 60, "cid": 60}.items():
        await be_refused(here, "key", holder, limit=2, waiting=waiting)
    clock.shift(3)
    async with here.watch(of("dead")) as gone, here.watch(of("ben")) as first:
        wait = asyncio.create_task(first.wait(3600))
        await there.leases.release(leases[:1])
        await move_until(wait, clock)
        assert await wait is True
        assert not await rung(gone)


async def test_a_late_release_wakes_the_next_waiter_too(world: World, clock: ManualClock):
    here, there = await world.store(), await world.store()
    ann = await take(there, "key", "ann", ttl=30)
    await be_refused(here, "key", "ben", waiting=60)
    clock.shift(30)
    async with here.watch(of("ben")) as first:
        wait = asyncio.create_task(first.wait(3600))
        assert await there.leases.release([ann]) == [False]
        await move_until(wait, clock)
        assert await wait is True


async def test_a_waiter_with_a_smaller_limit_is_woken_before_waiters_behind_it(
    here: Store, there: Store
):
    leases = await fill(there, "key", dict.fromkeys("abcd", 60.0), limit=10)
    await be_refused(here, "key", "small", limit=3, waiting=60)
    await be_refused(here, "key", "large", limit=10, waiting=60)
    async with here.watch(of("small")) as first, here.watch(of("large")) as second:
        await there.leases.release(leases[:1])
        await wake_ups_have_arrived(here, there)
        assert not await rung(first)
        await there.leases.release(leases[1:2])
        assert await first.wait(SOON)
        await take(here, "key", "small", limit=3)
        await wake_ups_have_arrived(here, there)
        assert not await rung(second)
        await there.leases.release(leases[2:3])
        assert await second.wait(SOON)


async def test_a_waiter_with_a_small_limit_that_gives_up_wakes_the_waiters_behind_it(
    here: Store, there: Store
):
    await fill(there, "key", dict.fromkeys("abcd", 60.0), limit=10)
    for holder, limit in {"small": 3, "large": 10, "last": 10}.items():
        await be_refused(here, "key", holder, limit=limit, waiting=60)
    async with here.watch(of("large")) as second, here.watch(of("last")) as third:
        await there.leases.release([Lease(key="key", holder="small")])
        assert await second.wait(SOON)
        await take(here, "key", "large", limit=10)
        assert await third.wait(SOON)


async def test_a_grant_wakes_the_next_in_line_if_there_is_still_room(here: Store, there: Store):
    leases = await fill(there, "key", {"a": 60, "b": 60}, limit=2)
    for holder in ("ben", "cid", "dee"):
        await be_refused(here, "key", holder, limit=2, waiting=60)
    async with (
        here.watch(of("ben")) as first,
        here.watch(of("cid")) as second,
        here.watch(of("dee")) as third,
    ):
        await there.leases.release(leases)
        assert await first.wait(SOON)
        await wake_ups_have_arrived(here, there)
        assert not await rung(second)
        await take(there, "key", "ben", limit=2)
        assert await second.wait(SOON)
        await take(there, "key", "cid", limit=2)
        await wake_ups_have_arrived(here, there)
        assert not await rung(third)


async def test_a_wake_up_between_arming_and_waiting_is_not_lost(here: Store, there: Store):
    ann = await take(there, "key", "ann")
    await be_refused(here, "key", "ben", waiting=60)
    async with here.watch(of("ben")) as watch:
        await there.leases.release([ann])
        await wake_ups_have_arrived(here, there)
        assert await rung(watch)
        assert not await rung(watch)


async def test_a_watch_is_good_for_many_wake_ups(here: Store, there: Store):
    async with here.watch(of("ben")) as watch:
        for _ in range(5):
            ann = await take(there, "key", "ann")
            await be_refused(here, "key", "ben", waiting=60)
            await there.leases.release([ann])
            assert await watch.wait(SOON)
            await here.leases.release([await take(here, "key", "ben")])


async def test_a_watch_may_be_for_several_topics(here: Store, there: Store):
    async with here.watch(of("ben"), ("queue", "mail"), of("cid")) as watch:
        for holder in ("cid", "ben"):
            ann = await take(there, "key", "ann")
            await be_refused(here, "key", holder, waiting=60)
            await there.leases.release([ann])
            assert await watch.wait(SOON)
            await here.leases.release([await take(here, "key", holder)])


async def test_all_watches_of_a_waiter_on_its_store_object_are_woken(here: Store, there: Store):
    ann = await take(there, "key", "ann")
    await be_refused(here, "key", "ben", waiting=60)
    async with here.watch(of("ben")) as first, here.watch(of("ben")) as second:
        waits = [asyncio.create_task(watch.wait(SOON)) for watch in (first, second)]
        await there.leases.release([ann])
        assert await asyncio.gather(*waits) == [True, True]


async def test_a_waiter_is_woken_where_it_asked_last(here: Store, there: Store):
    ann = await take(there, "key", "ann")
    await be_refused(there, "key", "ben", waiting=60)
    await be_refused(here, "key", "ben", waiting=60)
    async with here.watch(of("ben")) as watch:
        await there.leases.release([ann])
        assert await watch.wait(SOON)


async def test_waiters_of_several_store_objects_are_woken_in_turn(here: Store, there: Store):
    ann = await take(there, "key", "ann")
    await be_refused(here, "key", "ben", waiting=60)
    await be_refused(there, "key", "cid", waiting=60)
    async with here.watch(of("ben")) as first, there.watch(of("cid")) as second:
        await there.leases.release([ann])
        assert await first.wait(SOON)
        await here.leases.release([await take(here, "key", "ben")])
        assert await second.wait(SOON)


async def test_leaving_one_watch_leaves_the_others(here: Store, there: Store):
    ann = await take(there, "key", "ann")
    await be_refused(here, "key", "ben", waiting=60)
    async with here.watch(of("ben")) as stays:
        async with here.watch(of("ben")):
            pass
        await there.leases.release([ann])
        assert await stays.wait(SOON)


async def test_one_namespace_does_not_wake_another(real_world: World, here: Store, there: Store):
    elsewhere = await real_world.store(f"{real_world.namespace}-other")
    ann = await take(elsewhere, "key", "ann")
    await be_refused(elsewhere, "key", "ben", waiting=60)
    async with here.watch(of("ben")) as watch, elsewhere.watch(of("ben")) as right:
        await elsewhere.leases.release([ann])
        assert await right.wait(SOON)
        await wake_ups_have_arrived(here, there)
        assert not await rung(watch)


@pytest.mark.parametrize("name", ["it's", "{x}", "a b", "100%_*", "läuft 🌍", "A", "x" * 200])
async def test_a_topic_may_have_any_name(here: Store, there: Store, name: str):
    ann = await take(there, "key", "ann")
    await be_refused(here, "key", name, waiting=60)
    async with here.watch(of(name)) as watch, here.watch(of(name.swapcase() + " ")) as other:
        await there.leases.release([ann])
        assert await watch.wait(SOON)
        await wake_ups_have_arrived(here, there)
        assert not await rung(other)


async def test_a_wait_without_a_wake_up_ends_after_its_time(store: Store, clock: ManualClock):
    async with store.watch(of("ben")) as watch:
        assert await watch.wait(0) is False
        wait = asyncio.create_task(watch.wait(2))
        await clock.advance(1.9)
        assert not wait.done()
        await clock.advance(0.1)
        assert await wait is False


async def test_a_wait_without_a_wake_up_ends_in_real_time_too(here: Store):
    async with here.watch(of("ben")) as watch:
        assert await watch.wait(0.02) is False


async def test_a_wait_without_a_limit_goes_on_until_the_wake_up(here: Store, there: Store):
    ann = await take(there, "key", "ann")
    await be_refused(here, "key", "ben", waiting=60)
    async with here.watch(of("ben")) as watch, asyncio.timeout(SOON):
        wait = asyncio.create_task(watch.wait(None))
        await wake_ups_have_arrived(here, there)
        assert not wait.done()
        await there.leases.release([ann])
        assert await wait is True


async def test_a_cancelled_wait_leaves_the_watch_usable(here: Store, there: Store):
    ann = await take(there, "key", "ann")
    await be_refused(here, "key", "ben", waiting=60)
    async with here.watch(of("ben")) as watch:
        wait = asyncio.create_task(watch.wait(None))
        await asyncio.sleep(0)
        wait.cancel()
        with pytest.raises(asyncio.CancelledError):
            await wait
        await there.leases.release([ann])
        assert await watch.wait(SOON)


async def test_wake_ups_come_while_the_clock_is_moved_by_hand(world: World, clock: ManualClock):
    here, there = await world.store(), await world.store()
    ann = await take(there, "key", "ann", ttl=3600)
    await be_refused(here, "key", "ben", waiting=3600)
    async with here.watch(of("ben")) as watch:
        wait = asyncio.create_task(watch.wait(3600))
        await there.leases.release([ann])
        await move_until(wait, clock)
        assert await wait is True
