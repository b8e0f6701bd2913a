"""Stats: what beats leave in the store for readers, for an hour."""

import asyncio

import pytest

from tenure.core.jobs.replicas import STATS_FOR, STATS_MAX, Stats
from tenure.stores.contract import Store
from tenure.testing import ManualClock
from tests.contract.calls import MOMENT
from tests.contract.job_calls import TTL, join
from tests.contract.worlds import World
from tests.rig.endings import leave


async def beat(store: Store, stats: Stats | None, *replicas: str):
    return await store.jobs.beat(replicas or ["ann"], ttl=TTL, stats=stats)


async def test_what_a_beat_leaves_is_there_for_an_hour(store: Store, clock: ManualClock):
    await join(store, "ann")
    assert await store.jobs.stats() == []
    [answer] = await beat(store, Stats("a", b"\x00one\xff"))
    assert answer is not None
    clock.shift(STATS_FOR - MOMENT)
    assert await store.jobs.stats() == [b"\x00one\xff"]
    clock.shift(MOMENT)
    assert await store.jobs.stats() == []


async def test_the_last_value_of_a_source_counts(store: Store, clock: ManualClock):
    await join(store, "ann")
    for body in (b"1", b"2", b""):
        await beat(store, Stats("a", body))
        await beat(store, Stats("b", b"other"))
        assert await store.jobs.stats() == [body, b"other"]
    clock.shift(STATS_FOR - 1)
    await beat(store, Stats("b", b"new"))
    clock.shift(1)
    assert await store.jobs.stats() == [b"new"]


async def test_values_come_in_the_order_of_their_sources(store: Store, clock: ManualClock):
    """And not in that of their age: an answer that is cut is the same from look to look."""
    for source in ("c", "a", "b"):
        await beat(store, Stats(source, source.encode()))
        clock.shift(1)
    assert await store.jobs.stats() == [b"a", b"b", b"c"]


async def test_a_beat_without_stats_changes_none(store: Store, clock: ManualClock):
    await join(store, "ann")
    await beat(store, Stats("a", b"1"))
    clock.shift(1800)
    await beat(store, None)
    assert await store.jobs.stats() == [b"1"]
    clock.shift(1800)
    assert await store.jobs.stats() == []


async def test_they_outlive_the_replica(store: Store):
    """The hour before a deploy stays on the page."""
    await join(store, "ann")
    await beat(store, Stats("a", b"1"))
    await leave(store, "ann")
    assert await store.jobs.replicas() == []
    assert await store.jobs.stats() == [b"1"]
    assert await beat(store, Stats("a", b"2")) == [None]
    assert await store.jobs.stats() == [b"2"]


async def test_a_beat_for_no_replica_may_leave_some(store: Store):
    """A supervised worker leaves its own, while the supervisor beats for it."""
    assert await store.jobs.beat([], ttl=TTL, stats=Stats("a", b"1")) == []
    assert await store.jobs.stats() == [b"1"]


async def test_one_beat_may_be_for_many_replicas_and_let_them_join(store: Store):
    answers = await store.jobs.beat(["ann", "ben"], ttl=TTL, meta={}, stats=Stats("a", b"1"))
    assert None not in answers
    assert [record.id for record in await store.jobs.replicas()] == ["ann", "ben"]
    assert await store.jobs.stats() == [b"1"]


async def test_old_values_are_forgotten_and_an_answer_is_bounded(store: Store, clock: ManualClock):
    await join(store, "ann")
    for number in range(120):
        await beat(store, Stats(f"old {number:03}", b"o"))
    clock.shift(STATS_FOR)
    for number in range(3):
        await beat(store, Stats(f"new {number}", b"n"))
    assert await store.jobs.stats() == [b"n"] * 3
    assert STATS_MAX >= 120


@pytest.mark.parametrize("step", [-STATS_FOR * 2, -5.0])
async def test_a_clock_that_is_set_back_loses_none(store: Store, clock: ManualClock, step: float):
    await join(store, "ann")
    await beat(store, Stats("a", b"1"))
    clock.step(step)
    assert await store.jobs.stats() == [b"1"]
    await beat(store, Stats("a", b"2"))
    clock.shift(STATS_FOR)
    assert await store.jobs.stats() == []


async def test_namespaces_are_apart(world: World):
    here, there = await world.store(), await world.store(namespace=f"{world.namespace}-2")
    await beat(here, Stats("a", b"1"))
    assert await there.jobs.stats() == []
    await beat(there, Stats("a", b"2"))
    assert await here.jobs.stats() == [b"1"]


async def test_many_workers_leave_theirs_at_once(world: World):
    stores = [await world.store() for _ in range(3)]
    await join(stores[0], "ann")
    sources = [f"source {number:02}" for number in range(30)]
    await asyncio.gather(
        *(
            beat(stores[number % 3], Stats(source, source.encode()))
            for number, source in enumerate(sources * 2)
        )
    )
    assert await stores[1].jobs.stats() == [source.encode() for source in sources]
