"""What the simulation has found and what is still open, each as a test without dice."""

from collections.abc import AsyncIterator
from copy import deepcopy

import pytest

from tenure import Tenure
from tenure.stores.connect import connect
from tenure.stores.memory import MemoryStore
from tenure.testing import FaultyStore, ManualClock
from tests.rig.endings import leave


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def store(clock: ManualClock) -> AsyncIterator[MemoryStore]:
    store = connect("memory://", namespace="test", clock=clock)
    assert isinstance(store, MemoryStore)
    await store.open()
    yield store
    await store.close()


async def test_a_job_whose_end_was_lost_in_a_fail_over_ends_again(store, clock):
    async with Tenure(FaultyStore(store.clone()), grace=0) as app:

        @app.task
        async def work() -> None:
            await clock.sleep(1)

        async with app.worker():
            job = await work.enqueue()
            await clock.advance(0.5)
            before = deepcopy(store._world.space("test"))
            await clock.advance(1)
            assert (await job.refresh()).state == "succeeded"
            store._world._spaces["test"] = before
            await clock.advance(120)
            assert (await job.refresh()).state == "succeeded"


async def test_a_worker_whose_record_came_back_goes_on(store, clock):
    async with Tenure(FaultyStore(store.clone()), grace=0) as app:

        @app.task
        async def work() -> None: ...

        async with app.worker() as worker:
            await worker.ready()
            replica = worker.replica
            await leave(store, replica)
            job = await work.enqueue()
            await clock.advance(0.1)
            # A request to join that was cut off arrives late; or a fail-over brings it back.
            await store.join(replica, ttl=10, meta={})
            await clock.advance(120)
            assert (await job.refresh()).state == "succeeded"
