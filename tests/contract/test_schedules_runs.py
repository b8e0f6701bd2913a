"""Runs of schedules are jobs, with a few differences."""

import pytest

from tenure.core.jobs.options import read_options
from tenure.core.jobs.records import JobRecord
from tenure.core.schedules.documents import EVERYTHING
from tenure.stores.contract import Store
from tenure.testing import ManualClock
from tests.contract.job_calls import AT_ONCE, TTL, claim, join, recover_all, settle
from tests.contract.schedule_calls import (
    SECOND,
    TIMERS,
    bound,
    decisions,
    freeze,
    look_at,
    look_at_all,
    register,
    run,
    thaw,
    tick,
)
from tests.rig.endings import bury, leave


@pytest.fixture(autouse=True)
async def ann(store: Store) -> None:
    """A replica, and a schedule."""
    await join(store, "ann")
    await register(store)


async def look(store: Store, job: JobRecord) -> JobRecord:
    (record,) = await store.jobs.get([job.id])
    assert record is not None
    return record


@pytest.mark.parametrize("how", ["recover", "bury", "bury unstarted", "leave", "hand back"])
@pytest.mark.parametrize("rerun", [False, True])
async def test_a_run_comes_back_only_if_it_may(
    store: Store, clock: ManualClock, how: str, rerun: bool
):
    job = await run(store, clock.wall(), replica="ann", rerun=rerun)
    match how:
        case "recover":
            clock.shift(TTL)
            (answer,) = await recover_all(store)
            assert answer.state == ("waiting" if rerun else "failed")
        case "bury":
            (answer,) = await bury(store, "ann", [job.id], delays=AT_ONCE)
            assert answer.state == ("waiting" if rerun else "failed")
        case "bury unstarted":
            (answer,) = await bury(store, "ann", [], delays=AT_ONCE)
            assert answer.state == ("waiting" if rerun else "failed")
        case "leave":
            assert await leave(store, "ann") == [job.id]
        case _:
            assert await settle(store, job, "handed back") == "settled"
            assert await settle(store, job, "handed back") == "repeated"
    now = await look(store, job)
    is_lost = how in ("recover", "bury")
    assert now.losses == is_lost
    if rerun:
        assert (now.state, now.reason) == ("waiting", "")
        await join(store, "ben")
        (again,) = await claim(store, "ben", queues=[TIMERS])
        assert (again.id, again.attempt, read_options(again.options).rerun) == (job.id, 2, True)
    else:
        assert (now.state, now.reason) == ("failed", "lost" if is_lost else "interrupted")
        assert (now.replica, now.finished) == ("", clock.wall())
        assert (await look_at(store)).live == 0


async def test_a_pending_cancel_wins(store: Store, clock: ManualClock):
    job = await run(store, clock.wall(), replica="ann")
    await store.jobs.cancel([job.id], reason="no")
    await leave(store, "ann")
    now = await look(store, job)
    assert (now.state, now.reason) == ("cancelled", "no")


async def test_the_place_of_a_dead_replica_is_free_again(store: Store, clock: ManualClock):
    await run(store, clock.wall(), replica="ann", limit=bound(1))
    clock.shift(TTL)
    await recover_all(store)
    await join(store, "ben")
    await run(store, clock.wall(), replica="ben", limit=bound(1))


async def test_a_run_is_not_requeued(store: Store, clock: ManualClock):
    job = await run(store, clock.wall(), replica="ann", rerun=True)
    assert await store.jobs.requeue([job.id]) == ["unfinished"]
    await settle(store, job, "failed")
    assert await store.jobs.requeue([job.id]) == ["refused"]
    assert (await look(store, job)).state == "failed"


async def test_runs_are_found_like_all_jobs(store: Store, clock: ManualClock):
    job = await run(store, clock.wall(), replica="ann")
    page = await store.jobs.find(state="running", task="@sync")
    assert page.jobs == [await look(store, job)]
    (count,) = await store.jobs.counts()
    assert (count.queue, count.running) == (TIMERS, 1)
    (beat,) = await store.jobs.beat(["ann"], ttl=TTL)
    assert beat is not None
    assert beat.held == 1


async def test_a_repeated_claim_does_not_return_runs_created_on_the_replica(
    store: Store, clock: ManualClock
):
    first = await run(store, clock.wall(), rerun=True)
    claimed = await store.jobs.claim("ann", 7, [TIMERS], 10)
    assert claimed is not None
    clock.shift(1)
    await run(store, clock.wall(), replica="ann")
    repeated = await store.jobs.claim("ann", 7, [TIMERS], 10)
    assert repeated is not None
    assert [job.id for job in repeated.jobs] == [first.id]


# Freezing.


@pytest.mark.parametrize("name", ["sync", EVERYTHING])
async def test_ticks_of_a_frozen_schedule_are_skipped(store: Store, clock: ManualClock, name: str):
    assert await freeze(store, name, reason="release")
    clock.shift(1)
    answer = await tick(store, clock.wall(), replica="ann")
    assert (answer.outcome, answer.reason, answer.run) == ("skipped", "paused", None)
    assert answer.cursor == clock.wall()
    clock.shift(1)
    assert await thaw(store, name)
    assert not await thaw(store, name)
    late = await tick(store, clock.wall() - 1)
    assert (late.outcome, late.reason) == ("skipped", "paused")  # it was due before the thaw
    await run(store, clock.wall())
    assert [decision.ticks for decision in await decisions(store, "sync")] == [1, 2]


@pytest.mark.parametrize("name", ["sync", EVERYTHING])
async def test_a_freeze_ends_by_itself(store: Store, clock: ManualClock, name: str):
    until = clock.wall() + 5 * SECOND
    await freeze(store, name, until=until, reason="release")
    clock.shift(6)
    assert (await tick(store, until - 1)).reason == "paused"
    await run(store, until)
    assert not await thaw(store, name)


async def test_a_freeze_is_remembered(store: Store, clock: ManualClock):
    await freeze(store, "sync", reason="first")
    clock.shift(1)
    await freeze(store, "sync", until=clock.wall() + 5, reason="second")
    kept = (await look_at(store)).freeze
    assert kept is not None
    assert (kept.since, kept.until, kept.reason) == (
        clock.wall(),
        clock.wall() + 5,
        "second",
    )
    await register(store, definition=b"second")
    assert (await look_at(store)).freeze == kept


async def test_an_unknown_schedule_cannot_be_frozen(store: Store):
    assert not await freeze(store, "other")
    assert not await thaw(store, "other")
    assert not await thaw(store, EVERYTHING)
    assert await look_at_all(store, ["other"]) == []


async def test_a_freeze_of_everything_is_seen_by_its_name(store: Store, clock: ManualClock):
    await freeze(store, EVERYTHING, reason="release")
    assert [schedule.name for schedule in await look_at_all(store)] == ["sync"]
    (record,) = await look_at_all(store, [EVERYTHING])
    assert record.freeze is not None
    assert (record.freeze.reason, record.freeze.since) == ("release", clock.wall())
    await thaw(store, EVERYTHING)
    (record,) = await look_at_all(store, [EVERYTHING])
    assert record.freeze is not None
    assert record.freeze.until == clock.wall()
