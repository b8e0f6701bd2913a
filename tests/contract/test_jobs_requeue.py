import pytest

from tenure.core.jobs.records import BATCH_MAX, Inserted, JobRecord, Note, Unique
from tenure.core.jobs.states import FINISHED, JobState
from tenure.stores.contract import Store
from tenure.testing import ManualClock
from tests.contract.job_calls import (
    AT_ONCE,
    MOMENT,
    TTL,
    bring,
    claim,
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
from tests.rig.endings import recover

KEY = Unique(key="key", digest="d")


async def bring_with_a_past(store: Store, clock: ManualClock, state: JobState) -> JobRecord:
    """A finished job with failures, losses and progress."""
    job = await start_one(store, retention=100, payload=b"p", tags=("t",))
    await settle(store, job, "retry", error=b"why", history=b'{"first":1}\n')
    await claim(store)
    clock.shift(TTL)
    await recover(store, delays=AT_ONCE, grace=0)
    await join(store, "ann")
    (job,) = await claim(store)
    note = Note(id=job.id, fence=job.fence, progress=0.5, message="half", checkpoint=b"c")
    await store.jobs.note([note])
    await settle(store, job, state, result=b"r", error=b"e", reason="reason")
    job = await look(store)
    assert (job.state, job.attempt, job.losses) == (state, 3, 1)
    return job


@pytest.mark.parametrize("state", sorted(FINISHED))
async def test_a_finished_job_waits_again(store: Store, clock: ManualClock, state: JobState):
    before = await bring_with_a_past(store, clock, state)
    clock.shift(1)
    assert await store.jobs.requeue([id_of(1)]) == ["requeued"]
    job = await look(store)
    assert (job.state, job.due, job.finished) == ("waiting", clock.wall(), 0)
    assert (job.failures, job.losses, job.attempt) == (0, 0, 3)
    assert (job.result, job.error, job.progress) == (None, None, None)
    assert (job.message, job.reason, job.replica) == ("", "", "")
    assert (job.checkpoint, job.history) == (b"c", before.history)
    assert job.history
    assert job.fence > before.fence
    assert job.revision > before.revision
    for field in (
        "payload",
        "tags",
        "queue",
        "task",
        "priority",
        "created",
        "retention",
        "started",
    ):
        assert getattr(job, field) == getattr(before, field), field


@pytest.mark.parametrize("state", sorted(FINISHED))
async def test_a_requeued_job_runs_again(store: Store, state: JobState):
    before = await bring(store, state, retention=100, payload=b"p")
    await store.jobs.requeue([id_of(1)])
    (job,) = await claim(store)
    assert (job.attempt, job.payload, job.state) == (2, b"p", "running")
    assert job.fence > before.fence
    assert await settle(store, job, "succeeded", result=b"r") == "settled"
    assert (await look(store)).result == b"r"


async def test_a_requeued_job_has_its_budget_of_losses_again(store: Store, clock: ManualClock):
    await start_one(store, retention=100)
    clock.shift(TTL)
    await recover(store, delays=[], grace=0)
    assert await store.jobs.requeue([id_of(1)]) == ["requeued"]
    await join(store, "ann")
    assert await claim_ids(store) == [id_of(1)]
    clock.shift(TTL)
    (job,) = await recover(store, delays=[0.0], grace=0)
    assert (job.state, job.losses) == ("waiting", 1)


async def test_a_job_that_was_cancelled_before_it_ran_can_be_requeued(store: Store):
    await insert(store, new(1, delay=60, retention=100))
    await store.jobs.cancel([id_of(1)], reason="enough")
    assert await store.jobs.requeue([id_of(1)]) == ["requeued"]
    await join(store, "ann")
    (job,) = await claim(store)
    assert (job.attempt, job.reason) == (1, "")


@pytest.mark.parametrize("state", ["waiting", "running"])
async def test_an_unfinished_job_is_not_requeued(store: Store, state: JobState):
    before = await bring(store, state)
    assert await store.jobs.requeue([id_of(1)]) == ["unfinished"]
    assert await look(store) == before


async def test_an_unknown_job_cannot_be_requeued(store: Store):
    assert await store.jobs.requeue([id_of(1)]) == [None]
    assert await states(store, 1) == [None]
    assert await store.jobs.requeue([]) == []


async def test_a_requeue_repeated_finds_the_job_unfinished(store: Store):
    await bring(store, "failed", retention=100)
    assert await store.jobs.requeue([id_of(1), id_of(1)]) == ["requeued", "unfinished"]


async def test_a_requeued_job_is_not_pruned(store: Store, clock: ManualClock):
    await bring(store, "succeeded", retention=10)
    await store.jobs.requeue([id_of(1)])
    clock.shift(1000)
    assert await prune_jobs(store) == 0
    assert await states(store, 1) == ["waiting"]


async def test_a_requeued_job_is_kept_for_its_retention_again(store: Store, clock: ManualClock):
    await bring(store, "succeeded", retention=60)
    clock.shift(50)
    await store.jobs.requeue([id_of(1)])
    await join(store, "ann")
    (job,) = await claim(store)
    await settle(store, job, "succeeded")
    clock.shift(60 - MOMENT)
    assert await prune_jobs(store) == 0
    clock.shift(MOMENT)
    assert await prune_jobs(store) == 1


# Unique keys.


async def test_a_requeued_job_takes_its_key_again(store: Store):
    await bring(store, "failed", retention=100, unique=KEY)
    assert await store.jobs.requeue([id_of(1)]) == ["requeued"]
    assert await store.jobs.insert([new(2, unique=KEY)]) == [Inserted("existing", id_of(1))]
    (job,) = await claim(store)
    await settle(store, job, "succeeded")
    await insert(store, new(2, unique=KEY))


async def test_a_key_that_another_job_has_taken_since_is_a_conflict(store: Store):
    before = await bring(store, "failed", retention=100, unique=KEY)
    await insert(store, new(2, unique=KEY))
    assert await store.jobs.requeue([id_of(1)]) == ["conflict"]
    assert await look(store) == before
    (job,) = await claim(store)
    await settle(store, job, "succeeded")
    assert await store.jobs.requeue([id_of(1)]) == ["requeued"]
    assert await store.jobs.insert([new(3, unique=KEY)]) == [Inserted("existing", id_of(1))]


async def test_a_key_that_is_kept_for_another_job_is_a_conflict(store: Store, clock: ManualClock):
    await bring(store, "failed", 1, retention=1000, unique=KEY)
    await bring(store, "succeeded", 2, retention=0, unique=Unique(key="key", keep=60))
    assert await store.jobs.requeue([id_of(1)]) == ["conflict"]
    clock.shift(60 - MOMENT)
    await prune_jobs(store)
    assert await store.jobs.requeue([id_of(1)]) == ["conflict"]
    clock.shift(MOMENT)
    assert await store.jobs.requeue([id_of(1)]) == ["requeued"]


async def test_a_key_kept_for_the_job_itself_is_no_conflict(store: Store):
    await bring(store, "failed", retention=100, unique=Unique(key="key", keep=60))
    assert await store.jobs.requeue([id_of(1)]) == ["requeued"]


async def test_of_two_with_one_key_in_one_call_the_first_wins(store: Store):
    await bring(store, "failed", 1, retention=100, unique=KEY)
    await bring(store, "failed", 2, retention=100, unique=KEY)
    assert await store.jobs.requeue([id_of(2), id_of(1)]) == ["requeued", "conflict"]
    assert await states(store, 1, 2) == ["failed", "waiting"]


# Many at once.


async def test_every_id_of_a_call_gets_its_own_answer(store: Store):
    await bring(store, "failed", 1, retention=100)
    await bring(store, "running", 2)
    await bring(store, "cancelled", 3, retention=100)
    ids = [id_of(number) for number in (2, 1, 9, 3)]
    assert await store.jobs.requeue(ids) == ["unfinished", "requeued", None, "requeued"]
    assert await claim_ids(store) == [id_of(1), id_of(3)]


async def test_a_full_batch_is_requeued_in_one_call(store: Store):
    ids = [id_of(number) for number in range(BATCH_MAX)]
    await insert(store, *(new(number, retention=100) for number in range(BATCH_MAX)))
    await store.jobs.cancel(ids)
    assert await store.jobs.requeue(ids) == ["requeued"] * BATCH_MAX
    await join(store, "ann")
    assert await claim_ids(store) == ids
