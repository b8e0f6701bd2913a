"""Events of workers and of the store's clock: each once, by the process that it concerns.

Deaths are found by one of all that look. What needs time to pass runs in virtual time on memory.
"""

import asyncio
import os
import socket
from contextlib import AsyncExitStack

import pytest

from tenure import Tenure
from tenure.app import engine_of
from tenure.core.clock_jumps import jump_between, lead_of
from tenure.observe import (
    ClockJumped,
    Event,
    ReplicaExpired,
    ReplicaJoined,
    ReplicaLeft,
    ReplicaLost,
)
from tenure.observe.events import Events
from tenure.runtime.clock_watch import ClockWatch
from tenure.runtime.replica.queue_watch import LEASE
from tenure.runtime.replica.recovery import leave, recover_replica
from tenure.runtime.supervised.messages import Order
from tenure.stores.contract import Store
from tenure.supervisor.beats import Heartbeats
from tenure.testing import ManualClock
from tests.jobs.replicas import Make, claim_and_die, of_kind
from tests.rig.wait import wait_until_async

HERE = f"{socket.gethostname()}:{os.getpid()}"


def watched(app: Tenure) -> list[Event]:
    seen: list[Event] = []
    app.on_event(seen.append)
    return seen


# Joining and leaving.


async def test_a_worker_that_joins_and_leaves_says_each_once_on_each_store(real_world):
    app = Tenure(real_world.unopened(), grace=0)
    seen = watched(app)
    async with app, app.worker(queues=["mail", "urgent"]) as worker:
        await worker.ready()
        replica = worker.replica
        assert of_kind(seen, ReplicaJoined) == [ReplicaJoined(replica, ("mail", "urgent"))]
        assert not of_kind(seen, ReplicaLeft)
    assert len(of_kind(seen, ReplicaJoined)) == 1
    assert of_kind(seen, ReplicaLeft) == [ReplicaLeft(replica)]
    assert not of_kind(seen, ReplicaExpired)


async def test_a_worker_that_was_declared_dead_joins_anew_and_has_not_left(
    make: Make, store: Store, clock: ManualClock
):
    app = await make()
    seen = watched(app)
    async with app.worker() as worker:
        await clock.advance(1)
        first = worker.replica
        await store.jobs.orphans(by="somebody", replica=first)
        await clock.advance(5)
        second = worker.replica
        assert [event.replica for event in of_kind(seen, ReplicaJoined)] == [first, second]
        assert [event.replica for event in of_kind(seen, ReplicaLost)] == [first]
        assert not of_kind(seen, ReplicaLeft)
    assert of_kind(seen, ReplicaLeft) == [ReplicaLeft(second)]


async def test_a_worker_that_never_reached_the_store_has_neither_joined_nor_left(
    make: Make, faults, clock: ManualClock
):
    app = await make(faulty=True)
    seen = watched(app)
    faults.lose_request("join", times=10**6)
    async with app.worker():
        await clock.advance(3)
    assert not of_kind(seen, ReplicaJoined | ReplicaLeft)


async def test_without_a_subscriber_no_event_of_a_worker_is_made(
    make: Make, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
):
    def never(*_: object) -> None:
        raise AssertionError("an event was made")

    for kind in ("ReplicaJoined", "ReplicaLeft"):
        monkeypatch.setattr(f"tenure.runtime.work.worker.{kind}", never)
    app = await make()
    async with app.worker() as worker:
        await clock.advance(1)
        assert worker.replica


# Deaths.


async def test_of_three_survivors_one_reports_each_death(
    make: Make, store: Store, clock: ManualClock
):
    apps = [await make() for _ in range(3)]
    seen = [watched(app) for app in apps]

    @apps[0].task(name="work")
    async def work() -> None: ...

    await apps[0].enqueue_many(work.request() for _ in range(250))
    async with AsyncExitStack() as stack:
        for app in apps:
            await stack.enter_async_context(app.worker(queues=["of its own"]))
        await clock.advance(15)
        await claim_and_die(store, "busy")
        await store.jobs.beat(["idle"], ttl=10, meta={"host": "web-1", "pid": "4711"})
        await clock.advance(60)
        deaths = [event for events in seen for event in of_kind(events, ReplicaExpired)]
    assert sorted(deaths, key=lambda death: death.replica) == [
        ReplicaExpired("busy", HERE),
        ReplicaExpired("idle", HERE, "web-1:4711"),
    ]


async def test_of_two_recoveries_at_a_time_one_reports_a_death_on_each_store(real_world):
    apps = [Tenure(real_world.unopened()) for _ in range(2)]
    seen = [watched(app) for app in apps]
    store = await real_world.store()
    async with apps[0], apps[1]:
        await store.jobs.beat(["dead"], ttl=0.05, meta={"host": "web-1", "pid": "4711"})
        await store.jobs.beat(["alive"], ttl=60, meta={})
        await wait_until_async(lambda: _has_expired(store, "dead"))
        await asyncio.gather(*(app.recover() for app in apps for _ in range(2)))
        await apps[0].recover()
    deaths = [event for events in seen for event in of_kind(events, ReplicaExpired)]
    assert deaths == [ReplicaExpired("dead", HERE, "web-1:4711")]


async def test_a_process_that_ends_is_dead_unless_it_has_left(store: Store, clock: ManualClock):
    seen: list[Event] = []
    events, dead = Events(), []
    events.subscribe(seen.append)
    for name in ("killed", "stopped"):
        await store.jobs.beat([name], ttl=10, meta={})
    await leave(store, "stopped", events)
    for name in ("killed", "stopped", "killed"):
        await recover_replica(store, name, [], by="me", delays=[], on_dead=dead.extend)
    assert (dead, seen) == (["killed"], [])


async def _has_expired(store: Store, name: str) -> bool:
    return any(
        replica.id == name and replica.expires_in <= 0 for replica in await store.jobs.replicas()
    )


# The clock of the store.


@pytest.fixture
async def app(make: Make) -> Tenure:
    return await make()


@pytest.mark.parametrize("step", [2.0, -2.0, 3600.0, -3600.0])
async def test_a_jump_is_reported_once_by_each_app_with_workers(
    make: Make, clock: ManualClock, step: float
):
    apps = [await make() for _ in range(3)]
    seen = [watched(app) for app in apps]
    async with apps[0].worker(), apps[0].worker(), apps[1].worker():
        await clock.advance(15)
        clock.step(step)
        await clock.advance(30)
        assert [of_kind(events, ClockJumped) for events in seen] == [
            [ClockJumped(step)],
            [ClockJumped(step)],
            [],  # it has no worker, so it hears no heartbeats
        ]
        clock.step(-step)
        await clock.advance(30)
        assert of_kind(seen[0], ClockJumped) == [ClockJumped(step), ClockJumped(-step)]


class Child:
    """A worker process, as a supervisor sees it."""

    replica = "child"

    def lives(self, *_: float) -> bool:
        return True

    def order(self, _: Order) -> None: ...


async def supervisor_of_one(store: Store, app: Tenure, events: Events) -> asyncio.Task[None]:
    await store.jobs.beat(["child"], ttl=10, meta={})
    beats = Heartbeats(store, engine_of(app).work_settings, events, [Child()], "test")  # type: ignore[list-item]
    return asyncio.create_task(beats.run())


async def test_a_supervisor_that_stops_leaves_the_queues_to_others(
    store: Store, clock: ManualClock, app: Tenure
):
    beating = await supervisor_of_one(store, app, Events())
    await clock.advance(200)
    assert [lock.key for lock in await app.locks()] == [LEASE]
    beating.cancel()
    await clock.advance(1)
    assert await app.locks() == []


async def test_a_supervisor_reports_a_jump(store: Store, clock: ManualClock, app: Tenure):
    seen: list[Event] = []
    events = Events()
    events.subscribe(seen.append)
    beating = await supervisor_of_one(store, app, events)
    await clock.advance(10)
    clock.step(60)
    await clock.advance(20)
    beating.cancel()
    assert of_kind(seen, ClockJumped) == [ClockJumped(60.0)]


async def test_slow_answers_and_a_slow_drift_are_no_jump(make: Make, faults, clock: ManualClock):
    app = await make(faulty=True)
    seen = watched(app)
    async with app.worker():
        await clock.advance(10)
        for seconds in (0.0, 4.0, 0.0, 2.0):
            faults.delay("beat", seconds)
            await clock.advance(10)
        faults.heal()
        for _ in range(20):
            clock.step(0.2)
            await clock.advance(4)
    assert not of_kind(seen, ClockJumped)


@pytest.mark.parametrize(
    ("latency", "step", "jump"),
    [
        ((0.0, 0.0), 1.0, 1.0),
        ((0.0, 0.0), -1.0, -1.0),
        ((0.0, 0.0), 0.9, 0.0),
        ((0.0, 2.0), 1.5, 0.0),
        ((2.0, 0.0), -1.5, 0.0),
        ((2.0, 2.0), 60.0, 60.0),
    ],
)
def test_what_the_duration_of_a_call_explains_is_no_jump(
    latency: tuple[float, float], step: float, jump: float
):
    before = lead_of(1_800_000_000_000_000, sent=10.0, answered=10.0 + latency[0])
    at = 1_800_000_003_000_000 + round(step * 1e6)
    after = lead_of(at, sent=13.0, answered=13.0 + latency[1])
    assert jump_between(before, after) == pytest.approx(jump, abs=1.0 if any(latency) else 1e-6)
    assert bool(jump_between(before, after)) == bool(jump)


def test_a_jump_during_a_slow_call_is_reported_by_the_next_one():
    """The store's host is paused during a heartbeat, and its clock loses as much time."""
    events, seen, watch = Events(), list[Event](), ClockWatch()
    events.subscribe(seen.append)
    for at, sent, answered in [(0, 0, 0.01), (6.005, 6, 26), (9, 29, 29.01), (12, 32, 32.01)]:
        watch.heard(
            1_800_000_000_000_000 + int(at * 1e6), sent=sent, answered=answered, events=events
        )
    assert seen == [ClockJumped(-20.0)]


def test_a_jump_that_a_slow_call_shows_is_reported_once():
    events, seen, watch = Events(), list[Event](), ClockWatch()
    events.subscribe(seen.append)
    for at, sent, answered in [(0, 0, 0.01), (63, 3, 3.5), (66, 6, 6.01), (69, 9, 9.01)]:
        watch.heard(
            1_800_000_000_000_000 + int(at * 1e6), sent=sent, answered=answered, events=events
        )
    assert [round(event.seconds) for event in seen if isinstance(event, ClockJumped)] == [60]


@pytest.mark.parametrize(("step", "jumps"), [(0.0, []), (60.0, [62.2])])
def test_a_drift_between_answers_that_are_hours_apart_is_no_jump(step: float, jumps: list[float]):
    """A worker under a supervisor beats only while the supervisor is silent."""
    events, seen, watch = Events(), list[Event](), ClockWatch()
    events.subscribe(seen.append)
    for sent, stepped in ((0.0, 0.0), (6 * 3600.0, step)):
        at = 1_800_000_000_000_000 + int((sent * 1.0001 + stepped) * 1e6)
        watch.heard(at, sent=sent, answered=sent + 0.01, events=events)
    assert [event.seconds for event in of_kind(seen, ClockJumped)] == jumps


def test_slow_calls_for_long_are_compared_with_each_other():
    """By then the store's clock may have drifted by more than a second."""
    events, seen, watch = Events(), list[Event](), ClockWatch()
    events.subscribe(seen.append)
    for beat in range(1000):
        sent, call = 10.0 * beat, 2.0 if beat else 0.01
        at = 1_800_000_000_000_000 + int((sent + call / 2) * 1.0005 * 1e6)
        watch.heard(at, sent=sent, answered=sent + call, events=events)
    assert not seen
