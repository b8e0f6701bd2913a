import pytest

from tenure.core.jobs.records import Inserted, Pruned, Unique
from tenure.core.jobs.states import FINISHED, JobState
from tenure.stores.contract import Store
from tenure.testing import ManualClock
from tests.contract.calls import use
from tests.contract.job_calls import (
    MOMENT,
    bring,
    find_all,
    id_of,
    insert,
    new,
    prune_jobs,
    settle,
    start_one,
    states,
)
from tests.contract.worlds import World

AGES = 10_000_000.0


@pytest.mark.parametrize("state", sorted(FINISHED))
async def test_a_finished_job_goes_when_its_retention_is_over(
    store: Store, clock: ManualClock, state: JobState
):
    await bring(store, state, retention=60)
    clock.shift(60 - MOMENT)
    assert await prune_jobs(store) == 0
    assert await states(store, 1) == [state]
    clock.shift(MOMENT)
    assert await prune_jobs(store) == 1
    assert await states(store, 1) == [None]
    assert await find_all(store) == []
    assert await prune_jobs(store) == 0


async def test_without_retention_a_job_may_go_at_once(store: Store):
    await bring(store, "succeeded", retention=0)
    assert await states(store, 1) == ["succeeded"]
    assert await prune_jobs(store) == 1


@pytest.mark.parametrize("state", ["waiting", "running"])
async def test_an_unfinished_job_never_goes(store: Store, clock: ManualClock, state: JobState):
    before = await bring(store, state, retention=0)
    clock.shift(AGES)
    assert await prune_jobs(store) == 0
    assert await store.jobs.get([id_of(1)]) == [before]


async def test_retention_counts_from_the_end(store: Store, clock: ManualClock):
    job = await start_one(store, retention=60)
    clock.shift(1000)
    await settle(store, job, "succeeded")
    clock.shift(60 - MOMENT)
    assert await prune_jobs(store) == 0
    clock.shift(MOMENT)
    assert await prune_jobs(store) == 1


async def test_every_job_has_its_own_retention(store: Store, clock: ManualClock):
    for number, retention in enumerate((30, 10, 20)):
        await bring(store, "succeeded", number, retention=retention)
    for left in ([0, 2], [0], []):
        clock.shift(10)
        assert await prune_jobs(store) == 1
        assert sorted(job.id for job in await find_all(store)) == [id_of(number) for number in left]


async def test_no_more_than_the_limit_go(store: Store):
    for number in range(7):
        await bring(store, "succeeded", number)
    assert [await prune_jobs(store, limit=3) for _ in range(4)] == [3, 3, 1, 0]


async def test_the_answer_says_whether_more_jobs_are_left(store: Store):
    for number in range(5):
        await bring(store, "succeeded", number)
    answers = [await store.prune(idle=AGES, limit=3) for _ in range(3)]
    assert answers == [Pruned(0, 3, True), Pruned(0, 2, False), Pruned(0, 0, False)]


async def test_an_id_can_be_used_again_after_its_job_was_pruned(store: Store):
    await bring(store, "succeeded")
    await prune_jobs(store)
    await insert(store, new(1, payload=b"again"))
    assert await states(store, 1) == ["waiting"]


async def test_a_pruned_job_can_be_neither_cancelled_nor_requeued_nor_settled(store: Store):
    job = await start_one(store)
    await settle(store, job, "succeeded")
    await prune_jobs(store)
    assert await store.jobs.cancel([job.id]) == [None]
    assert await store.jobs.requeue([job.id]) == [None]
    assert await settle(store, job, "failed") == "lost"
    assert await states(store, 1) == [None]


async def test_pruning_does_not_free_a_key_that_is_in_use(store: Store, clock: ManualClock):
    key = Unique(key="key")
    await bring(store, "succeeded", 1, unique=key)
    await insert(store, new(2, unique=key, delay=AGES))
    clock.shift(100)
    assert await prune_jobs(store) == 1
    assert await store.jobs.insert([new(3, unique=key)]) == [Inserted("existing", id_of(2))]


async def test_pruning_does_not_free_a_key_before_its_time(store: Store, clock: ManualClock):
    key = Unique(key="key", keep=100)
    await bring(store, "succeeded", 1, unique=key)
    for _ in range(2):
        await prune_jobs(store)
        clock.shift(50 - MOMENT)
        assert await store.jobs.insert([new(3, unique=key)]) == [Inserted("existing", id_of(1))]
    clock.shift(2 * MOMENT)
    await prune_jobs(store)
    await insert(store, new(3, unique=key))


async def test_a_clock_set_back_prunes_nothing_early(store: Store, clock: ManualClock):
    await bring(store, "succeeded", retention=60)
    clock.step(-1000)
    clock.shift(60)
    assert await prune_jobs(store) == 0
    clock.shift(1000)
    assert await prune_jobs(store) == 1


async def test_one_store_object_prunes_the_jobs_of_all(world: World):
    here, there = await world.store(), await world.store()
    await bring(here, "succeeded")
    assert await prune_jobs(there) == 1
    assert await states(here, 1) == [None]


# Keys of leases, which the same call removes.


async def test_keys_and_jobs_have_a_limit_each(store: Store, kept: int):
    await use(store, *(f"key-{number}" for number in range(5)))
    for number in range(4):
        await bring(store, "succeeded", number)
    assert await store.prune(idle=0, limit=3) == Pruned(3 * kept, 3, True)
    assert await store.prune(idle=0, limit=3) == Pruned(2 * kept, 1, False)


async def test_many_jobs_do_not_keep_keys_from_being_forgotten(store: Store, kept: int):
    await use(store, "key")
    for number in range(3):
        await bring(store, "succeeded", number)
    assert await store.prune(idle=0, limit=2) == Pruned(kept, 2, True)
    assert await store.prune(idle=0, limit=2) == Pruned(0, 1, False)


async def test_the_idle_time_of_keys_does_not_apply_to_jobs(
    store: Store, clock: ManualClock, kept: int
):
    await use(store, "key")
    await bring(store, "succeeded", retention=5)
    clock.shift(5)
    assert await store.prune(idle=10) == Pruned(0, 1, False)
    clock.shift(5)
    assert await store.prune(idle=10) == Pruned(kept, 0, False)
