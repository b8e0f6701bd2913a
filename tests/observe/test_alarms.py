"""Alarms about what takes too long: attempts, runs of timers, queues. Each once per case."""

import asyncio
import logging
import time
from contextlib import AsyncExitStack
from itertools import pairwise
from typing import Any

import pytest

from tenure import Tenure
from tenure.app import engine_of
from tenure.core.jobs.overdue_queues import QueueAges
from tenure.errors import ConfigError
from tenure.observe import (
    Event,
    JobRunsLong,
    QueueDelayed,
    TickRan,
    TickUnlocked,
    TimerRunsLong,
)
from tenure.observe.events import Events
from tenure.runtime.attempts.expected_times import ExpectedTimes
from tenure.runtime.replica.queue_watch import LEASE, QueueWatch
from tenure.stores.contract import Store
from tenure.testing import Faults, FaultyStore, ManualClock
from tests.jobs.replicas import Make, of_kind
from tests.rig.wait import wait_until, wait_until_async


def watched(app: Tenure) -> list[Event]:
    seen: list[Event] = []
    app.on_event(seen.append)
    return seen


# Attempts.


async def test_an_attempt_that_takes_half_as_long_again_is_reported_once(
    make: Make, clock: ManualClock, caplog: pytest.LogCaptureFixture
):
    app = await make()
    seen = watched(app)

    @app.task(expected="10s", queue="mail", retry=1)
    async def work(seconds: float) -> None:
        await clock.sleep(seconds)

    async with app.worker():
        quick, slow = await work.enqueue(14.9), await work.enqueue(60)
        await clock.advance(14.9)
        assert not of_kind(seen, JobRunsLong)
        await clock.advance(0.2)
        [event] = of_kind(seen, JobRunsLong)
        await clock.advance(60)
        assert of_kind(seen, JobRunsLong) == [event]
        assert (await quick.refresh()).state == (await slow.refresh()).state == "succeeded"
    assert event == JobRunsLong("work", slow.id, 15.0, "mail", 1, 10.0)
    lines = [
        line for line in caplog.records if "has run for 15 s; expected is 10 s" in line.message
    ]
    assert [(line.levelno, line.job, line.queue) for line in lines] == [
        (logging.WARNING, slow.id, "mail")
    ]


async def test_each_attempt_has_an_alarm_of_its_own(make: Make, clock: ManualClock):
    app = await make()
    seen = watched(app)

    @app.task(expected="10s", timeout="20s", retry=1)
    async def work() -> None:
        await clock.sleep(60)

    async with app.worker():
        await work.enqueue()
        await clock.advance(60)
    assert [event.attempt for event in of_kind(seen, JobRunsLong)] == [1, 2]


async def test_expected_takes_the_place_of_long_job(make: Make, clock: ManualClock):
    app = await make(long_job=20)
    seen = watched(app)

    @app.task(expected="1h")
    async def usual() -> None:
        await clock.sleep(300)

    @app.task
    async def unknown() -> None:
        await clock.sleep(300)

    async with app.worker():
        await usual.enqueue()
        await unknown.enqueue()
        await clock.advance(100)
    [event] = of_kind(seen, JobRunsLong)
    assert (event.task, event.queue, event.attempt, event.expected) == (
        "unknown",
        "default",
        1,
        None,
    )


async def test_an_alarm_rings_while_the_loop_is_blocked(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tenure.runtime.work.loop_watch._LOOK_EVERY", 0.05)
    app = Tenure("memory://")
    seen, seen_inside, looks = watched(app), [], []
    look = ExpectedTimes.look

    def counted(times: ExpectedTimes, now: float) -> None:
        look(times, now)
        looks.append(len(of_kind(seen, JobRunsLong)))

    monkeypatch.setattr(ExpectedTimes, "look", counted)

    @app.task(expected=0.1)
    async def blocks() -> None:
        wait_until(lambda: len([alarms for alarms in looks if alarms]) > 2, 20)
        seen_inside.extend(of_kind(seen, JobRunsLong))

    async with app, app.worker():
        job = await blocks.enqueue()
        await job.result(30)
    assert of_kind(seen, JobRunsLong) == seen_inside
    assert [event.job for event in seen_inside] == [job.id]


@pytest.mark.parametrize("expected", [0, -1, "soon", True])
def test_a_wrong_expected_is_refused(expected: Any):
    app = Tenure("memory://")
    with pytest.raises(ConfigError, match="expected must be"):
        app.task(expected=expected)(_nothing)
    with pytest.raises(ConfigError, match="expected must be"):
        app.timer(every="1m", expected=expected)(_nothing)


async def _nothing() -> None: ...


# Runs of timers.


@pytest.mark.parametrize(
    ("options", "alarm"),
    [
        ({"expected": "2s"}, (3.0, 2.0)),
        ({"timeout": "4s"}, None),  # it stops in time
        ({"timeout": "30s", "expected": "4s"}, (6.0, 4.0)),
        ({"expected": "2s", "jitter": "5s"}, (3.0, 2.0)),
        ({}, None),
    ],
)
async def test_a_run_of_a_timer_that_takes_too_long_is_reported_once(
    make: Make, clock: ManualClock, options: dict[str, Any], alarm: tuple[float, float] | None
):
    app = await make()
    seen = watched(app)
    began: list[float] = []
    rang: list[float] = []
    app.on_event(lambda event: rang.append(clock.boot()) if type(event) is TimerRunsLong else None)

    @app.timer(every="1m", **options)
    async def work() -> None:
        began.append(clock.boot())
        await clock.sleep(40)

    async with app.worker():
        await clock.advance(59)
        await clock.advance(55)
    events = of_kind(seen, TimerRunsLong)
    assert [(event.timer, event.seconds, event.expected) for event in events] == (
        [] if alarm is None else [("work", *alarm)]
    )
    assert all(event.job for event in events)
    if alarm is not None:
        assert rang[0] - began[0] == pytest.approx(alarm[0], abs=0.01), "after the jitter"
    assert not of_kind(seen, JobRunsLong)


async def test_a_run_that_ignores_its_time_limit_is_reported_by_default():
    app = Tenure("memory://", grace=0)
    seen = watched(app)

    @app.timer(every="1s", timeout=0.2)
    def deaf() -> None:
        time.sleep(0.6)

    async with app, app.worker():
        await wait_until_async(lambda: of_kind(seen, TimerRunsLong), 20)
    assert of_kind(seen, TimerRunsLong)[0].expected == 0.2


async def test_a_run_without_the_store_is_reported_while_it_blocks_the_loop(
    faults: Faults, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("tenure.runtime.work.loop_watch._LOOK_EVERY", 0.05)
    app = Tenure(FaultyStore("memory://", faults), grace=0)
    seen = watched(app)
    seen_inside: list[Event] = []

    @app.timer(every="1s", on_unavailable="run", expected=0.1)
    async def blocks() -> None:
        if of_kind(seen, TickUnlocked) and not seen_inside:
            wait_until(lambda: of_kind(seen, TimerRunsLong), 5)
            seen_inside.extend(of_kind(seen, TimerRunsLong))

    async with app, app.worker():
        await wait_until_async(lambda: of_kind(seen, TickRan), 15)
        faults.lose_request("commit", times=10**6)
        await wait_until_async(lambda: seen_inside, 15)
        faults.heal()
    [event] = seen_inside
    assert isinstance(event, TimerRunsLong)
    assert (event.timer, event.job, event.expected) == ("blocks", "", 0.1)


async def test_a_run_without_the_store_is_reported_too(
    make: Make, faults: Faults, clock: ManualClock
):
    app = await make(faulty=True)
    seen = watched(app)

    @app.timer(every="1m", on_unavailable="run", expected="2s")
    async def work() -> None:
        await clock.sleep(10)

    async with app.worker():
        await clock.advance(50)
        faults.lose_request("commit", times=10**6)
        await clock.advance(30)
        faults.heal()
    assert of_kind(seen, TimerRunsLong) == [TimerRunsLong("work", "", 3.0, 2.0)]


async def test_a_run_without_the_store_that_ends_in_time_raises_no_alarm(
    make: Make, faults: Faults, clock: ManualClock
):
    app = await make(faulty=True)
    seen, runs = watched(app), []

    @app.timer(every="1m", on_unavailable="run", expected="2s", timeout="10s")
    async def work() -> None:
        runs.append(clock.boot())
        await clock.sleep(1)

    async with app.worker():
        await clock.advance(50)
        faults.lose_request("commit", times=10**6)
        await clock.advance(30)
        faults.heal()
    assert runs
    assert not of_kind(seen, TimerRunsLong)


# Queues.


async def test_a_late_queue_is_reported_once_by_one_of_three_workers(
    make: Make, clock: ManualClock
):
    apps = [await make(faulty=True, queue_expected={"mail": "2m"}) for _ in range(3)]
    seen = [watched(app) for app in apps]

    @apps[0].task(name="work", queue="mail")
    async def work() -> None: ...

    def delays() -> list[QueueDelayed]:
        return [event for events in seen for event in of_kind(events, QueueDelayed)]

    async with AsyncExitStack() as stack:
        for app in apps:
            await stack.enter_async_context(app.worker(queues=["of its own"]))
        first = await work.enqueue()
        await clock.advance(115)
        assert delays() == []
        await clock.advance(70)
        [delay] = delays()
        assert (delay.queue, delay.expected) == ("mail", 120.0)
        assert 120 < delay.age < 185
        await work.enqueue()
        await clock.advance(900)
        assert delays() == [delay], "not with each look"
        await first.cancel()
        async with apps[0].worker(queues=["mail"]):
            await clock.advance(70)
        late = await work.enqueue()
        await clock.advance(200)
        assert [each.queue for each in delays()] == ["mail", "mail"], "a new episode"
        await late.cancel()


async def test_looks_at_the_queues_cost_the_store_one_count_a_minute(
    make: Make, store: Store, faults: Faults, clock: ManualClock
):
    apps = [await make(faulty=True) for _ in range(5)]
    async with AsyncExitStack() as stack:
        for app in apps:
            await stack.enter_async_context(app.worker())
        await clock.advance(120)
        faults.calls.clear()
        await clock.advance(600)
        assert 9 <= faults.calls["counts"] <= 14
        assert faults.calls["acquire"] <= 5 * 14


async def test_another_worker_follows_the_one_that_looks(make: Make, clock: ManualClock):
    apps = [await make(queue_expected="2m") for _ in range(2)]
    seen = [watched(app) for app in apps]
    task = apps[0].task(name="work", queue="mail")(_nothing)
    async with AsyncExitStack() as first, AsyncExitStack() as second:
        await first.enter_async_context(apps[0].worker(queues=["of its own"]))
        await clock.advance(90)
        await second.enter_async_context(apps[1].worker(queues=["of its own"]))
        await clock.advance(90)
        assert [lock.key for lock in await apps[1].locks()] == [LEASE]
        await first.aclose()
        assert await apps[1].locks() == [], "it does not have to wait for the end of the lease"
        await task.enqueue()
        await clock.advance(400)
        assert [len(of_kind(events, QueueDelayed)) for events in seen] == [0, 1]


async def test_the_queue_with_the_shortest_time_says_how_often_to_look(
    make: Make, clock: ManualClock
):
    app = await make(queue_expected={"mail": "10s"})
    seen = watched(app)
    await app.task(name="work", queue="mail")(_nothing).enqueue()
    async with app.worker(queues=["of its own"]):
        await clock.advance(20)
        [delay] = of_kind(seen, QueueDelayed)
    assert 10 < delay.age < 20


async def test_a_worker_that_follows_again_knows_no_late_queue(
    make: Make, store: Store, clock: ManualClock
):
    app = await make()
    seen, work = watched(app), app.task(name="work", queue="mail")(_nothing)
    events = engine_of(app).events
    first, second = (QueueWatch(store, QueueAges(60), events, replica_ttl=10) for _ in range(2))
    job = await work.enqueue()
    clock.shift(100)
    await first.look()
    clock.shift(100)  # its lease ends
    await second.look()
    await first.look()
    assert len(of_kind(seen, QueueDelayed)) == 2
    await job.cancel()
    await second.look()
    await work.enqueue()
    await second.leave()
    clock.shift(100)
    await first.look()
    assert len(of_kind(seen, QueueDelayed)) == 3


async def test_one_worker_reports_a_late_queue_also_with_rare_heartbeats(
    make: Make, clock: ManualClock
):
    """Workers look along with their beats: here four times rarer than the queue asks for."""
    settings = {"queue_expected": {"mail": "10s"}, "replica_ttl": "1m"}
    apps = [await make(**settings) for _ in range(3)]
    seen = [watched(app) for app in apps]
    task = apps[0].task(name="work", queue="mail")(_nothing)
    async with AsyncExitStack() as stack:
        for app in apps:
            await stack.enter_async_context(app.worker(queues=["of its own"]))
        await task.enqueue()
        await clock.advance(900)
    assert sum(len(of_kind(events, QueueDelayed)) for events in seen) == 1


async def test_paused_and_delayed_jobs_make_no_queue_late(make: Make, clock: ManualClock):
    app = await make(queue_expected="1m")
    seen = watched(app)
    task = app.task(name="work", queue="mail")(_nothing)
    await task.enqueue()
    await task.using(queue="later", delay="1h").enqueue()
    await app.pause_queue("mail")
    async with app.worker(queues=["of its own"]):
        await clock.advance(600)
        assert not of_kind(seen, QueueDelayed)
        await app.resume_queue("mail")
        await clock.advance(60)
        assert [event.queue for event in of_kind(seen, QueueDelayed)] == ["mail"]


async def test_health_and_alarm_have_the_same_limit(make: Make, clock: ManualClock):
    app = await make(queue_expected="1m")
    seen = watched(app)
    await app.task(name="work", queue="mail")(_nothing).enqueue()
    async with app.worker(queues=["of its own"]):
        await clock.advance(55)
        assert (await app.health()).status == "healthy"
        await clock.advance(60)
        [check] = [check for check in (await app.health()).checks if check.name == "queues"]
        assert (check.status, "expected: 1 min" in check.detail) == ("degraded", True)
        [event] = of_kind(seen, QueueDelayed)
    assert "expected is 1 min. Start workers for this queue" in str(event)


async def test_a_look_at_each_store_finds_a_late_queue(real_world, monkeypatch):
    for name in ("_LOOK_MIN", "_LOOK_MAX"):
        monkeypatch.setattr(f"tenure.core.jobs.overdue_queues.{name}", 0.4)
    monkeypatch.setattr("tenure.core.jobs.overdue_queues._MINIMUM", 0.1)
    app = Tenure(real_world.unopened(), queue_expected=0.1, replica_ttl=1)
    seen = watched(app)
    task = app.task(name="work", queue="mail")(_nothing)
    async with app:
        await task.enqueue()
        async with app.worker(queues=["of its own"]):
            await wait_until_async(lambda: of_kind(seen, QueueDelayed), 20)
            await asyncio.sleep(0)
    assert [event.queue for event in of_kind(seen, QueueDelayed)] == ["mail"]


async def test_counting_on_memory_looks_at_each_job_once(
    make: Make, store: Store, monkeypatch: pytest.MonkeyPatch
):
    """A worker counts every minute, and the memory store does it on the event loop."""
    app = await make()
    work = app.task(lambda: None, name="work")
    await app.enqueue_many(work.using(queue=f"customer-{n}").request() for n in range(300))
    looked_at, count = [], type(store.jobs)._count

    def counted(self: Any, queue: str, jobs: list[Any], now: int) -> Any:
        looked_at.extend(jobs)
        return count(self, queue, jobs, now)

    monkeypatch.setattr(type(store.jobs), "_count", counted)
    assert len(await store.jobs.counts()) == len(looked_at) == 300


async def test_beats_go_on_while_thousands_of_queues_are_reported_late(
    make: Make, store: Store, clock: ManualClock
):
    app = await make()
    work = app.task(lambda: None, name="work")
    await app.enqueue_many(work.using(queue=f"customer-{n}").request() for n in range(1000))
    clock.shift(301)
    events, seen, turns = Events(), list[Event](), list[int]()
    events.subscribe(seen.append)

    async def beat() -> None:
        while True:
            turns.append(len(seen))
            await asyncio.sleep(0)

    beating = asyncio.ensure_future(beat())
    await QueueWatch(store, QueueAges(), events, replica_ttl=10).look()
    beating.cancel()
    assert len(seen) == 1000
    assert max(after - before for before, after in pairwise(turns)) < 10
