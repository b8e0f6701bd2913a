"""guard: what it accepts and refuses. tests/locks/test_guard.py shows what it protects."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from tenure.core.leases import Granted, Lease
from tenure.errors import ConfigError
from tenure.stores.contract import Store
from tenure.stores.transaction import run_sync
from tenure.testing import ManualClock
from tests.contract.calls import ask, take
from tests.contract.conftest import Place
from tests.contract.ended_leases import EVERY_WAY, Gone
from tests.contract.worlds import World

pytestmark = pytest.mark.leases


@asynccontextmanager
async def transaction(world: World) -> AsyncIterator[object]:
    """Open a transaction of the user; None if the store has no transactions."""
    if world.family == "sqlite":
        db = sqlite3.connect(world.url.removeprefix("sqlite:///"), isolation_level=None)
        db.execute("BEGIN IMMEDIATE")
        yield db
        db.execute("ROLLBACK")
        db.close()
    elif world.family == "postgres":
        connection = await asyncpg.connect(world.url)
        await connection.execute("BEGIN")
        yield connection
        await connection.execute("ROLLBACK")
        await connection.close()
    else:
        yield None


async def guard(store: Store, connection: object, lease: Lease) -> bool:
    own = store.within(connection, "guard()")
    held = own.hold_lease(lease)
    return run_sync(held) if own.blocks else await held


async def test_an_object_that_is_no_connection_is_refused(store: Store):
    with pytest.raises(ConfigError, match="guard"):
        store.within(object(), "guard()")


async def test_only_stores_with_transactions_need_a_connection(store: Store):
    complaint = "Pass a" if store.traits.transactional else "no transactions"
    with pytest.raises(ConfigError, match=complaint):
        store.within(object(), "guard()")


async def test_stores_with_transactions_guard_live_leases(place: Place, world: World):
    lease = await place.take("ann", ttl=30)
    async with transaction(world) as connection:
        assert place.store.traits.transactional == (connection is not None)
        if connection is not None:
            assert await guard(place.store, connection, lease) is True
            assert await guard(place.store, connection, lease) is True


@pytest.mark.parametrize("gone", EVERY_WAY)
async def test_a_stale_lease_is_refused_and_changes_nothing(
    place: Place, world: World, clock: ManualClock, gone: Gone
):
    lease = await place.take("ann", ttl=30)
    await gone(place, clock, lease)
    before = await place.store.leases.find()
    async with transaction(world) as connection:
        if connection is not None:
            assert await guard(place.store, connection, lease) is False
    assert await place.store.leases.find() == before


async def test_a_guarded_lease_that_is_released_late_is_not_taken_over(
    store: Store, world: World, clock: ManualClock
):
    lease = await take(store, "key", "ann", ttl=30)
    async with transaction(world) as connection:
        if world.family == "postgres":  # elsewhere a release is kept out, or there is no guard
            assert await guard(store, connection, lease)
            clock.shift(30)
            assert await store.leases.release([lease]) == [False]
    if world.family != "postgres":
        clock.shift(30)
        assert await store.leases.release([lease]) == [False]
    answer = await ask(store, "key", "ben")
    assert isinstance(answer, Granted)
    assert not answer.took_over
