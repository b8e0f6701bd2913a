"""Counting the jobs of a tag, for callers that limit their number."""

from typing import Any

import pytest

from tenure.core.jobs.records import BATCH_MAX, TAGGED_MAX, Tagged
from tenure.core.jobs.states import JobState
from tenure.stores.contract import Store
from tenure.testing import ManualClock
from tests.contract.job_calls import MOMENT, bring, id_of, insert, new, prune_jobs
from tests.contract.worlds import World

ANN = ("ann",)


async def count(store: Store, tag: str = "ann", **limits: Any) -> Tagged:
    return await store.jobs.count_tagged(
        tag, **{"unfinished": 100, "recent": 100, "within": 60.0, **limits}
    )


async def test_a_tag_without_jobs_counts_zero(store: Store):
    await insert(store, new(1), new(2, tags=("anna",)), new(3, tags=("an", "Ann")))
    assert await count(store) == Tagged(0, 0)


async def test_waiting_and_running_jobs_are_unfinished(store: Store):
    await bring(store, "running", 1, tags=ANN)
    await insert(store, new(2, tags=("x", "ann")), new(3, tags=ANN, delay=1000), new(4))
    assert await count(store) == Tagged(3, 3)


@pytest.mark.parametrize("state", ["succeeded", "failed", "cancelled"])
async def test_finished_jobs_still_count_as_recent(store: Store, state: JobState):
    await bring(store, state, tags=ANN, retention=100)
    assert await count(store) == Tagged(0, 1)


async def test_a_requeued_job_is_unfinished_again_and_keeps_its_age(
    store: Store, clock: ManualClock
):
    await bring(store, "failed", tags=ANN, retention=1000)
    clock.shift(100)
    await store.jobs.requeue([id_of(1)])
    assert await count(store) == Tagged(1, 0)


async def test_pruned_jobs_are_not_counted(store: Store):
    await bring(store, "succeeded", tags=ANN, retention=0)
    await prune_jobs(store)
    assert await count(store) == Tagged(0, 0)


async def test_a_job_is_recent_until_its_time_is_over(store: Store, clock: ManualClock):
    await insert(store, new(1, tags=ANN))
    clock.shift(20)
    await insert(store, new(2, tags=ANN))
    clock.shift(40 - MOMENT)
    assert await count(store) == Tagged(2, 2, 60 - MOMENT)
    clock.shift(MOMENT)
    assert await count(store) == Tagged(2, 1, 40)
    clock.shift(20)
    assert await count(store) == Tagged(2, 0)


async def test_the_age_of_a_job_does_not_depend_on_its_id(store: Store, clock: ManualClock):
    """Ids come from the clocks of other hosts."""
    await insert(store, new(9, tags=ANN))
    clock.shift(100)
    await insert(store, new(1, tags=ANN))
    assert await count(store) == Tagged(2, 1)


async def test_each_is_counted_up_to_its_limit_the_newest_first(store: Store, clock: ManualClock):
    for number in range(1, 6):
        await insert(store, new(number, tags=ANN))
        clock.shift(1)
    assert await count(store, unfinished=2, recent=3) == Tagged(2, 3, 3)
    assert await count(store, unfinished=5, recent=1) == Tagged(5, 1, 1)
    assert await count(store, unfinished=0, recent=0) == Tagged(0, 0)


async def test_the_newest_of_many_are_looked_at(store: Store):
    await insert(store, new(1, tags=ANN))
    assert await store.jobs.cancel([id_of(1)]) == ["cancelled"]
    await insert(store, new(2, tags=ANN))
    for first in range(3, TAGGED_MAX + 2, BATCH_MAX):
        numbers = range(first, min(first + BATCH_MAX, TAGGED_MAX + 2))
        await insert(store, *(new(number, tags=ANN, retention=100) for number in numbers))
        await store.jobs.cancel([id_of(number) for number in numbers])
    most = 10 * TAGGED_MAX
    assert await count(store, unfinished=1, recent=most) == Tagged(1, TAGGED_MAX)
    await insert(store, new(TAGGED_MAX + 2, tags=("other",)))
    assert await count(store, unfinished=1, recent=most) == Tagged(1, TAGGED_MAX)
    await bring(store, "running", TAGGED_MAX + 3, tags=ANN, priority=0)
    assert await count(store, recent=most) == Tagged(1, TAGGED_MAX)


async def test_a_tag_belongs_to_its_namespace(world: World, store: Store):
    await insert(store, new(1, tags=ANN))
    other = await world.store(namespace=f"{world.namespace}2")
    assert await count(other) == Tagged(0, 0)
