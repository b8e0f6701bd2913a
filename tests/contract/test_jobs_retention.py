"""A finished job is kept for the retention of its outcome, whichever call ended it."""

from collections.abc import Awaitable, Callable

import pytest

from tenure.core.jobs.options import write_options
from tenure.core.jobs.records import Inserted, Unique
from tenure.core.jobs.states import JobState
from tenure.stores.contract import Store
from tenure.testing import ManualClock
from tests.contract.commit_calls import create, run
from tests.contract.job_calls import (
    MOMENT,
    TTL,
    bring,
    claim,
    id_of,
    insert,
    join,
    look,
    new,
    prune_jobs,
    recover_all,
    settle,
    start_one,
    states,
)
from tests.rig.endings import bury, leave

KEPT = 60
KEPT_FAILED = 600


async def goes_after(store: Store, clock: ManualClock, length: float, number: int = 1) -> None:
    """Check that a job that has just finished is removed after `length`, and not earlier."""
    clock.shift(length - MOMENT)
    assert await prune_jobs(store) == 0
    assert await states(store, number) != [None]
    clock.shift(MOMENT)
    assert await prune_jobs(store) == 1
    assert await states(store, number) == [None]


async def start_kept(store: Store, **details) -> None:
    await start_one(store, retention=KEPT, retention_failed=KEPT_FAILED, **details)


@pytest.mark.parametrize(
    ("state", "length"), [("succeeded", KEPT), ("failed", KEPT_FAILED), ("cancelled", KEPT)]
)
async def test_a_settled_job_is_kept_for_the_retention_of_its_outcome(
    store: Store, clock: ManualClock, state: JobState, length: float
):
    job = await bring(store, state, retention=KEPT, retention_failed=KEPT_FAILED)
    assert job.kept_for == length
    await goes_after(store, clock, length)


async def test_a_job_that_succeeds_after_a_failure_is_kept_like_a_success(
    store: Store, clock: ManualClock
):
    job = await start_one(store, retention=KEPT, retention_failed=KEPT_FAILED)
    assert await settle(store, job, "retry", error=b"{}") == "settled"
    (job,) = await claim(store)
    assert await settle(store, job, "succeeded") == "settled"
    await goes_after(store, clock, KEPT)


async def test_a_waiting_job_that_is_cancelled_is_kept_like_a_success(
    store: Store, clock: ManualClock
):
    await insert(store, new(1, retention=KEPT, retention_failed=KEPT_FAILED))
    assert await store.jobs.cancel([id_of(1)]) == ["cancelled"]
    await goes_after(store, clock, KEPT)


async def test_a_job_that_is_cancelled_on_its_way_back_is_kept_like_a_success(
    store: Store, clock: ManualClock
):
    job = await start_one(store, retention=KEPT, retention_failed=KEPT_FAILED)
    await store.jobs.cancel([id_of(1)])
    assert await settle(store, job, "retry", error=b"{}") == "cancelled"
    assert await states(store, 1) == ["cancelled"]
    await goes_after(store, clock, KEPT)


async def _expire(store: Store, clock: ManualClock) -> None:
    await start_kept(store)
    clock.shift(TTL + 1)
    await recover_all(store, delays=())


async def _overrun(store: Store, clock: ManualClock) -> None:
    await start_kept(store, timeout=5)
    for _ in range(20):
        clock.shift(TTL - 1)
        await store.jobs.beat(["ann"], ttl=TTL)
    await recover_all(store, delays=())


async def _bury(store: Store, clock: ManualClock) -> None:
    del clock
    await start_kept(store)
    await bury(store, "ann", [id_of(1)], delays=())


@pytest.mark.parametrize("lose", [_expire, _overrun, _bury])
async def test_a_job_that_is_lost_for_good_is_kept_like_a_failure(
    store: Store, clock: ManualClock, lose: Callable[[Store, ManualClock], Awaitable[None]]
):
    await lose(store, clock)
    assert await states(store, 1) == ["failed"]
    await goes_after(store, clock, KEPT_FAILED)


async def test_an_interrupted_run_is_kept_like_a_failure(store: Store, clock: ManualClock):
    await join(store, "ann")
    options = write_options(rerun=False)
    job = {"retention": KEPT, "retention_failed": KEPT_FAILED, "options": options}
    made = await run(
        store, await create(store), id=id_of(7), start_on="ann", job={"id": id_of(7), **job}
    )
    assert (made.retention, made.retention_failed, made.options) == (KEPT, KEPT_FAILED, options)
    await leave(store, "ann")
    assert await states(store, 7) == ["failed"]
    await goes_after(store, clock, KEPT_FAILED, 7)


async def test_a_requeued_job_is_kept_for_the_retention_of_its_next_outcome(
    store: Store, clock: ManualClock
):
    await bring(store, "failed", retention=KEPT, retention_failed=KEPT_FAILED, options="{}")
    assert await store.jobs.requeue([id_of(1)]) == ["requeued"]
    (job,) = await claim(store)
    assert (job.retention, job.retention_failed, job.options) == (KEPT, KEPT_FAILED, "{}")
    assert await settle(store, job, "succeeded") == "settled"
    await goes_after(store, clock, KEPT)


async def test_a_requeued_job_that_fails_again_is_kept_like_a_failure(
    store: Store, clock: ManualClock
):
    await bring(store, "succeeded", retention=KEPT, retention_failed=KEPT_FAILED)
    assert await store.jobs.requeue([id_of(1)]) == ["requeued"]
    (job,) = await claim(store)
    assert await settle(store, job, "failed") == "settled"
    await goes_after(store, clock, KEPT_FAILED)


@pytest.mark.parametrize(("state", "length"), [("succeeded", KEPT), ("failed", KEPT_FAILED)])
async def test_a_key_that_stays_with_its_job_stays_for_the_retention_of_the_outcome(
    store: Store, clock: ManualClock, state: JobState, length: float
):
    key = Unique(key="key", digest="d", keep=1, with_job=True)
    await bring(store, state, retention=KEPT, retention_failed=KEPT_FAILED, unique=key)
    clock.shift(length - MOMENT)
    assert await store.jobs.insert([new(2, unique=key)]) == [Inserted("existing", id_of(1))]
    clock.shift(MOMENT)
    await insert(store, new(2, unique=key))


async def test_a_claimed_job_carries_its_options_in_every_attempt(store: Store):
    job = await start_one(store, options='{"retry":"opaque"}')
    assert job.options == '{"retry":"opaque"}'
    assert (await look(store)).options == job.options
    assert await settle(store, job, "retry", error=b"{}") == "settled"
    (again,) = await claim(store)
    assert again.options == job.options
