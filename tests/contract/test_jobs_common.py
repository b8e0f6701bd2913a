"""What holds for all calls about jobs."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from tenure.core.jobs.records import Note, Unique
from tenure.errors import StoreError
from tenure.stores.contract import Store
from tenure.testing import ManualClock
from tests.contract.job_calls import (
    AT_ONCE,
    TTL,
    claim,
    find_all,
    id_of,
    insert,
    join,
    look,
    new,
    new_claim_no,
    prune_jobs,
    settle,
    start_one,
    states,
)
from tests.contract.test_common import cancel_everywhere
from tests.contract.worlds import World
from tests.rig.endings import bury, leave, recover, settlement

pytestmark = pytest.mark.own_connections

CALLS: dict[str, Callable[[Store], Coroutine[Any, Any, Any]]] = {
    "join": lambda store: store.jobs.beat(["ann"], ttl=TTL, meta={}),
    "beat": lambda store: store.jobs.beat(["ann"], ttl=TTL),
    "leave": lambda store: leave(store, "ann"),
    "bury": lambda store: bury(store, "ann", [], delays=AT_ONCE),
    "replicas": lambda store: store.jobs.replicas(),
    "insert": lambda store: store.jobs.insert([new(1)]),
    "claim": lambda store: store.jobs.claim("ann", new_claim_no(), ["default"], 1),
    "settle": lambda store: store.jobs.settle([settlement(id=id_of(1), fence=1, outcome="retry")]),
    "note": lambda store: store.jobs.note([Note(id=id_of(1), fence=1)]),
    "recover": lambda store: recover(store, delays=AT_ONCE, grace=0),
    "cancel": lambda store: store.jobs.cancel([id_of(1)]),
    "requeue": lambda store: store.jobs.requeue([id_of(1)]),
    "get": lambda store: store.jobs.get([id_of(1)]),
    "find": lambda store: store.jobs.find(),
    "counts": lambda store: store.jobs.counts(),
    "count_tagged": lambda store: store.jobs.count_tagged("t", unfinished=1, recent=1, within=1),
    "pause": lambda store: store.jobs.pause("other"),
    "resume": lambda store: store.jobs.pause("default", seconds=0),
}


@pytest.mark.parametrize("name", CALLS)
async def test_a_store_that_is_not_open_raises_an_error(world: World, name: str):
    store = world.unopened()
    with pytest.raises(StoreError):
        await CALLS[name](store)
    await store.open()
    await CALLS[name](store)
    await store.close()
    with pytest.raises(StoreError):
        await CALLS[name](store)


async def test_closing_leaves_jobs_and_replicas_as_they_are(world: World):
    store = world.unopened()
    await store.open()
    job = await start_one(store)
    await store.close()
    other = await world.store()
    assert await look(other) == job
    assert await settle(other, job, "succeeded") == "settled"


async def test_a_clone_is_a_second_store_object_on_the_same_jobs(store: Store):
    job = await start_one(store)
    clone = store.clone()
    await clone.open("skip")
    try:
        assert await look(clone) == job
        assert await settle(clone, job, "succeeded") == "settled"
    finally:
        await clone.close()
    assert await states(store, 1) == ["succeeded"]


async def test_a_clone_works_on_another_event_loop(real_world: World):
    store = await real_world.store()
    clone = store.clone()
    await join(store, "ann")

    async def elsewhere() -> list[str]:
        await clone.open()
        try:
            await insert(clone, new(1))
            return [job.id for job in await claim(clone)]
        finally:
            await clone.close()

    assert await asyncio.to_thread(asyncio.run, elsewhere()) == [id_of(1)]
    assert (await look(store)).replica == "ann"


async def test_a_store_serves_many_callers_at_once(store: Store):
    await join(store, "ann")
    await asyncio.gather(*(insert(store, new(number)) for number in range(100)))
    jobs = await claim(store, limit=100)
    calls: list[Awaitable[Any]] = [settle(store, job, "succeeded") for job in jobs[:50]]
    calls += [store.jobs.note([Note(id=job.id, fence=job.fence)]) for job in jobs[50:]]
    calls += [store.jobs.beat(["ann"], ttl=TTL) for _ in range(20)]
    calls += [find_all(store, state="running", limit=10) for _ in range(5)]
    await asyncio.gather(*calls)
    counts = [await states(store, int(job.id[-12:], 16)) for job in jobs]
    assert counts == [["succeeded"]] * 50 + [["running"]] * 50


@pytest.mark.parametrize("name", CALLS)
async def test_cancelling_a_caller_does_not_break_the_store(store: Store, name: str):
    async def check() -> None:
        """After any cancelled call a job can be inserted, claimed and settled."""
        await store.jobs.cancel([id_of(1)])
        await leave(store, "ann")
        await prune_jobs(store)
        job = await start_one(store, 2, queue="check")
        assert await settle(store, job, "succeeded") == "settled"
        await prune_jobs(store)

    await join(store, "ann")
    await cancel_everywhere(lambda: CALLS[name](store), check)


async def test_the_effect_of_a_cancelled_call_is_decided_before_the_next_call(
    store: Store, clock: ManualClock
):
    async def work() -> None:
        await store.jobs.insert([new(1)])
        await join(store, "ann")
        for job in await claim(store):
            await settle(store, job, "retry")
        await leave(store, "ann")

    async def check() -> None:
        # Lists cover everything and wait for no call. These calls concern the job and the replica.
        await store.jobs.get([id_of(1)])
        await store.jobs.claim("ann", 0, ["default"], 1)
        before = await find_all(store), await store.jobs.replicas()
        for _ in range(3):
            await asyncio.sleep(0.001)
            assert (await find_all(store), await store.jobs.replicas()) == before
        await leave(store, "ann")
        await store.jobs.cancel([id_of(1)])
        await prune_jobs(store)

    await cancel_everywhere(work, check)


async def test_leaving_never_overtakes_the_cancelled_claim_that_it_undoes(store: Store):
    await join(store, "ann")
    await insert(store, new(1))

    async def check() -> None:
        await leave(store, "ann")
        for _ in range(3):
            await asyncio.sleep(0.001)
            assert await states(store, 1) == ["waiting"]
        await join(store, "ann")

    await cancel_everywhere(lambda: store.jobs.claim("ann", new_claim_no(), ["default"], 1), check)


async def test_a_cancelled_insert_stores_all_its_jobs_or_none(store: Store):
    jobs = [new(number, unique=Unique(key=f"key-{number}")) for number in range(10)]

    async def check() -> None:
        assert len(await find_all(store)) in (0, 10)
        await store.jobs.cancel([job.id for job in jobs])
        await prune_jobs(store)
        assert await find_all(store) == []

    await cancel_everywhere(lambda: store.jobs.insert(jobs), check)


async def test_a_cancelled_claim_is_found_again_by_its_number(store: Store):
    """The caller never saw the answer. The repeat returns it, and claims nothing twice."""
    await join(store, "ann")
    await insert(store, new(1), new(2))
    last = 0

    def claim_anew() -> Coroutine[Any, Any, Any]:
        nonlocal last
        last += 1
        return store.jobs.claim("ann", last, ["default"], 2)

    async def check() -> None:
        answer = await store.jobs.claim("ann", last, ["default"], 2)
        assert answer is not None
        assert {job.id for job in answer.jobs} == {id_of(1), id_of(2)}
        assert {job.attempt for job in answer.jobs} == {1}
        for job in answer.jobs:
            await settle(store, job, "succeeded")
        await prune_jobs(store)
        await insert(store, new(1), new(2))

    await cancel_everywhere(claim_anew, check)
