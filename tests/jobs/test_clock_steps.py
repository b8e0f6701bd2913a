"""Steps of the store's clock: no living replica is taken for dead, and no job runs twice."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from tenure import Retry
from tenure.observe import JobsRecovered, ReplicaLost
from tenure.observe.events import Events
from tenure.runtime.supervised.messages import Order, TakenOver
from tenure.supervisor.beats import Heartbeats
from tests.jobs.replicas import DEFAULT_TTL, claim_and_die, of_kind
from tests.rig.endings import leave, recover

LONG = 600.0
HOUR = 3600.0


@pytest.fixture
async def fleet(make, clock):
    """Apps with long tasks, their events, and the jobs that have begun.

    A worker that stops hands its jobs to the others, so check these before.
    """
    apps = [await make(faulty=True) for _ in range(4)]
    events, begun = [], []

    async def work(number: int) -> None:
        begun.append(number)
        await clock.sleep(LONG)

    for app in apps:
        app.on_event(events.append)
        app.work = app.task(name="work")(work)
        app.timed = app.task(name="timed", timeout=60)(work)
    return apps, events, begun


async def start_workers(stack, apps, clock, rhythm=0.9):
    """Start a worker for each app, one after the other, so that their beats do not coincide."""
    for app in apps:
        await stack.enter_async_context(app.worker(concurrency=2))
        await clock.advance(rhythm)
    await clock.advance(15)


@pytest.mark.parametrize("step", [8, 9.5, 12, 30, 3600])
async def test_a_step_ahead_takes_no_job_from_a_replica_that_lives(fleet, clock, step):
    apps, events, begun = fleet
    async with AsyncExitStack() as stack:
        await start_workers(stack, apps[:3], clock)
        await apps[0].enqueue_many(apps[0].work.request(number) for number in range(6))
        await clock.advance(1)
        for _ in range(6):
            clock.step(step)
            await clock.advance(20 + 3 * clock.random())
        assert sorted(begun) == list(range(6))
    assert of_kind(events, ReplicaLost) == []
    assert of_kind(events, JobsRecovered) == []


async def test_steps_in_both_directions_take_no_job_from_a_replica_that_lives(fleet, clock):
    apps, events, begun = fleet
    async with AsyncExitStack() as stack:
        await start_workers(stack, apps[:3], clock)
        await apps[0].enqueue_many(apps[0].work.request(number) for number in range(6))
        await clock.advance(1)
        for step in (30, -3600, 3600, 3600, -30, 9.5, 9.5, 9.5):
            clock.step(step)
            await clock.advance(4 + 2 * clock.random())
        assert sorted(begun) == list(range(6))
    assert of_kind(events, ReplicaLost) == []


@pytest.mark.parametrize("moment", [0.0, 0.4, 1.0, 1.6, 2.5])
async def test_a_newcomer_after_a_step_takes_no_job_from_a_replica_that_lives(fleet, clock, moment):
    apps, events, begun = fleet
    async with AsyncExitStack() as stack:
        await start_workers(stack, apps[:3], clock)
        await apps[0].enqueue_many(apps[0].work.request(number) for number in range(6))
        for app in apps:
            await clock.advance(25 + 3 * clock.random())
            clock.step(30)
            await clock.advance(moment)
            async with app.worker(queues=["of its own"]):
                await clock.advance(20)
        assert sorted(begun) == list(range(6))
    assert of_kind(events, ReplicaLost) == []


async def test_a_clock_that_runs_fast_takes_no_job_from_a_replica_that_lives(fleet, clock):
    """Many small steps, each too small to report: much faster than any clock runs."""
    apps, events, begun = fleet
    async with AsyncExitStack() as stack:
        await start_workers(stack, apps[:3], clock)
        await apps[0].work.enqueue(1)
        await apps[0].timed.enqueue(2)
        for _ in range(119):
            clock.step(0.07)
            await clock.advance(0.5)
        assert sorted(begun) == [1, 2]
    assert of_kind(events, ReplicaLost) == []
    assert of_kind(events, JobsRecovered) == []


@pytest.mark.parametrize("step", [30, 3600])
async def test_a_step_ahead_leaves_a_job_the_time_that_its_timeout_allows(fleet, clock, step):
    apps, events, begun = fleet
    async with AsyncExitStack() as stack:
        await start_workers(stack, apps[:3], clock)
        job = await apps[0].timed.enqueue(1)
        await clock.advance(20)
        clock.step(step)
        await clock.advance(39)
        assert (await job.refresh()).state == "running"
        assert (job.attempt, job.losses) == (1, 0)
        assert begun == [1]
    assert of_kind(events, JobsRecovered) == []


async def test_a_stuck_job_is_taken_from_its_replica_although_the_clock_was_set_ahead(
    fleet, store, clock
):
    """Its replica sends heartbeats but does not stop it at its time-out, as with a blocked loop."""
    apps, events, _ = fleet
    job = await apps[0].timed.enqueue(1)
    await claim_and_die(store, "stuck", ttl=LONG)
    async with AsyncExitStack() as stack:
        await start_workers(stack, apps[1:3], clock)
        clock.step(5)
        await clock.advance(90)
        assert (await job.refresh()).losses == 1
    assert len(of_kind(events, JobsRecovered)) == 1


@pytest.mark.parametrize("step", [30, 3600, -3600])
async def test_the_jobs_of_the_dead_run_again_within_two_ttls_of_a_step(fleet, store, clock, step):
    apps, events, begun = fleet
    async with AsyncExitStack() as stack:
        await start_workers(stack, apps[:2], clock)
        await apps[0].pause_queue("default")
        job = await apps[0].work.enqueue(7)
        await apps[0].resume_queue("default")
        await claim_and_die(store)
        clock.step(step)
        await clock.advance(16)
        assert (await job.refresh()).losses == 1
        assert begun == [7]
    [event] = of_kind(events, JobsRecovered)
    assert event.replicas == ("dead",)


async def test_a_step_while_the_dead_are_recovered_takes_no_job_from_a_replica_that_lives(
    fleet, store, clock, faults
):
    """The request is in flight when the clock is set: it uses the heartbeat that led to it."""
    apps, events, begun = fleet
    faults.delay("orphans", 0.5)
    async with AsyncExitStack() as stack:
        await start_workers(stack, apps[:3], clock)
        await apps[0].enqueue_many(apps[0].work.request(number) for number in range(6))
        await clock.advance(1)
        await apps[0].work.enqueue(6)
        await claim_and_die(store)
        before = faults.calls["orphans"]
        while faults.calls["orphans"] == before:
            await clock.advance(0.01)
        clock.step(30)
        await clock.advance(20)
        assert sorted(begun) == list(range(6))
    assert of_kind(events, ReplicaLost) == []
    assert {replica for event in of_kind(events, JobsRecovered) for replica in event.replicas} == {
        "dead"
    }


async def test_a_worker_whose_record_a_step_has_ended_looks_for_work_with_its_next_beat(
    fleet, clock
):
    apps, _, begun = fleet
    async with AsyncExitStack() as stack:
        await start_workers(stack, apps[:1], clock)
        clock.step(30)
        await apps[0].work.enqueue(1)
        await clock.advance(3.1)
        assert begun == [1]


# The clock is set back.


async def test_a_step_back_delays_no_job_that_is_due(fleet, clock):
    apps, _, begun = fleet
    await apps[0].pause_queue("default")
    await apps[0].work.enqueue(1)
    async with AsyncExitStack() as stack:
        await start_workers(stack, apps[:2], clock)
        await apps[0].work.using(delay=3600).enqueue(2)
        await apps[0].work.enqueue(3)
        clock.step(-3600)
        await apps[0].resume_queue("default")
        await clock.advance(0.01)
        assert begun == [1, 3]
        clock.step(-86400)
        await apps[0].work.enqueue(4)
        await clock.advance(0.01)
        assert begun == [1, 3, 4]


async def test_a_step_back_makes_no_pause_before_a_retry_longer(make, clock):
    app = await make()
    begun = []

    @app.task
    async def work() -> None:
        begun.append(clock.boot())
        if len(begun) < 3:
            raise Retry(after=10)

    async with app.worker():
        job = await work.enqueue()
        await clock.advance(1)
        clock.step(-3600)
        await clock.advance(8)
        assert len(begun) == 1
        await clock.advance(10)  # the pause begins anew with the next beat
        assert len(begun) == 2
        clock.step(-3600)
        await clock.advance(19)
        assert len(begun) == 3
        assert (await job.refresh()).state == "succeeded"


async def test_a_worker_that_starts_after_a_step_back_finds_all_due_jobs(fleet, clock):
    apps, _, begun = fleet
    for number in range(3):
        await apps[0].work.enqueue(number)
        await clock.advance(1)
    delayed = await apps[0].work.using(delay=20).enqueue(3)
    clock.step(-3600)
    async with apps[1].worker(concurrency=10):
        await clock.advance(0.01)
        assert begun == [0, 1, 2]
        await clock.advance(20.1)
        assert begun == [0, 1, 2, 3]
        assert (await delayed.refresh()).losses == 0


# Supervisors.


class Kid:
    """A child process as the heartbeats of its supervisor see it."""

    def __init__(self, replica: str) -> None:
        self.replica: str | None = replica
        self.orders: list[Order] = []

    def lives(self, now: float, ttl: float) -> bool:
        del now, ttl
        return True

    def order(self, order: Order) -> None:
        self.orders.append(order)


@pytest.mark.parametrize("step", [30, 3600])
async def test_supervisors_take_no_job_from_each_other_after_a_step_ahead(
    fleet, store, clock, step
):
    [app, *_], _, _ = fleet
    jobs = [await app.timed.enqueue(number) for number in range(3)]
    kids = [Kid(name) for name in ("ann", "ben", "cid")]
    beats = []
    for kid in kids:
        assert kid.replica is not None
        await store.jobs.beat([kid.replica], ttl=DEFAULT_TTL, meta={})
        await store.jobs.claim(kid.replica, 1, ["default"], 1)
        supervisor = Heartbeats(
            store, app.settings, Events(), [kid], f"supervisor of {kid.replica}"
        )
        beats.append(asyncio.ensure_future(supervisor.run()))
        await clock.advance(0.9)
    for _ in range(2):
        await clock.advance(15)
        clock.step(step)
        await clock.advance(13)
    assert [(await job.refresh()).losses for job in jobs] == [0, 0, 0]
    assert [order for kid in kids for order in kid.orders if isinstance(order, TakenOver)] == []
    for task in beats:
        task.cancel()


async def after_a_beat(clock, faults):
    """Advance until the app with faults has just sent a heartbeat."""
    beats = faults.calls["beat"]
    while faults.calls["beat"] == beats:
        await clock.advance(0.01)


@pytest.mark.parametrize("ttl", [1, 3, 6, 10, 20])
async def test_a_newcomer_takes_no_timed_job_after_a_step_ahead(make, store, clock, faults, ttl):
    """The worker notices the step with one heartbeat and postpones its deadlines with another."""
    events = []
    own, newcomer = await make(faulty=True, replica_ttl=ttl), await make(replica_ttl=ttl)
    newcomer.on_event(events.append)

    @own.task(timeout=HOUR)
    async def work() -> None:
        await clock.sleep(10 * HOUR)

    async with own.worker():
        await work.enqueue()
        for _ in range(5):
            await clock.advance(2 * ttl)
            await after_a_beat(clock, faults)
            clock.step(2 * HOUR)
            # Beside living replicas a newcomer waits less.
            await store.jobs.beat(["another"], ttl=HOUR, meta={})
            async with newcomer.worker(queues=["own"]):
                await clock.advance(2 * ttl)
            await leave(store, "another")
    assert of_kind(events, JobsRecovered) == []


async def test_a_step_ahead_is_reported_at_once(make, store, clock, faults):
    """A worker that cannot know of the step cannot take jobs that seem overdue."""
    app = await make(faulty=True, replica_ttl=10)

    @app.task(timeout=HOUR)
    async def work() -> None:
        await clock.sleep(10 * HOUR)

    async with app.worker():
        await work.enqueue()
        await clock.advance(10)
        await after_a_beat(clock, faults)
        clock.step(2 * HOUR)
        await after_a_beat(clock, faults)
        assert await recover(store, delays=[0.0], grace=0) == []


async def test_after_a_step_back_many_delays_begin_anew_at_once(make, clock):
    """A heartbeat restarts 500 of them, and the next one follows without a pause."""
    app = await make(replica_ttl=10)

    @app.task
    async def work(number: int) -> None:
        pass

    async with app.worker():
        jobs = await app.enqueue_many(work.using(delay=10).request(n) for n in range(1600))
        await clock.advance(3)
        clock.step(-HOUR)
        await clock.advance(3.1)  # with a beat
        read = await asyncio.gather(*(app.job(job.id) for job in jobs))
        assert max(job.record.due for job in read) < clock.wall() + 10_000_000
