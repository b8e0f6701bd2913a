import msgspec
import pytest

from tenure.core.leases import Lease, Mark
from tenure.stores.contract import Store
from tenure.testing import ManualClock
from tests.contract.calls import renew, take
from tests.contract.conftest import Place
from tests.contract.worlds import World

pytestmark = pytest.mark.leases


async def test_the_holder_of_a_live_lease_leaves_a_mark(place: Place):
    lease = await place.take("ann")
    assert await place.store.leases.mark("done", lease, "v1")
    assert await place.store.leases.marked(["done"]) == [Mark("done", "v1", lease.fence)]


async def test_an_unmarked_key_has_no_mark(store: Store):
    assert await store.leases.marked(["done"]) == [None]
    assert await store.leases.marked([]) == []


async def test_a_mark_may_be_replaced_under_the_same_lease(place: Place):
    lease = await place.take("ann")
    assert await place.store.leases.mark("done", lease, "v1")
    assert await place.store.leases.mark("done", lease, "v2")
    assert await place.store.leases.marked(["done"]) == [Mark("done", "v2", lease.fence)]


async def test_a_mark_may_be_replaced_under_a_newer_lease(place: Place):
    older = await place.take("ann")
    assert await place.store.leases.mark("done", older, "v1")
    await place.store.leases.release([older])
    newer = await place.take("ben")
    assert await place.store.leases.mark("done", newer, "v1")
    assert await place.store.leases.marked(["done"]) == [Mark("done", "v1", newer.fence)]


async def test_a_mark_may_be_replaced_under_a_lease_of_another_key(
    store: Store, clock: ManualClock
):
    lower = await take(store, "one", "ann")
    clock.shift(1)
    higher = await take(store, "two", "ben")
    assert await store.leases.mark("done", higher, "by two")
    assert await store.leases.mark("done", lower, "by one")
    assert await store.leases.marked(["done"]) == [Mark("done", "by one", lower.fence)]


@pytest.mark.parametrize("ended", ["released", "expired", "taken"])
async def test_a_repeat_is_true_even_after_the_lease_has_ended(
    place: Place, clock: ManualClock, ended: str
):
    lease = await place.take("ann", ttl=30)
    assert await place.store.leases.mark("done", lease, "v1")
    if ended == "released":
        await place.store.leases.release([lease])
    else:
        clock.shift(30)
    if ended == "taken":
        await place.take("ben")
    await place.store.prune(idle=0)
    assert await place.store.leases.mark("done", lease, "v1")
    assert await place.store.leases.marked(["done"]) == [Mark("done", "v1", lease.fence)]


async def test_after_the_end_only_the_very_same_mark_is_a_repeat(place: Place):
    lease = await place.take("ann")
    assert await place.store.leases.mark("done", lease, "v1")
    await place.store.leases.release([lease])
    assert not await place.store.leases.mark("done", lease, "v2")
    assert not await place.store.leases.mark("other", lease, "v1")
    older = msgspec.structs.replace(lease, fence=lease.fence - 1)
    assert not await place.store.leases.mark("done", older, "v1")
    assert await place.store.leases.marked(["done", "other"]) == [
        Mark("done", "v1", lease.fence),
        None,
    ]


async def test_a_repeat_after_the_mark_of_another_holder_is_refused(place: Place):
    older = await place.take("ann")
    await place.store.leases.mark("done", older, "v1")
    await place.store.leases.release([older])
    newer = await place.take("ben")
    await place.store.leases.mark("done", newer, "v2")
    assert not await place.store.leases.mark("done", older, "v1")
    assert await place.store.leases.marked(["done"]) == [Mark("done", "v2", newer.fence)]


async def test_only_this_very_lease_leaves_a_mark(place: Place):
    lease = await place.take("ann")
    await place.be_refused("ben", waiting=60)
    (waiter,) = [lease for lease in await place.store.leases.find() if lease.waiting]
    for stranger in (
        msgspec.structs.replace(lease, key="other"),
        msgspec.structs.replace(lease, holder="ben"),
        msgspec.structs.replace(lease, fence=lease.fence - 1),
        msgspec.structs.replace(lease, fence=lease.fence + 1),
        msgspec.structs.replace(lease, fence=0),
        waiter,
    ):
        assert not await place.store.leases.mark("done", stranger, "v1")
    assert await place.store.leases.marked(["done"]) == [None]


async def test_a_lease_is_no_longer_good_for_a_mark_at_the_instant_it_ends(
    place: Place, clock: ManualClock
):
    lease = await place.take("ann", ttl=30)
    clock.shift(30)
    assert not await place.store.leases.mark("done", lease, "v1")


async def test_a_mark_does_not_lengthen_the_lease(place: Place, clock: ManualClock):
    lease = await place.take("ann", ttl=30)
    clock.shift(20)
    assert await place.store.leases.mark("done", lease, "v1")
    clock.shift(10)
    assert await renew(place.store, lease) == [False]


async def test_a_mark_and_a_lease_may_have_the_same_key(store: Store):
    lease = await take(store, "key", "ann")
    assert await store.leases.mark("key", lease, "v1")
    assert [lease.holder for lease in await store.leases.find()] == ["ann"]
    await store.leases.release([lease])
    assert await store.leases.find() == []
    assert await store.leases.marked(["key"]) == [Mark("key", "v1", lease.fence)]


async def test_marks_are_returned_in_the_order_of_the_keys(store: Store):
    lease = await take(store, "key", "ann")
    for key in ("b", "a", "c"):
        assert await store.leases.mark(key, lease, f"of {key}")
    marks = await store.leases.marked(["c", "none", "a", "c", "b", "none"])
    assert [mark and mark.value for mark in marks] == ["of c", None, "of a", "of c", "of b", None]
    assert [mark and mark.key for mark in marks] == ["c", None, "a", "c", "b", None]


async def test_many_marks_are_read_at_once(store: Store):
    lease = await take(store, "key", "ann")
    assert await store.leases.mark("key-500", lease, "here")
    marks = await store.leases.marked([f"key-{number}" for number in range(1000)])
    assert [index for index, mark in enumerate(marks) if mark] == [500]


@pytest.mark.parametrize(
    "value", ["", "0", " v ", '{"a": "b\\n"}', "🌍 läuft\n", "x" * 100_000], ids=len
)
async def test_a_value_comes_back_unchanged(store: Store, value: str):
    lease = await take(store, "key", "ann")
    assert await store.leases.mark("done", lease, value)
    assert await store.leases.mark("done", lease, value)
    assert await store.leases.marked(["done"]) == [Mark("done", value, lease.fence)]


async def test_marks_are_never_pruned(store: Store, clock: ManualClock):
    lease = await take(store, "key", "ann")
    await store.leases.mark("key", lease, "v1")
    await store.leases.mark("done", lease, "v2")
    clock.shift(86_400 * 400)
    await store.prune(idle=0)
    assert [mark and mark.value for mark in await store.leases.marked(["key", "done"])] == [
        "v1",
        "v2",
    ]


async def test_marks_outlive_every_store_object(world: World):
    first = await world.store()
    lease = await take(first, "key", "ann")
    await first.leases.mark("done", lease, "v1")
    await first.close()
    second = await world.store()
    assert await second.leases.marked(["done"]) == [Mark("done", "v1", lease.fence)]


async def test_a_mark_needs_a_lease(store: Store):
    assert not await store.leases.mark("done", Lease(key="never", holder="ann", fence=7), "v1")
    assert await store.leases.marked(["done"]) == [None]
