"""Bugs that the simulation found, each as a test without randomness."""

from collections.abc import AsyncIterator, Awaitable, Callable
from copy import deepcopy
from typing import TypeVar

import pytest

from tenure import Tenure
from tenure.core.schedules.registration import Registration
from tenure.runtime.timers.scheduling import Scheduling
from tenure.runtime.timers.stored_schedules import read_schedules
from tenure.stores.connect import connect
from tenure.stores.memory import MemoryStore
from tenure.testing import FaultyStore, ManualClock
from tests.rig.endings import leave

T = TypeVar("T")


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
            before = deepcopy(store._database.namespace("test"))
            await clock.advance(1)
            assert (await job.refresh()).state == "succeeded"
            store._database._namespaces["test"] = before
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
            await store.jobs.beat([replica], ttl=10, meta={})
            await clock.advance(120)
            assert (await job.refresh()).state == "succeeded"


class InterruptedRead(FaultyStore):
    """Something else happens right after a look at schedules: the first one, or a later one."""

    def __init__(
        self, store: MemoryStore, happens: Callable[[], Awaitable[object]], *, look: int = 1
    ) -> None:
        super().__init__(store)
        self._happens = happens
        self._left = look

    async def _pass(self, call: str, send: Callable[[], Awaitable[T]]) -> T:
        answer = await super()._pass(call, send)
        self._left -= call == "read"
        if call == "read" and self._left == 0:
            await self._happens()
        return answer


def registration(name: str, *former: str) -> Registration:
    return Registration(name=name, digest=f"of {name}", definition=b"{}", renamed_from=former)


async def register(store: MemoryStore, name: str, *former: str) -> None:
    await Scheduling(store).register([registration(name, *former)])


async def successors(store: MemoryStore) -> dict[str, str]:
    schedules = await read_schedules(store)
    return {schedule.name: schedule.standing.successor for schedule in schedules.all}


async def test_a_new_name_takes_over_a_former_one_that_came_while_it_looked(store):
    """Both ticked until the next declaration."""
    slow = InterruptedRead(store, lambda: register(store, "old"))
    await Scheduling(slow).register([registration("new", "old")])
    assert await successors(store) == {"new": "", "old": "new"}


async def test_a_former_name_yields_to_a_successor_that_is_declared_while_it_looks(store, clock):
    await register(store, "old")
    await register(store, "new", "old")
    await clock.advance(100)
    # The second look is the one at its successor.
    slow = InterruptedRead(store, lambda: store.schedules.declare([("new", "of new")]), look=2)
    [registered] = await Scheduling(slow).register([registration("old")])
    assert registered.ruler == ""
    assert await successors(store) == {"new": "", "old": "new"}


async def test_a_forgotten_name_starts_from_scratch(store, clock):
    """It went on where its former name was, and decided about the same ticks once more."""
    await register(store, "old")
    await register(store, "new", "old")
    await clock.advance(100)
    await Scheduling(store).forget(idle=50)
    assert await successors(store) == {"old": "new"}
    [registered] = await Scheduling(store).register([registration("new", "old")])
    assert registered.cursor == (await store.ping()).now


async def test_a_pause_that_ended_under_a_forgotten_name_does_not_come_back(store, clock):
    await register(store, "old")
    await Scheduling(store).freeze("old")
    await register(store, "new", "old")
    await Scheduling(store).thaw("new")
    await clock.advance(100)
    await Scheduling(store).forget(idle=50)
    await register(store, "new", "old")
    [new] = (await read_schedules(store, ["new"])).all
    assert new.standing.freeze is None


async def test_a_timer_that_is_declared_during_a_cleanup_is_kept(store, clock):
    await register(store, "timer")
    await clock.advance(100)
    slow = InterruptedRead(store, lambda: store.schedules.declare([("timer", "of timer")]))
    assert await Scheduling(slow).forget(idle=50) == 0
    assert await successors(store) == {"timer": ""}


async def test_a_former_name_is_kept_if_its_successor_comes_during_a_cleanup(store, clock):
    await register(store, "old")
    await register(store, "new", "old")
    await clock.advance(100)
    assert await Scheduling(store).forget(idle=50) == 1
    slow = InterruptedRead(store, lambda: register(store, "new"))
    assert await Scheduling(slow).forget(idle=50) == 0
    assert await successors(store) == {"new": "", "old": "new"}
