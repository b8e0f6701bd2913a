"""Unique keys that stay as long as their finished job is kept."""

import asyncio

import pytest

from tenure.core.jobs.records import Inserted, Unique
from tenure.core.jobs.states import JobState
from tenure.stores.contract import Store
from tenure.testing import ManualClock
from tests.contract.job_calls import (
    MOMENT,
    TTL,
    bring,
    claim,
    id_of,
    insert,
    join,
    new,
    prune_jobs,
    recover_all,
    settle,
    start_one,
    states,
)
from tests.rig.endings import bury

KEY = Unique(key="key", digest="d", keep=60, with_job=True)


async def is_taken(store: Store, number: int = 1) -> bool:
    """Return whether a job has the key, without taking it."""
    (answer,) = await store.jobs.insert([new(99, unique=Unique(key="key", digest="e"), delay=1000)])
    if answer.outcome == "created":
        await store.jobs.cancel([answer.id])
        return False
    assert answer == Inserted("mismatch", id_of(number))
    return True


async def stays_until_retention_ends(store: Store, clock: ManualClock, retention: float) -> None:
    clock.shift(retention - MOMENT)
    assert await store.jobs.insert([new(2, unique=KEY)]) == [Inserted("existing", id_of(1))]
    clock.shift(MOMENT)
    await insert(store, new(2, unique=KEY))


@pytest.mark.parametrize("state", ["succeeded", "failed", "cancelled"])
async def test_a_key_stays_for_the_retention_of_a_job_that_ended_late(
    store: Store, clock: ManualClock, state: JobState
):
    await insert(store, new(1, retention=30, unique=KEY))
    clock.shift(1000)
    await join(store, "ann")
    (job,) = await claim(store)
    assert await settle(store, job, state) == "settled"
    await stays_until_retention_ends(store, clock, 30)


async def test_a_key_stays_when_a_waiting_job_is_cancelled(store: Store, clock: ManualClock):
    await insert(store, new(1, retention=30, unique=KEY))
    clock.shift(1000)
    assert await store.jobs.cancel([id_of(1)]) == ["cancelled"]
    await stays_until_retention_ends(store, clock, 30)


async def test_a_key_stays_when_a_job_is_cancelled_on_its_way_back(
    store: Store, clock: ManualClock
):
    job = await start_one(store, retention=30, unique=KEY)
    await store.jobs.cancel([id_of(1)])
    clock.shift(1000)
    assert await settle(store, job, "retry") == "cancelled"
    assert await states(store, 1) == ["cancelled"]
    await stays_until_retention_ends(store, clock, 30)


async def test_a_key_stays_when_a_job_is_lost_for_good(store: Store, clock: ManualClock):
    await start_one(store, retention=30, unique=KEY)
    clock.shift(1000)
    (lost,) = await recover_all(store, delays=())
    assert lost.state == "failed"
    await stays_until_retention_ends(store, clock, 30)


async def test_a_key_stays_when_a_job_is_past_its_deadline(store: Store, clock: ManualClock):
    await start_one(store, retention=30, timeout=5, unique=KEY)
    for _ in range(100):
        clock.shift(TTL - 1)
        await store.jobs.beat(["ann"], ttl=TTL)
    (lost,) = await recover_all(store, delays=())
    assert lost.state == "failed"
    await stays_until_retention_ends(store, clock, 30)


async def test_a_key_stays_when_the_replica_of_its_job_is_buried(store: Store, clock: ManualClock):
    await start_one(store, retention=30, unique=KEY)
    clock.shift(1000)
    (lost,) = await bury(store, "ann", [id_of(1)], delays=())
    assert lost.state == "failed"
    await stays_until_retention_ends(store, clock, 30)


async def test_the_retention_does_not_shorten_the_time_of_a_key(store: Store, clock: ManualClock):
    await bring(store, "succeeded", retention=10, unique=KEY)
    await stays_until_retention_ends(store, clock, 60)


async def test_without_a_retention_a_late_end_frees_the_key(store: Store, clock: ManualClock):
    job = await start_one(store, retention=0, unique=KEY)
    clock.shift(1000)
    await settle(store, job, "succeeded")
    await insert(store, new(2, unique=KEY))


@pytest.mark.parametrize("unique", [Unique(key="key", with_job=True), Unique(key="key", keep=60)])
async def test_keys_that_do_not_stay_with_their_job_ignore_the_retention(
    store: Store, clock: ManualClock, unique: Unique
):
    job = await start_one(store, retention=30, unique=unique)
    clock.shift(1000)
    await settle(store, job, "succeeded")
    await insert(store, new(2, unique=unique))


async def test_a_pruner_makes_no_difference(store: Store, clock: ManualClock):
    job = await start_one(store, retention=30, unique=KEY)
    clock.shift(1000)
    await settle(store, job, "succeeded")
    clock.shift(30 - MOMENT)
    assert await prune_jobs(store) == 0
    assert await is_taken(store)
    clock.shift(MOMENT)
    assert await prune_jobs(store) == 1
    assert not await is_taken(store)


async def test_a_key_outlives_its_pruned_job_for_its_time(store: Store, clock: ManualClock):
    await bring(store, "succeeded", retention=10, unique=KEY)
    clock.shift(60 - MOMENT)
    assert await prune_jobs(store) == 1
    assert await is_taken(store)
    clock.shift(MOMENT)
    assert await prune_jobs(store) == 0
    assert not await is_taken(store)


async def test_a_requeued_job_keeps_its_key_for_its_new_end(store: Store, clock: ManualClock):
    job = await start_one(store, retention=30, unique=KEY)
    clock.shift(1000)
    await settle(store, job, "failed")
    clock.shift(29)
    assert await store.jobs.requeue([id_of(1)]) == ["requeued"]
    clock.shift(1000)
    assert await is_taken(store)
    await join(store, "bob")
    (job,) = await claim(store, "bob")
    await settle(store, job, "succeeded")
    await stays_until_retention_ends(store, clock, 30)


async def test_a_requeue_takes_a_key_for_its_time_again(store: Store, clock: ManualClock):
    await bring(store, "failed", retention=100, unique=KEY)
    clock.shift(99)
    assert await store.jobs.requeue([id_of(1)]) == ["requeued"]
    await store.jobs.cancel([id_of(1)])
    await stays_until_retention_ends(store, clock, 100)


async def test_a_key_that_stays_with_another_job_is_a_conflict(store: Store, clock: ManualClock):
    await bring(store, "failed", 1, retention=10_000, unique=Unique(key="key"))
    await insert(store, new(2, retention=30, unique=KEY))
    clock.shift(1000)
    await store.jobs.cancel([id_of(2)])
    clock.shift(30 - MOMENT)
    assert await store.jobs.requeue([id_of(1)]) == ["conflict"]
    clock.shift(MOMENT)
    assert await store.jobs.requeue([id_of(1)]) == ["requeued"]


async def test_an_insert_with_the_key_while_the_job_finishes_finds_the_job(
    store: Store, clock: ManualClock
):
    for number in range(1, 20):
        unique = Unique(key=f"key {number}", keep=1, with_job=True)
        job = await start_one(store, number, replica=f"r{number}", retention=500, unique=unique)
        clock.shift(10)
        rivals = [
            store.jobs.insert([new(1000 * number + place, unique=unique, delay=1000)])
            for place in range(4)
        ]
        settled, *answers = await asyncio.gather(settle(store, job, "succeeded"), *rivals)
        assert settled == "settled"
        assert answers == [[Inserted("existing", id_of(number))]] * 4
        assert await store.jobs.insert([new(1000 * number, unique=unique)]) == answers[0]
