"""Discarding a lease key, as an operator does when it cannot be read."""

import pytest

from tenure.stores.contract import Store
from tests.contract.calls import ask, holders, line, take

pytestmark = pytest.mark.leases


@pytest.mark.parametrize("limit", [1, 3])
async def test_all_leases_and_the_line_are_gone(store: Store, limit: int):
    leases = [await take(store, "key", f"ann-{number}", limit=limit) for number in range(limit)]
    await ask(store, "key", "ben", limit=limit, waiting=30)
    await take(store, "key-2", "cem")
    assert await store.leases.discard("key")
    assert await store.leases.find("key-2") != []
    assert await holders(store, "key") == []
    assert await line(store, "key") == []
    assert await store.leases.renew(leases) == [False] * limit
    assert not await store.leases.discard("key")
    newer = await take(store, "key", "dan", limit=limit)
    assert newer.fence > max(lease.fence for lease in leases)


async def test_discarding_an_unused_key_removes_nothing(store: Store):
    assert not await store.leases.discard("key")


async def test_a_discarded_key_has_all_its_places_free(store: Store):
    for holder in ("ann", "ben"):
        await take(store, "key", holder, limit=2)
    assert await store.leases.discard("key")
    for holder in ("cem", "dan"):
        await take(store, "key", holder, limit=2)
    assert sorted(await holders(store, "key")) == ["cem", "dan"]
