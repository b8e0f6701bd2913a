"""Time in the SQLite store: restarts of the machine, steps of its clock, and power losses."""

from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tenure.stores.sqlite import SqliteStore
from tenure.stores.sqlite.database import Mode
from tenure.testing import ManualClock
from tests.contract.calls import be_refused, line, take
from tests.stores.sqlite.inside import HandClock, restarted


@pytest.fixture
def clock():
    return HandClock()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "tenure.db"


@asynccontextmanager
async def opened(file: Path, clock: ManualClock):
    store = SqliteStore(f"sqlite:///{file}", namespace="app", clock=clock)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


@pytest.fixture
async def store(file: Path, clock: ManualClock):
    async with opened(file, clock) as store:
        yield store


async def test_a_new_start_of_the_machine_ends_all_leases(file, clock):
    async with opened(file, clock) as store:
        lock = await take(store, "lock", "ann")
        await take(store, "semaphore", "ann", limit=2)
        await take(store, "semaphore", "ben", limit=2)
        await be_refused(store, "semaphore", "cid", limit=2, waiting=60)
    later = restarted(clock)
    async with opened(file, later) as store:
        assert await store.leases.find() == []
        assert await store.leases.renew([lock]) == [False]
        assert not await store.leases.mark("mark", lock, "value")
        ben = await take(store, "lock", "ben")
        assert ben.fence > lock.fence
        await take(store, "semaphore", "dan", limit=1)
        assert await line(store, "semaphore") == []


@pytest.mark.parametrize("limit", [1, 2])
async def test_without_a_boot_id_leases_from_before_live_one_ttl_at_most(file, clock, limit):
    clock.boot_id = ""
    clock.shift(1_000_000)
    async with opened(file, clock) as store:
        for number in range(limit):
            await take(store, "key", f"ann{number}", limit=limit, ttl=10)
        await be_refused(store, "key", "ben", limit=limit, waiting=5)
    later = restarted(clock, "")
    async with opened(file, later) as store:
        assert [lease.expires_in for lease in await store.leases.find()] == [10] * limit + [5]
        assert (await be_refused(store, "key", "cid", limit=limit)).retry_in == 10
        later.shift(5)
        assert await line(store, "key") == []
        assert (await be_refused(store, "key", "cid", limit=limit)).retry_in == 5
        later.shift(5)
        await take(store, "key", "cid", limit=limit)


async def test_the_wall_clock_ends_no_lease(clock, store):
    ann = await take(store, "key", "ann", ttl=10)
    clock.step(3600)
    assert (await be_refused(store, "key", "ben")).retry_in == 10
    clock.step(-7200)
    assert (await be_refused(store, "key", "ben")).retry_in == 10
    assert await store.leases.renew([ann]) == [True]


async def inside(store: SqliteStore, look):
    """Return what `look` does with the store's own connection, in its own thread."""
    return await store.run(lambda tx: look(tx._execute.__self__), Mode.READ)


async def forced(store: SqliteStore, call) -> bool:
    """Make a call; return whether its commit waited for the disk."""
    seen: list[str] = []
    await inside(store, lambda db: db.set_trace_callback(seen.append))
    await call
    await inside(store, lambda db: db.set_trace_callback(None))
    levels = [statement for statement in seen if statement.startswith("PRAGMA synchronous")]
    assert levels
    return levels[-1].endswith("FULL")


async def test_marks_are_on_the_disk_and_leases_need_not_be(store):
    ann = await take(store, "key", "ann")
    assert await forced(store, store.leases.mark("mark", ann, "value"))
    assert not await forced(store, store.leases.renew([ann]))


async def test_fences_that_only_the_disk_knows_are_on_the_disk(clock, store):
    ann = await take(store, "key", "ann")
    await store.leases.mark("mark", ann, "value")
    assert not await forced(store, take(store, "another key", "ann"))
    clock.step(-3600)
    assert await forced(store, take(store, "a third key", "ann"))
