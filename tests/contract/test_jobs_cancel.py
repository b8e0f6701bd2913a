import pytest

from tenure.core.jobs.records import BATCH_MAX
from tenure.core.jobs.states import FINISHED, JobState
from tenure.stores.contract import Store
from tenure.testing import ManualClock
from tests.contract.job_calls import (
    MOMENT,
    bring,
    claim_ids,
    id_of,
    insert,
    join,
    look,
    new,
    prune_jobs,
    settle,
    start_one,
    states,
)
from tests.contract.worlds import World


@pytest.mark.parametrize("delay", [0.0, 60.0], ids=["due", "not due"])
async def test_a_waiting_job_is_cancelled_at_once(store: Store, clock: ManualClock, delay: float):
    await insert(store, new(1, delay=delay))
    before = await look(store)
    clock.shift(1)
    assert await store.jobs.cancel([id_of(1)], reason="läuft 🌍 nicht") == ["cancelled"]
    job = await look(store)
    assert (job.state, job.reason) == ("cancelled", "läuft 🌍 nicht")
    assert (job.finished, job.cancelling) == (clock.wall(), False)
    assert (job.attempt, job.failures, job.losses) == (0, 0, 0)
    assert job.revision > before.revision
    clock.shift(delay)
    await join(store, "ann")
    assert await claim_ids(store) == []


async def test_a_running_job_is_asked_to_stop(store: Store, clock: ManualClock):
    before = await start_one(store)
    clock.shift(1)
    assert await store.jobs.cancel([id_of(1)], reason="enough") == ["requested"]
    job = await look(store)
    assert (job.state, job.cancelling, job.reason) == ("running", True, "enough")
    assert (job.replica, job.fence, job.finished) == ("ann", before.fence, 0)
    assert job.revision > before.revision
    (beat,) = await store.jobs.beat(["ann"], ttl=10)
    assert beat is not None
    assert beat.cancels == [id_of(1)]


async def test_a_second_request_keeps_the_first_reason(store: Store):
    await start_one(store)
    await store.jobs.cancel([id_of(1)], reason="first")
    before = await look(store)
    assert await store.jobs.cancel([id_of(1)], reason="second") == ["requested"]
    assert await look(store) == before


async def test_a_first_request_without_a_reason_counts_too(store: Store):
    await start_one(store)
    await store.jobs.cancel([id_of(1)])
    await store.jobs.cancel([id_of(1)], reason="second")
    job = await look(store)
    assert (job.cancelling, job.reason) == (True, "")


@pytest.mark.parametrize("state", sorted(FINISHED))
async def test_cancelling_a_finished_job_changes_nothing(
    store: Store, clock: ManualClock, state: JobState
):
    before = await bring(store, state, retention=100)
    clock.shift(1)
    assert await store.jobs.cancel([id_of(1)], reason="late") == ["finished"]
    assert await look(store) == before


async def test_cancelling_an_unknown_job_is_answered_with_none(store: Store):
    assert await store.jobs.cancel([id_of(1)]) == [None]
    assert await states(store, 1) == [None]
    assert await store.jobs.cancel([]) == []


async def test_a_retried_job_is_cancelled_at_once_while_it_waits(store: Store):
    job = await start_one(store)
    await settle(store, job, "retry", error=b"why", delay=60)
    assert await store.jobs.cancel([id_of(1)], reason="enough") == ["cancelled"]
    after = await look(store)
    assert (after.state, after.error, after.failures) == ("cancelled", b"why", 1)
    assert (after.attempt, after.started) == (1, job.started)


async def test_a_cancelled_job_is_kept_for_its_retention(store: Store, clock: ManualClock):
    await insert(store, new(1, retention=60))
    await store.jobs.cancel([id_of(1)])
    clock.shift(60 - MOMENT)
    assert await prune_jobs(store) == 0
    clock.shift(MOMENT)
    assert await prune_jobs(store) == 1


async def test_every_id_of_a_call_gets_its_own_answer(store: Store):
    await bring(store, "running", 1)
    await bring(store, "succeeded", 2, retention=100)
    await bring(store, "waiting", 3)
    ids = [id_of(number) for number in (3, 9, 1, 2, 3)]
    answers = await store.jobs.cancel(ids, reason="all")
    assert answers == ["cancelled", None, "requested", "finished", "finished"]
    assert await states(store, 1, 2, 3) == ["running", "succeeded", "cancelled"]


async def test_a_full_batch_is_cancelled_in_one_call(store: Store):
    await insert(store, *(new(number) for number in range(BATCH_MAX)))
    ids = [id_of(number) for number in range(BATCH_MAX)]
    assert await store.jobs.cancel(ids) == ["cancelled"] * BATCH_MAX
    assert await store.jobs.cancel(ids) == ["finished"] * BATCH_MAX


async def test_a_cancel_ends_with_the_attempt_it_was_for(store: Store):
    job = await start_one(store, retention=100)
    await store.jobs.cancel([id_of(1)], reason="enough")
    await settle(store, job, "succeeded")
    assert await store.jobs.requeue([id_of(1)]) == ["requeued"]
    await join(store, "ann")
    assert await claim_ids(store) == [id_of(1)]
    after = await look(store)
    assert (after.cancelling, after.reason) == (False, "")


@pytest.mark.parametrize("reason", ["", "enough"])
@pytest.mark.parametrize("outcome", ["succeeded", "failed", "cancelled", "retry", "handed back"])
async def test_a_beat_does_not_deliver_cancels_of_attempts_that_have_ended(
    store: Store, outcome: str, reason: str
):
    job = await start_one(store)
    await store.jobs.cancel([id_of(1)], reason=reason)
    await settle(store, job, outcome)
    (beat,) = await store.jobs.beat(["ann"], ttl=10)
    assert beat is not None
    assert (beat.cancels, beat.held) == ([], 0)


async def test_one_store_object_cancels_jobs_that_run_on_another(world: World):
    here, there = await world.store(), await world.store()
    await start_one(here)
    assert await there.jobs.cancel([id_of(1)]) == ["requested"]
    (beat,) = await here.jobs.beat(["ann"], ttl=10)
    assert beat is not None
    assert beat.cancels == [id_of(1)]
