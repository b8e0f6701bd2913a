import pytest

from tenure.core.leases import Lease
from tenure.stores.contract import Store
from tenure.testing import ManualClock
from tests.contract.calls import be_refused, renew, take
from tests.contract.conftest import Place

pytestmark = pytest.mark.leases


def names(leases: list[Lease]) -> list[str]:
    return [lease.key for lease in leases]


async def test_an_empty_store_lists_no_leases(store: Store):
    assert await store.leases.find() == []
    assert await store.leases.find("any") == []


async def test_a_lease_is_listed_as_it_stands_now(place: Place, clock: ManualClock):
    lease = await place.take("ann", ttl=30, meta={"host": "a1"})
    clock.shift(12)
    (now,) = [lease for lease in await place.store.leases.find() if lease.holder == "ann"]
    assert (now.key, now.fence, now.limit) == (place.key, lease.fence, place.limit)
    assert (now.ttl, now.meta, now.waiting) == (30, {"host": "a1"}, False)
    assert now.expires_in == pytest.approx(18)
    assert now.held_for == pytest.approx(12)


async def test_a_listed_lease_can_be_renewed_and_released(place: Place, clock: ManualClock):
    await place.take("ann", ttl=30)
    clock.shift(12)
    (now,) = [lease for lease in await place.store.leases.find() if lease.holder == "ann"]
    assert await renew(place.store, now) == [True]
    assert await place.store.leases.release([now]) == [True]


async def test_ended_leases_are_not_listed(place: Place, clock: ManualClock):
    await place.take("ann", ttl=30)
    await place.be_refused("ben", waiting=30)
    clock.shift(30)
    assert await place.holder() is None
    assert await place.line() == []


async def test_leases_come_by_fence_and_then_waiters_by_arrival(store: Store, clock: ManualClock):
    for holder in ("zoe", "ann", "mia"):
        await take(store, "key", holder, limit=3, ttl=100)
        clock.shift(1)
    for holder in ("yan", "ben", "lea"):
        await be_refused(store, "key", holder, limit=3, waiting=100)
        clock.shift(1)
    listed = await store.leases.find()
    assert [lease.holder for lease in listed] == ["zoe", "ann", "mia", "yan", "ben", "lea"]
    assert [lease.waiting for lease in listed] == [False] * 3 + [True] * 3


async def test_renewing_does_not_change_the_order(store: Store, clock: ManualClock):
    leases = [await take(store, "key", holder, limit=3) for holder in ("ann", "ben", "cid")]
    await be_refused(store, "key", "dee", limit=3, waiting=60)
    await be_refused(store, "key", "eve", limit=3, waiting=60)
    clock.shift(1)
    await renew(store, *leases[:1])
    await be_refused(store, "key", "dee", limit=3, waiting=90)
    assert [lease.holder for lease in await store.leases.find()] == [
        "ann",
        "ben",
        "cid",
        "dee",
        "eve",
    ]


async def test_keys_come_in_code_point_order(store: Store):
    keys = [
        "a",
        "Z",
        "a b",
        "a:b",
        "aa",
        "ab",
        "é",
        "e\u0301",
        "z",
        "\ue000",
        "\U0001f600",
        "10",
        "9",
    ]
    for key in keys:
        await take(store, key, "ann")
        await be_refused(store, key, "ben", waiting=60)
    assert names(await store.leases.find()) == [key for key in sorted(keys) for _ in range(2)]


async def test_only_keys_with_the_prefix_are_listed(store: Store):
    for key in ("a", "ab", "abc", "b", "ba", "Ab"):
        await take(store, key, "ann")
    assert names(await store.leases.find("ab")) == ["ab", "abc"]
    assert names(await store.leases.find("b")) == ["b", "ba"]
    assert names(await store.leases.find("abcd")) == []
    assert names(await store.leases.find("")) == ["Ab", "a", "ab", "abc", "b", "ba"]


@pytest.mark.parametrize(
    ("prefix", "hit", "miss"),
    [
        ("a%", "a%b", "axb"),
        ("a_", "a_b", "axb"),
        ("a*", "a*b", "axb"),
        ("a?", "a?b", "axb"),
        ("a[b", "a[b]c", "abc"),
        ("a\\", "a\\b", "ab"),
        ("a\\%", "a\\%", "a%"),
        ("'", "'b", "b"),
        ("É", "École", "école"),
        ("z\U0010ffff", "z\U0010ffffz", "zz"),
        ("\ud7ff", "\ud7ff1", "\ue000"),
        ("a ", "a b", "ab"),
    ],
)
async def test_a_prefix_is_taken_literally(store: Store, prefix: str, hit: str, miss: str):
    for key in (hit, miss):
        await take(store, key, "ann")
        await be_refused(store, key, "ben", waiting=60)
    assert names(await store.leases.find(prefix)) == [hit, hit]


async def test_a_listing_keeps_its_limit(store: Store):
    for key in ("a", "b"):
        await take(store, key, "ann", limit=2)
        await take(store, key, "ben", limit=2)
        await be_refused(store, key, "cid", limit=2, waiting=60)
    everything = await store.leases.find()
    assert len(everything) == 6
    for length in range(1, 8):
        assert await store.leases.find(limit=length) == everything[:length]
    assert await store.leases.find("b", limit=2) == everything[3:5]


async def test_listing_changes_nothing(store: Store, clock: ManualClock):
    await take(store, "key", "ann", ttl=30)
    await be_refused(store, "key", "ben", waiting=20)
    clock.shift(10)
    first = await store.leases.find()
    assert await store.leases.find() == first
    assert [lease.expires_in for lease in first] == pytest.approx([20, 10])
