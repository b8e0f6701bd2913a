import pytest

from tenure.core.leases import Busy, Granted
from tenure.stores.contract import Store
from tenure.testing import ManualClock
from tests.contract.calls import MOMENT, ask, be_refused, holders, line, take
from tests.contract.conftest import Place
from tests.contract.worlds import World

pytestmark = pytest.mark.leases


async def test_a_free_place_is_granted(place: Place):
    answer = await place.ask("ann", ttl=12.5, meta={"host": "a1"})

    assert isinstance(answer, Granted)
    assert answer.other_limit is None
    lease = answer.lease
    assert (lease.key, lease.holder, lease.limit) == (place.key, "ann", place.limit)
    assert (lease.ttl, lease.meta, lease.waiting) == (12.5, {"host": "a1"}, False)
    assert lease.expires_in == pytest.approx(12.5)
    assert lease.held_for == 0
    assert await place.holder() == "ann"


async def test_a_taken_place_is_refused_to_all_other_holders(place: Place, clock: ManualClock):
    await place.take("ann", ttl=30)
    clock.shift(12)

    answer = await place.be_refused("ben")

    assert answer.retry_in == pytest.approx(18)
    assert answer.ahead == 0
    assert answer.other_limit is None
    assert await place.holder() == "ann"


async def test_a_refused_caller_that_does_not_wait_leaves_nothing_behind(place: Place):
    await place.take("ann")
    await place.be_refused("ben")
    assert await place.line() == []


async def test_a_repeat_gets_the_same_lease_with_its_full_ttl(place: Place, clock: ManualClock):
    first = await place.take("ann", ttl=30)
    clock.shift(20)

    again = await place.take("ann", ttl=30)

    assert again.fence == first.fence
    assert again.expires_in == pytest.approx(30)
    assert again.held_for == pytest.approx(20)
    clock.shift(29)
    assert await place.holder() == "ann"


async def test_a_repeat_uses_its_own_ttl(place: Place, clock: ManualClock):
    await place.take("ann", ttl=30)
    again = await place.take("ann", ttl=10)
    assert (again.ttl, again.expires_in) == (10, pytest.approx(10))
    clock.shift(10)
    assert await place.holder() is None


async def test_a_repeat_keeps_the_limit_and_meta_of_the_grant(store: Store):
    await take(store, "key", "ann", limit=2, meta={"try": "first"})
    again = await take(store, "key", "ann", limit=3, meta={"try": "second"})
    assert (again.limit, again.meta) == (2, {"try": "first"})


async def test_a_repeat_never_joins_the_line(place: Place):
    first = await place.take("ann")
    await place.be_refused("ben", waiting=10)
    again = await place.take("ann", waiting=10)
    assert again.fence == first.fence
    assert await place.line() == ["ben"]


async def test_a_repeat_after_the_end_is_a_new_lease(place: Place, clock: ManualClock):
    first = await place.take("ann", ttl=30)
    clock.shift(30)
    again = await place.take("ann", ttl=30)
    assert again.fence > first.fence
    assert again.held_for == 0


@pytest.mark.parametrize("limit", [1, 2, 5, 20])
async def test_exactly_as_many_as_the_limit_are_admitted(store: Store, limit: int):
    answers = [await ask(store, "key", f"holder-{n}", limit=limit) for n in range(limit + 2)]
    assert [type(answer) for answer in answers] == [Granted] * limit + [Busy] * 2
    assert len(await holders(store, "key")) == limit


async def test_a_place_is_free_as_soon_as_it_is_released(place: Place):
    await place.store.leases.release([await place.take("ann")])
    await place.take("ben")
    assert await place.holder() == "ben"


async def test_a_place_is_free_at_the_very_instant_its_lease_ends(place: Place, clock: ManualClock):
    await place.take("ann", ttl=30)
    clock.shift(30 - MOMENT)
    answer = await place.be_refused("ben")
    assert answer.retry_in == pytest.approx(MOMENT)
    clock.shift(MOMENT)
    await place.take("ben")
    assert await place.holder() == "ben"


async def test_keys_are_independent_of_each_other(store: Store):
    await take(store, "one", "ann")
    await take(store, "two", "ann")
    await take(store, "three", "ben")
    await be_refused(store, "one", "ben", waiting=10)
    await take(store, "four", "ben")
    assert await line(store, "two") == []


async def test_every_store_object_of_a_world_sees_the_same_leases(world: World):
    mine, yours = await world.store(), await world.store()
    lease = await take(mine, "key", "ann")
    await be_refused(yours, "key", "ben")
    assert await take(yours, "key", "ann") == lease
    await yours.leases.release([lease])
    await take(mine, "key", "ben")


@pytest.mark.parametrize(
    "meta",
    [
        {},
        {"": ""},
        {"host": "web-1", "pid": "77"},
        {'"quoted"': "back\\slash", "läuft": "🌍\n\t", "json": '{"a": [1]}'},
        {"long": "x" * 1020},
    ],
    ids=["none", "empty", "plain", "odd", "long"],
)
async def test_meta_comes_back_unchanged(store: Store, meta: dict[str, str]):
    lease = await take(store, "key", "ann", meta=meta)
    assert lease.meta == meta
    assert (await take(store, "key", "ann", meta=meta)).meta == meta
    assert [lease.meta for lease in await store.leases.find()] == [meta]


@pytest.mark.parametrize("ttl", [0.25, 1.1, 0.333_333, 1.000_001, 86_400.0 * 365 * 10])
async def test_a_ttl_is_exact_to_the_microsecond(store: Store, clock: ManualClock, ttl: float):
    lease = await take(store, "key", "ann", ttl=ttl)
    assert (lease.ttl, lease.expires_in) == (pytest.approx(ttl), pytest.approx(ttl))
    clock.shift(ttl - MOMENT)
    await be_refused(store, "key", "ben")
    clock.shift(MOMENT)
    await take(store, "key", "ben")


async def test_a_limit_may_be_large(store: Store):
    for holder in ("ann", "ben"):
        lease = await take(store, "key", holder, limit=1_000_000)
        assert lease.limit == 1_000_000
    assert await holders(store, "key") == ["ann", "ben"]


async def test_the_stores_own_clock_ends_a_lease(real_world: World):
    store = await real_world.store()
    first = await take(store, "key", "ann", ttl=0.5)
    answer = await ask(store, "key", "ben", ttl=30)
    if isinstance(answer, Busy):  # unless this machine stood still for that long
        assert 0 < answer.retry_in <= 0.5
        await real_world.clock.sleep(answer.retry_in + 0.01)
        answer = await ask(store, "key", "ben", ttl=30)
    assert isinstance(answer, Granted)
    assert answer.lease.fence > first.fence
    assert answer.lease.expires_in == pytest.approx(30, abs=0.001)
