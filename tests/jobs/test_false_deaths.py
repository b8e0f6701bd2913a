"""Living replicas are not taken for dead after an outage of the store."""

from contextlib import AsyncExitStack

import pytest

from tenure import Tenure
from tenure.core.ids import job_id
from tenure.core.jobs.records import NewJob
from tenure.observe import ReplicaLost
from tenure.testing import Faults, FaultyStore
from tests.jobs.replicas import of_kind
from tests.jobs.test_outages import away


@pytest.fixture
async def fleet(make, clock):
    """Three apps with a long task, and their events."""
    apps = [await make(faulty=True) for _ in range(3)]
    events, begun = [], []

    async def work() -> None:
        begun.append(1)
        await clock.sleep(600)

    for app in apps:
        app.on_event(events.append)
    return apps, [app.task(name="work")(work) for app in apps], events, begun


@pytest.mark.parametrize("outage", [5, 7.5, 8.5, 9.5, 12, 30])
async def test_a_common_outage_makes_no_replica_count_as_dead(fleet, clock, faults, outage):
    apps, tasks, events, begun = fleet
    async with AsyncExitStack() as stack:
        for app in apps:  # each has its own rhythm
            await stack.enter_async_context(app.worker(concurrency=2))
            await clock.advance(0.9)
        await apps[0].enqueue_many(tasks[0].request() for _ in range(6))
        await clock.advance(15)
        for _ in range(5):
            away(faults)
            await clock.advance(outage)
            faults.heal()
            await clock.advance(20 + 3 * clock.random())
    assert of_kind(events, ReplicaLost) == []
    assert len(begun) == 6


async def test_a_replica_that_is_slow_to_come_back_keeps_its_jobs(make, store, clock, faults):
    """The last call of one replica hangs for longer than a second look takes."""
    slow = Faults()
    first, second = await make(faulty=True), Tenure(FaultyStore(store.clone(), slow), grace=0)
    events, begun = [], []

    async def work() -> None:
        begun.append(1)
        await clock.sleep(600)

    async with second, AsyncExitStack() as stack:
        for app in (first, second):
            app.on_event(events.append)
            app.task(name="work")(work)
        await stack.enter_async_context(first.worker(concurrency=1))
        await clock.advance(1)
        await stack.enter_async_context(second.worker(concurrency=1))
        await clock.advance(15)
        jobs = [NewJob(id=job_id(1, n, "0" * 32), task="work", payload=b"{}") for n in range(2)]
        await store.jobs.insert(jobs)
        await clock.advance(5)
        away(faults)
        away(slow)
        await clock.advance(8.5)
        slow.heal()
        slow.delay("beat", 5)
        faults.heal()
        await clock.advance(15)
        slow.heal()
        await clock.advance(5)
    assert of_kind(events, ReplicaLost) == []
    assert len(begun) == 2


async def test_a_replica_that_is_back_a_moment_after_its_end_keeps_its_jobs(
    make, store, clock, faults
):
    cut = Faults()
    witness, late = await make(faulty=True), Tenure(FaultyStore(store.clone(), cut), grace=0)
    events, begun = [], []

    async def work() -> None:
        begun.append(1)
        await clock.sleep(600)

    late.on_event(events.append)
    task = late.task(name="work")(work)
    async with late, witness.worker(queues=["of its own"]), late.worker() as worker:
        await clock.advance(15)
        await task.enqueue()
        for _ in range(5):
            await clock.advance(12)
            away(cut)
            while any(
                record.expires_in > 0
                for record in await store.jobs.replicas()
                if record.id == worker.replica
            ):
                await clock.advance(0.1)
            beats = faults.calls["beat"]
            while faults.calls["beat"] == beats:  # until the witness has seen it
                await clock.advance(0.01)
            cut.heal()
            await clock.advance(3)
    assert of_kind(events, ReplicaLost) == []
    assert begun == [1]


async def test_a_replica_that_joins_after_an_outage_takes_no_jobs_from_replicas_that_return_later(
    fleet, clock, faults
):
    (first, second, joiner), tasks, events, begun = fleet
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(first.worker(concurrency=1))
        await clock.advance(1.3)
        await stack.enter_async_context(second.worker(concurrency=1))
        await first.enqueue_many(tasks[0].request() for _ in range(2))
        await clock.advance(15)
        away(faults)
        await clock.advance(30)
        faults.heal()
        while not any(record.expires_in > 0 for record in await joiner.replicas()):
            await clock.advance(0.001)
        await stack.enter_async_context(joiner.worker(concurrency=1))
        await clock.advance(10)
    assert of_kind(events, ReplicaLost) == []
    assert len(begun) == 2
