import msgspec
import pytest

from tenure.core.leases import Lease
from tenure.stores.contract import Store
from tenure.testing import ManualClock
from tests.contract.calls import be_refused, holders, line, take
from tests.contract.conftest import Place
from tests.contract.worlds import World

pytestmark = pytest.mark.leases


async def test_a_released_lease_has_ended(place: Place):
    lease = await place.take("ann")
    assert await place.store.leases.release([lease]) == [True]
    assert await place.holder() is None


async def test_releasing_twice_is_harmless(place: Place):
    lease = await place.take("ann")
    assert await place.store.leases.release([lease]) == [True]
    assert await place.store.leases.release([lease]) == [False]
    assert await place.holder() is None


async def test_releasing_twice_in_one_batch_ends_it_once(place: Place):
    lease = await place.take("ann")
    assert await place.store.leases.release([lease, lease]) == [True, False]


async def test_releasing_too_late_is_harmless(place: Place, clock: ManualClock):
    lease = await place.take("ann", ttl=30)
    clock.shift(30)
    assert await place.store.leases.release([lease]) == [False]
    ben = await place.take("ben")
    assert await place.store.leases.release([lease]) == [False]
    assert await place.holder() == "ben"
    assert await place.store.leases.release([ben]) == [True]


async def test_a_newer_lease_of_the_same_holder_is_not_touched(place: Place):
    older = await place.take("ann")
    await place.store.leases.release([older])
    newer = await place.take("ann")
    assert await place.store.leases.release([older]) == [False]
    assert await place.holder() == "ann"
    assert await place.store.leases.release([newer]) == [True]


async def test_only_this_very_lease_is_released(place: Place):
    lease = await place.take("ann")
    strangers = [
        msgspec.structs.replace(lease, key="other"),
        msgspec.structs.replace(lease, holder="ben"),
        msgspec.structs.replace(lease, fence=lease.fence - 1),
        msgspec.structs.replace(lease, fence=lease.fence + 1),
    ]
    assert await place.store.leases.release(strangers) == [False] * 4
    assert await place.holder() == "ann"


async def test_a_release_without_a_fence_goes_by_the_holder_alone(place: Place):
    await place.take("ann")
    by_holder = Lease(key=place.key, holder="ann")
    stranger = Lease(key=place.key, holder="ben")
    assert await place.store.leases.release([stranger]) == [False]
    assert await place.holder() == "ann"
    assert await place.store.leases.release([by_holder]) == [True]
    assert await place.store.leases.release([by_holder]) == [False]
    assert await place.holder() is None


async def test_by_holder_alone_a_lease_that_ended_was_not_live(place: Place, clock: ManualClock):
    await place.take("ann", ttl=30)
    clock.shift(30)
    assert await place.store.leases.release([Lease(key=place.key, holder="ann")]) == [False]


async def test_by_holder_alone_other_keys_of_the_holder_stay(store: Store):
    for key in ("one", "two"):
        await take(store, key, "ann")
    assert await store.leases.release([Lease(key="one", holder="ann")]) == [True]
    assert (await holders(store, "one"), await holders(store, "two")) == ([], ["ann"])


@pytest.mark.parametrize("fence", [0, 7], ids=["by-holder", "by-fence"])
async def test_a_place_in_line_is_given_up(place: Place, fence: int):
    ann = await place.take("ann")
    for holder in ("ben", "cid"):
        await place.be_refused(holder, waiting=60)
    answer = await place.store.leases.release([Lease(key=place.key, holder="ben", fence=fence)])
    assert answer == [False]
    assert await place.line() == ["cid"]
    await place.store.leases.release([ann])
    await place.take("cid")


async def test_a_place_in_another_line_is_kept(store: Store):
    for key in ("one", "two"):
        await take(store, key, "ann")
        await be_refused(store, key, "ben", waiting=60)
    await store.leases.release([Lease(key="one", holder="ben")])
    assert (await line(store, "one"), await line(store, "two")) == ([], ["ben"])


async def test_every_lease_of_a_batch_gets_its_own_answer(store: Store, clock: ManualClock):
    short = await take(store, "short", "ann", ttl=1)
    live = [await take(store, f"live-{n}", "ann") for n in range(3)]
    never = Lease(key="never", holder="ann", fence=7)
    clock.shift(1)
    answers = await store.leases.release([live[0], short, live[1], never, live[2]])
    assert answers == [True, False, True, False, True]
    assert await store.leases.find() == []


async def test_releases_of_one_batch_may_be_of_one_key(store: Store):
    leases = [await take(store, "key", f"holder-{n}", limit=3) for n in range(3)]
    await be_refused(store, "key", "ben", limit=3, waiting=60)
    assert await store.leases.release([*leases, Lease(key="key", holder="ben")]) == [True] * 3 + [
        False
    ]
    assert await store.leases.find() == []


async def test_releasing_an_empty_batch_is_no_error(store: Store):
    assert await store.leases.release([]) == []


async def test_a_batch_may_be_large(store: Store):
    leases = [await take(store, f"key-{n % 10}", f"holder-{n}", limit=30) for n in range(300)]
    never = [msgspec.structs.replace(lease, key="never") for lease in leases]
    answers = await store.leases.release(
        [lease for pair in zip(leases, never, strict=True) for lease in pair]
    )
    assert answers == [True, False] * 300
    assert await store.leases.find() == []


async def test_releasing_a_lease_that_never_existed_leaves_no_trace(store: Store):
    assert await store.leases.release([Lease(key="never", holder="ann", fence=7)]) == [False]
    assert await store.leases.find() == []
    assert (await store.prune(idle=0)).leases == 0


async def test_any_store_object_may_release(world: World):
    mine, yours = await world.store(), await world.store()
    lease = await take(mine, "key", "ann")
    assert await yours.leases.release([lease]) == [True]
    assert await mine.leases.release([lease]) == [False]
