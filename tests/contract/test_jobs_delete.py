"""Deleting jobs: a job that does not run goes with its key and its tags; a running one stays."""

import pytest

from tenure.core.jobs.records import BATCH_MAX, Unique
from tenure.core.jobs.states import STATES, JobState
from tenure.stores.contract import Store
from tenure.testing import ManualClock
from tests.contract.job_calls import (
    bring,
    claim_ids,
    id_of,
    insert,
    join,
    new,
    settle,
    start,
    states,
)

KEPT = Unique(key="key", digest="d", keep=60.0, with_job=True)
EVERYTHING = {"unfinished": 10, "recent": 10, "within": 1000.0}


@pytest.mark.parametrize("state", [state for state in STATES if state != "running"])
async def test_a_job_that_does_not_run_is_gone(store: Store, state: JobState):
    await bring(store, state, tags=("a", "b"))
    assert await store.jobs.delete([id_of(1)]) == ["deleted"]
    assert await store.jobs.get([id_of(1)]) == [None]
    for filters in ({}, {"state": state}, {"tag": "a"}, {"tag": "b"}):
        assert (await store.jobs.find(**filters)).jobs == []
    assert (await store.jobs.count_tagged("a", **EVERYTHING)).recent == 0
    assert await store.jobs.requeue([id_of(1)]) == [None]
    assert await store.jobs.delete([id_of(1)]) == [None]


async def test_a_running_job_stays(store: Store):
    before = await bring(store, "running", unique=KEPT, tags=("a",))
    assert await store.jobs.delete([id_of(1)]) == ["running"]
    assert await store.jobs.get([id_of(1)]) == [before]
    [answer] = await store.jobs.insert([new(2, unique=KEPT)])
    assert (answer.outcome, answer.id) == ("existing", id_of(1))
    assert [job.id for job in (await store.jobs.find(tag="a")).jobs] == [id_of(1)]


@pytest.mark.parametrize("delay", [0.0, 2.0])
async def test_a_deleted_waiting_job_never_starts(store: Store, clock: ManualClock, delay: float):
    await insert(store, new(1, delay=delay), new(2, delay=delay))
    assert await store.jobs.delete([id_of(1)]) == ["deleted"]
    [queue] = await store.jobs.counts()
    assert (queue.waiting, queue.running) == (1, 0)
    clock.shift(3)
    await join(store, "ann")
    assert await claim_ids(store) == [id_of(2)]
    assert await store.jobs.cancel([id_of(1)]) == [None]


async def test_a_job_that_waits_for_its_retry_is_deleted(store: Store, clock: ManualClock):
    (job,) = await start(store, new(1))
    await settle(store, job, "retry", delay=2)
    assert await store.jobs.delete([id_of(1)]) == ["deleted"]
    assert await store.jobs.counts() == []
    clock.shift(3)
    await join(store, "ann")
    assert await claim_ids(store) == []


@pytest.mark.parametrize("state", ["waiting", "succeeded"])
async def test_the_unique_key_of_a_deleted_job_is_free_at_once(store: Store, state: JobState):
    await bring(store, state, unique=KEPT)
    [answer] = await store.jobs.insert([new(2, unique=KEPT)])
    assert answer.outcome == "existing"
    assert await store.jobs.delete([id_of(1)]) == ["deleted"]
    [answer] = await store.jobs.insert([new(2, unique=KEPT)])
    assert (answer.outcome, answer.id) == ("created", id_of(2))


async def test_a_key_that_another_job_has_taken_since_stays_taken(store: Store):
    key = Unique(key="key", digest="d")
    await bring(store, "succeeded", unique=key)
    await insert(store, new(2, unique=key))
    assert await store.jobs.delete([id_of(1)]) == ["deleted"]
    [answer] = await store.jobs.insert([new(3, unique=key)])
    assert (answer.outcome, answer.id) == ("existing", id_of(2))


async def test_each_of_a_batch_gets_its_own_answer(store: Store):
    first, second, third = await start(store, new(1), new(2), new(3))
    await settle(store, first, "succeeded")
    await settle(store, third, "retry", delay=60)
    ids = [id_of(number) for number in (3, 1, 9, 2)]
    assert await store.jobs.delete(ids) == ["deleted", "deleted", None, "running"]
    assert await states(store, 1, 2, 3) == [None, "running", None]
    assert await settle(store, second, "succeeded") == "settled"


async def test_deleting_without_ids_changes_nothing(store: Store):
    assert await store.jobs.delete([]) == []


async def test_a_full_batch_is_deleted_in_one_call(store: Store):
    jobs = await start(store, *(new(number) for number in range(1, BATCH_MAX + 1)))
    for job in jobs:
        assert await settle(store, job, "succeeded") == "settled"
    await insert(store, new(BATCH_MAX + 1))
    assert await store.jobs.delete([job.id for job in jobs]) == ["deleted"] * BATCH_MAX
    assert [job.id for job in (await store.jobs.find()).jobs] == [id_of(BATCH_MAX + 1)]


async def test_an_id_that_was_deleted_can_be_used_again(store: Store, clock: ManualClock):
    await bring(store, "failed")
    assert await store.jobs.delete([id_of(1)]) == ["deleted"]
    clock.shift(1)
    await insert(store, new(1))
    await join(store, "ann")
    assert await claim_ids(store) == [id_of(1)]


async def test_a_late_settlement_of_a_deleted_job_is_answered_as_lost(store: Store):
    (job,) = await start(store, new(1))
    await settle(store, job, "failed")
    assert await store.jobs.delete([job.id]) == ["deleted"]
    assert await settle(store, job, "succeeded") == "lost"
    assert await store.jobs.get([job.id]) == [None]
