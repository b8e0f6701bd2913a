"""Runs of schedules are jobs, with a few differences."""

import pytest

from tenure.core.records import JobRecord
from tenure.core.schedules import EVERYTHING
from tenure.stores.contract import Store
from tenure.testing import ManualClock
from tests.contract.job_calls import AT_ONCE, TTL, claim, join, recover_all, settle
from tests.contract.schedule_calls import SECOND, TIMERS, bound, look_at, plant, run, tick
from tests.rig.endings import bury, leave


@pytest.fixture(autouse=True)
async def ann(store: Store) -> None:
    """A replica, and a schedule."""
    await join(store, "ann")
    await plant(store)


async def look(store: Store, one: JobRecord) -> JobRecord:
    (found,) = await store.get([one.id])
    assert found is not None
    return found


@pytest.mark.parametrize("how", ["recover", "bury", "bury unstarted", "leave", "hand back"])
@pytest.mark.parametrize("rerun", [False, True])
async def test_a_run_comes_back_only_if_it_may(
    store: Store, clock: ManualClock, how: str, rerun: bool
):
    one = await run(store, clock.wall(), replica="ann", rerun=rerun)
    match how:
        case "recover":
            clock.shift(TTL)
            (answer,) = await recover_all(store)
            assert answer.state == ("waiting" if rerun else "failed")
        case "bury":
            (answer,) = await bury(store, "ann", [one.id], delays=AT_ONCE)
            assert answer.state == ("waiting" if rerun else "failed")
        case "bury unstarted":
            (answer,) = await bury(store, "ann", [], delays=AT_ONCE)
            assert answer.state == ("waiting" if rerun else "failed")
        case "leave":
            assert await leave(store, "ann") == [one.id]
        case _:
            assert await settle(store, one, "handed back") == "settled"
            assert await settle(store, one, "handed back") == "repeated"
    now = await look(store, one)
    is_lost = how in ("recover", "bury")
    assert now.losses == is_lost
    if rerun:
        assert (now.state, now.reason) == ("waiting", "")
        await join(store, "ben")
        (again,) = await claim(store, "ben", queues=[TIMERS])
        assert (again.id, again.attempt, again.rerun) == (one.id, 2, True)
    else:
        assert (now.state, now.reason) == ("failed", "lost" if is_lost else "interrupted")
        assert (now.replica, now.finished) == ("", clock.wall())
        assert (await look_at(store)).live == 0


async def test_a_pending_cancel_wins(store: Store, clock: ManualClock):
    one = await run(store, clock.wall(), replica="ann")
    await store.cancel([one.id], reason="no")
    await leave(store, "ann")
    now = await look(store, one)
    assert (now.state, now.reason) == ("cancelled", "no")


async def test_the_place_of_a_dead_replica_is_free_again(store: Store, clock: ManualClock):
    await run(store, clock.wall(), replica="ann", limit=bound(1))
    clock.shift(TTL)
    await recover_all(store)
    await join(store, "ben")
    await run(store, clock.wall(), replica="ben", limit=bound(1))


async def test_a_run_is_not_requeued(store: Store, clock: ManualClock):
    one = await run(store, clock.wall(), replica="ann", rerun=True)
    assert await store.requeue([one.id]) == ["unfinished"]
    await settle(store, one, "failed")
    assert await store.requeue([one.id]) == ["refused"]
    assert (await look(store, one)).state == "failed"


async def test_runs_are_found_like_all_jobs(store: Store, clock: ManualClock):
    one = await run(store, clock.wall(), replica="ann")
    page = await store.find(state="running", task="@sync")
    assert page.jobs == [await look(store, one)]
    (count,) = await store.counts()
    assert (count.queue, count.running) == (TIMERS, 1)
    (beat,) = await store.beat(["ann"], ttl=TTL)
    assert beat is not None
    assert beat.held == 1


async def test_a_repeated_claim_does_not_return_what_was_born_here(
    store: Store, clock: ManualClock
):
    first = await run(store, clock.wall(), rerun=True)
    claimed = await store.claim("ann", 7, [TIMERS], 10)
    assert claimed is not None
    clock.shift(1)
    await run(store, clock.wall(), replica="ann")
    repeated = await store.claim("ann", 7, [TIMERS], 10)
    assert repeated is not None
    assert [one.id for one in repeated.jobs] == [first.id]


# Freezing.


@pytest.mark.parametrize("name", ["sync", EVERYTHING])
async def test_ticks_of_a_frozen_schedule_are_skipped(store: Store, clock: ManualClock, name: str):
    assert await store.freeze(name, reason="release")
    clock.shift(1)
    answer = await tick(store, clock.wall(), replica="ann")
    assert (answer.outcome, answer.reason, answer.run) == ("skipped", "paused", None)
    assert answer.cursor == clock.wall()
    clock.shift(1)
    assert await store.thaw(name)
    assert not await store.thaw(name)
    late = await tick(store, clock.wall() - 1)
    assert (late.outcome, late.reason) == ("skipped", "paused")  # it was due before the thaw
    await run(store, clock.wall())
    assert [one.ticks for one in await store.decisions("sync")] == [1, 2]


@pytest.mark.parametrize("name", ["sync", EVERYTHING])
async def test_a_freeze_ends_by_itself(store: Store, clock: ManualClock, name: str):
    until = clock.wall() + 5 * SECOND
    await store.freeze(name, until=until, reason="release")
    clock.shift(6)
    assert (await tick(store, until - 1)).reason == "paused"
    await run(store, until)
    assert not await store.thaw(name)


async def test_a_freeze_is_remembered(store: Store, clock: ManualClock):
    await store.freeze("sync", reason="first")
    clock.shift(1)
    await store.freeze("sync", until=clock.wall() + 5, reason="second")
    freeze = (await look_at(store)).freeze
    assert freeze is not None
    assert (freeze.since, freeze.until, freeze.reason) == (
        clock.wall(),
        clock.wall() + 5,
        "second",
    )
    await plant(store, definition=b"second")
    assert (await look_at(store)).freeze == freeze


async def test_what_is_not_there_cannot_be_frozen(store: Store):
    assert not await store.freeze("other")
    assert not await store.thaw("other")
    assert not await store.thaw(EVERYTHING)
    assert await store.schedules(["other"]) == []


async def test_a_freeze_of_everything_is_seen_by_its_name(store: Store, clock: ManualClock):
    await store.freeze(EVERYTHING, reason="release")
    assert [one.name for one in await store.schedules()] == ["sync"]
    (record,) = await store.schedules([EVERYTHING])
    assert record.freeze is not None
    assert (record.freeze.reason, record.freeze.since) == ("release", clock.wall())
    await store.thaw(EVERYTHING)
    (record,) = await store.schedules([EVERYTHING])
    assert record.freeze is not None
    assert record.freeze.until == clock.wall()
