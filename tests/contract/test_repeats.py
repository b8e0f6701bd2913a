"""Calls that are repeated after a lost reply: what they change, and what they answer.

The three lists are those of `tenure.stores.contract`. Repeats of a single call in many situations
are tested beside the other tests of that call.
"""

import pytest

from tenure.core.jobs.records import Note, Pruned
from tenure.core.leases import Granted
from tenure.core.schedules.records import Write
from tenure.stores.contract import Store
from tenure.testing import ManualClock
from tests.contract.calls import TTL, ask, renew, take
from tests.contract.commit_calls import create, everything, look_at, plan, plan_run, send
from tests.contract.job_calls import (
    AT_ONCE,
    bring,
    claim,
    ended,
    id_of,
    insert,
    join,
    look,
    new,
    settle,
    start_one,
)
from tests.rig.endings import bury, leave, recover

LONG = 1000.0


# Answered as the first time


@pytest.mark.leases
async def test_calls_for_locks_are_answered_as_before(store: Store):
    answers = [await ask(store, "key", "ann") for _ in range(2)]
    assert answers[0] == answers[1]
    assert isinstance(answers[0], Granted)
    lease = answers[0].lease
    assert [await renew(store, lease) for _ in range(2)] == [[True], [True]]
    assert [await store.leases.mark("done", lease, "v1") for _ in range(2)] == [True, True]
    assert len(await store.leases.find()) == 1


async def test_calls_for_jobs_are_answered_as_before(store: Store):
    for _ in range(2):
        await store.jobs.beat(["ann"], ttl=TTL, meta={})
    assert len(await store.jobs.replicas()) == 1
    inserted = [await store.jobs.insert([new(1)]) for _ in range(2)]
    assert inserted[0] == inserted[1]
    claimed = [await store.jobs.claim("ann", 1, ["default"], 1) for _ in range(2)]
    assert claimed[0] is not None
    assert claimed[1] is not None
    assert claimed[0].jobs == claimed[1].jobs
    beats = [await store.jobs.beat(["ann"], ttl=TTL) for _ in range(2)]
    assert beats[0] == beats[1]


async def test_a_commit_with_a_run_is_answered_as_before(store: Store):
    await join(store, "ann", ttl=LONG)
    moved = plan_run(await create(store), writes=(Write("sync", "moved"),), start_on="ann")
    answers = [await send(store, moved) for _ in range(2)]
    assert answers[0] == answers[1]
    assert answers[0].outcome == "done"
    assert (await look_at(store)).live == 1


async def test_a_settlement_is_answered_as_repeated(store: Store):
    job = await start_one(store)
    end = ended(job, "succeeded")
    assert [await store.jobs.settle([end]) for _ in range(2)] == [["settled"], ["repeated"]]


async def test_only_the_last_settlement_of_a_job_is_recognised_as_repeated(store: Store):
    first = await start_one(store)
    await settle(store, first, "retry")
    (second,) = await claim(store)
    await settle(store, second, "succeeded")
    before = await look(store)
    assert await settle(store, first, "retry") == "lost"
    assert await look(store) == before


# Answered by the current state


@pytest.mark.leases
async def test_a_release_repeated_finds_nothing_to_end(store: Store):
    lease = await take(store, "key", "ann")
    assert [await store.leases.release([lease]) for _ in range(2)] == [[True], [False]]


async def test_a_cancel_repeated_finds_the_job_finished(store: Store):
    await insert(store, new(1))
    assert await store.jobs.cancel([id_of(1)], reason="enough") == ["cancelled"]
    before = await look(store)
    assert await store.jobs.cancel([id_of(1)], reason="enough") == ["finished"]
    assert await look(store) == before


async def test_a_requeue_repeated_at_once_finds_the_job_unfinished(store: Store):
    await bring(store, "failed", retention=100)
    assert await store.jobs.requeue([id_of(1)]) == ["requeued"]
    before = await look(store)
    assert await store.jobs.requeue([id_of(1)]) == ["unfinished"]
    assert await look(store) == before


@pytest.mark.parametrize("way", ["leave", "bury", "recover"])
async def test_jobs_are_taken_from_a_replica_once(store: Store, clock: ManualClock, way: str):
    job = await start_one(store)

    async def take_back() -> int:
        if way == "leave":
            return len(await leave(store, "ann"))
        if way == "bury":
            return len(await bury(store, "ann", [job.id], delays=AT_ONCE))
        return len(await recover(store, delays=AT_ONCE, grace=0))

    clock.shift(TTL)
    assert await take_back() == 1
    before = await look(store)
    assert await take_back() == 0
    assert await look(store) == before


async def test_a_commit_without_a_run_repeated_finds_its_own_id(store: Store):
    moved = plan(await create(store), writes=(Write("sync", "moved"),))
    assert (await send(store, moved)).outcome == "done"
    before = await everything(store)
    again = await send(store, moved)
    assert (again.outcome, [head.version for head in again.heads]) == ("stale", [moved.id])
    assert await everything(store) == before


async def test_a_repeated_prune_does_not_count_jobs_again(store: Store, clock: ManualClock):
    await bring(store, "succeeded", retention=60)
    clock.shift(60)
    answers = [await store.prune(idle=LONG) for _ in range(2)]
    assert answers == [Pruned(0, 1, False), Pruned(0, 0, False)]


# Carried out once more


async def test_a_requeue_repeated_after_the_job_has_run_again_requeues_it_again(store: Store):
    await bring(store, "failed", retention=100)
    assert await store.jobs.requeue([id_of(1)]) == ["requeued"]
    (job,) = await claim(store)
    await settle(store, job, "succeeded")
    assert await store.jobs.requeue([id_of(1)]) == ["requeued"]


async def test_a_note_repeated_is_a_change(store: Store):
    job = await start_one(store)
    note = Note(id=job.id, fence=job.fence, progress=0.5)
    assert await store.jobs.note([note]) == [True]
    before = await look(store)
    assert await store.jobs.note([note]) == [True]
    after = await look(store)
    assert (after.progress, after.fence) == (before.progress, before.fence)
    assert after.revision > before.revision


async def test_a_claim_is_repeated_after_another_replica_was_removed(store: Store):
    await join(store, "ann", ttl=LONG)
    await join(store, "ben")
    await insert(store, new(1), new(2))
    first = await store.jobs.claim("ann", 1, ["default"], 1)
    assert first is not None
    await bury(store, "ben", [], delays=AT_ONCE)
    again = await store.jobs.claim("ann", 1, ["default"], 1)
    assert again is not None
    assert [job.id for job in again.jobs] == [job.id for job in first.jobs] == [id_of(1)]


async def test_a_pause_counts_from_its_repeat(store: Store, clock: ManualClock):
    await join(store, "ann", ttl=LONG)
    await insert(store, new(1))
    await store.jobs.pause("default", seconds=10)
    clock.shift(5)
    await store.jobs.pause("default", seconds=10)
    clock.shift(9)
    assert await claim(store) == []
    clock.shift(1)
    assert [job.id for job in await claim(store)] == [id_of(1)]


async def test_a_declaration_counts_from_its_repeat(store: Store, clock: ManualClock):
    await create(store)
    for _ in range(2):
        clock.shift(60)
        assert (await store.schedules.declare([("sync", "ruler")])).lost == []
        assert (await look_at(store)).declared == clock.wall()
