"""A record that is spoiled while its job runs: the attempt ends, and so does the damage."""

import asyncio
import logging

import pytest

from tenure import Tenure
from tenure.app import engine_of
from tenure.core.jobs.records import Note
from tenure.stores import damage
from tenure.stores.contract import Store
from tests.contract.job_calls import ended, id_of, new, settle, start, states
from tests.contract.worlds import World
from tests.rig.lookups import stranded
from tests.rig.sizes import SIZE
from tests.rig.wait import wait_until_async
from tests.security.hands import Hand

OUTCOMES = ("succeeded", "failed", "cancelled", "retry", "handed back")


async def assert_is_aside(store: Store, *, held: int = 0) -> None:
    """The job runs nowhere, and can be looked at by hand."""
    await assert_ended(store, held=held)
    assert [(job.id, job.why) for job in await stranded(store)] == [(id_of(1), "unreadable")]


async def assert_ended(store: Store, *, held: int = 0) -> None:
    """The job runs nowhere, and operators are told."""
    [beat] = await store.jobs.beat(["ann"], ttl=600)
    assert beat is not None
    assert beat.held == held
    assert sum(queue.running for queue in await store.jobs.counts()) == held
    assert [(record.kind, record.name) for record in store.damage] == [("job", id_of(1))]


@pytest.mark.parametrize("outcome", OUTCOMES)
async def test_settling_a_spoiled_job_sets_it_aside(world: World, hand: Hand, outcome: str):
    store = await world.store()
    (job,) = await start(store, new(1, timeout=60.0))
    hand.spoil_job(job.id)
    answer = await settle(store, job, outcome)
    if world.family == "postgres" and answer == "settled":
        # Its types keep every row countable: the outcome is stored, and the job found by lists.
        await store.jobs.claim("ann", 10**6, ["default"], 1)
        await store.jobs.find()
        await assert_ended(store)
        return
    assert answer == "unreadable"
    await assert_is_aside(store)
    assert await settle(store, job, outcome) == "lost"
    await assert_is_aside(store)


async def test_a_batch_of_settlements_goes_on_around_it(world: World, hand: Hand):
    store = await world.store()
    jobs = await start(store, *(new(number) for number in range(1, 5)))
    hand.spoil_job(jobs[0].id)
    settlements = [ended(jobs[at], outcome) for at, outcome in enumerate(OUTCOMES[:3])]
    answers = await store.jobs.settle(settlements)
    assert answers[0] in ("unreadable", "settled")
    assert answers[1:] == ["settled", "settled"]
    assert await states(store, 2, 3, 4) == ["failed", "cancelled", "running"]
    await store.jobs.find()
    await assert_ended(store, held=1)


async def test_a_note_of_a_spoiled_job_sets_it_aside_or_is_stored(world: World, hand: Hand):
    store = await world.store()
    first, second = await start(store, new(1), new(2))
    hand.spoil_job(first.id)
    notes = [Note(id=job.id, fence=job.fence, message="half") for job in (first, second)]
    stored, other = await store.jobs.note(notes)
    assert other
    if stored:
        assert await settle(store, first, "succeeded") in ("unreadable", "settled")
    await store.jobs.find()
    await assert_ended(store, held=1)


async def test_a_worker_frees_the_slot_and_runs_the_next_job(
    world: World, hand: Hand, caplog: pytest.LogCaptureFixture
):
    damage._logged.clear()
    running, go_on = asyncio.Event(), asyncio.Event()
    app = Tenure(world.unopened(), replica_ttl=2)

    @app.task
    async def wait_for_the_test() -> None:
        running.set()
        await go_on.wait()

    @app.task
    async def be_quick() -> str:
        return "done"

    with caplog.at_level(logging.INFO, "tenure"):
        async with app, app.worker(concurrency=1):
            job = await wait_for_the_test.enqueue()
            await asyncio.wait_for(running.wait(), SIZE.patience)
            hand.spoil_job(job.id)
            neighbour = await be_quick.enqueue()
            go_on.set()
            assert await neighbour.result(SIZE.patience) == "done"
            store = engine_of(app).services().store

            async def is_idle() -> bool:
                [replica] = await app.replicas()
                return replica.held == 0

            await wait_until_async(is_idle, SIZE.patience, "nothing runs")
            assert not any(queue.running for queue in await app.queues())
            await app.jobs()
            assert [(record.kind, record.name) for record in store.damage] == [("job", job.id)]
    lines = [line for line in caplog.messages if job.id in line]
    assert len(lines) == 1, lines
    assert lines[0].startswith("Cannot use job")
