"""Timers have slots of their own: how many run at a time in a worker, and in which workers."""

from collections import Counter

import pytest

from tenure import ConfigError
from tenure.observe import TimersFull
from tests.jobs.replicas import of_kind
from tests.rig.endings import bury


class Crowd:
    """Timers that count how many of them run at a time."""

    def __init__(self, clock) -> None:
        self._clock = clock
        self.inside = 0
        self.most = 0
        self.ran: Counter[str] = Counter()

    def declare(self, app, *names: str, seconds: float = 1, **options) -> None:
        for name in names:
            app.timer(name=name, **{"every": "1m", **options})(self._handler(name, seconds))

    def _handler(self, name: str, seconds: float):
        async def run() -> None:
            self.inside += 1
            self.most = max(self.most, self.inside)
            self.ran[name] += 1
            try:
                await self._clock.sleep(seconds)
            finally:
                self.inside -= 1

        return run


@pytest.fixture
def crowd(clock) -> Crowd:
    return Crowd(clock)


NAMES = [f"t{number}" for number in range(12)]


async def test_long_runs_leave_all_slots_to_jobs(app, clock, crowd):
    crowd.declare(app, *NAMES[:4], seconds=3600)

    @app.task
    async def quick() -> int:
        return 1

    async with app.worker(concurrency=4):
        await clock.advance(61)
        assert crowd.inside == 4
        job = await quick.enqueue()
        await clock.advance(1)
        assert (await job.refresh()).state == "succeeded"


async def test_jobs_leave_all_timer_slots_to_timers(app, clock, crowd):
    crowd.declare(app, *NAMES[:3])

    @app.task
    async def long() -> None:
        await clock.sleep(3600)

    async with app.worker(concurrency=2, timer_concurrency=3):
        await app.enqueue_many(long.request() for _ in range(10))
        await clock.advance(61)
    assert crowd.ran == dict.fromkeys(NAMES[:3], 1)


async def test_no_more_runs_at_a_time_than_there_are_timer_slots(app, clock, crowd, seen):
    crowd.declare(app, *NAMES)
    async with app.worker(timer_concurrency=3):
        await clock.advance(75)
        assert crowd.most == 3
        assert crowd.ran == dict.fromkeys(NAMES, 1)
        [event, *_] = of_kind(seen, TimersFull)
        assert event.timer in NAMES
        assert event.timer_concurrency == 3
        assert len(event.running) == 3
        assert "timer_concurrency" in str(event)
        await clock.advance(60)
    assert crowd.most == 3
    assert crowd.ran == dict.fromkeys(NAMES, 2)
    assert len(of_kind(seen, TimersFull)) == 2  # once for each time that they pile up


async def test_a_full_replica_leaves_its_ticks_to_others(make, clock, crowd):
    full, free = await make(), await make()
    crowd.declare(full, *NAMES, seconds=3600)
    crowd.declare(free, *NAMES, seconds=3600)
    async with full.worker(timer_concurrency=1), free.worker(timer_concurrency=50):
        await clock.advance(62)
        assert crowd.ran == dict.fromkeys(NAMES, 1)
        assert crowd.inside == 12


async def test_ticks_that_are_being_decided_count_as_runs(app, clock, crowd, faults):
    crowd.declare(app, *NAMES)
    faults.delay("commit", 0.5)
    async with app.worker(timer_concurrency=3):
        await clock.advance(80)
    assert crowd.most == 3
    assert crowd.ran == dict.fromkeys(NAMES, 1)


async def test_each_replicas_own_timers_wait_for_a_slot_too(app, clock, crowd):
    crowd.declare(app, *NAMES[:4], each="replica")
    async with app.worker(timer_concurrency=1):
        await clock.advance(70)
    assert crowd.most == 1
    assert crowd.ran == dict.fromkeys(NAMES[:4], 1)


async def test_schedules_need_no_timer_slot(app, clock, crowd):
    ran = []

    @app.task
    async def report() -> None:
        ran.append(clock.boot())

    app.schedule(report, every="10s", name="reports")
    crowd.declare(app, "long", every="5s", seconds=3600)
    async with app.worker(timer_concurrency=1):
        await clock.advance(61)
    assert len(ran) == 6


async def test_a_triggered_run_starts_though_all_slots_of_jobs_are_taken(app, clock, crowd):
    crowd.declare(app, "sync", every="1d")

    @app.task
    async def long() -> None:
        await clock.sleep(3600)

    async with app.worker(concurrency=1):
        await app.enqueue_many(long.request() for _ in range(3))
        await clock.advance(1)
        run = await app.timer_handle("sync").trigger()
        await clock.advance(6)
        assert (await run.refresh()).state == "succeeded"


async def test_a_worker_without_timers(app, clock, crowd):
    crowd.declare(app, "sync")

    @app.task
    async def quick() -> int:
        return 1

    async with app.worker(timers=False), app.worker(timers=False):
        job = await quick.enqueue()
        await clock.advance(120)
        assert (await job.refresh()).state == "succeeded"
    assert not crowd.ran


async def test_a_worker_for_timers_only(app, clock, crowd):
    crowd.declare(app, "sync")

    @app.task
    async def quick() -> int:
        return 1

    async with app.worker(timers="only"):
        job = await quick.enqueue()
        await clock.advance(61)
        assert (await job.refresh()).state == "waiting"
        assert crowd.ran == {"sync": 1}
        async with app.worker(timers=False):
            await clock.advance(1)
            assert (await job.refresh()).state == "succeeded"


async def test_senseless_options(app):
    with pytest.raises(ConfigError, match="timer_concurrency must be from 1"):
        app.worker(timer_concurrency=0)
    with pytest.raises(ConfigError, match="timers must be"):
        app.worker(timers="none")
    with pytest.raises(ConfigError, match='timers="only"'):
        app.worker(timers="only", queues=["default"])


async def test_a_run_that_is_cancelled_while_it_waits_for_a_slot_never_starts(app, clock, crowd):
    crowd.declare(app, *NAMES[:3], every="1d", seconds=0.5)
    async with app.worker(timer_concurrency=1):
        await clock.advance(1)
        await app.pause_queue("@timers")
        runs = [await app.timer_handle(name).trigger() for name in NAMES[:3]]
        await app.resume_queue("@timers")
        await clock.advance(0.1)
        assert [(await run.refresh()).state for run in runs] == ["running"] * 3
        assert crowd.inside == 1
        await runs[1].cancel("not now")
        await clock.advance(5)
        assert [(await run.refresh()).state for run in runs] == [
            "succeeded",
            "cancelled",
            "succeeded",
        ]
    assert crowd.ran == {NAMES[0]: 1, NAMES[2]: 1}


async def test_runs_that_wait_for_a_slot_are_dropped_when_their_worker_is_taken_for_dead(
    app, store, clock, crowd, faults
):
    crowd.declare(app, *NAMES[:3], every="1d", seconds=5)
    async with app.worker(timer_concurrency=1) as worker:
        await clock.advance(1)
        await app.pause_queue("@timers")
        runs = [await app.timer_handle(name).trigger() for name in NAMES[:3]]
        beats = faults.calls["beat"]
        while faults.calls["beat"] == beats:
            await clock.advance(0.01)
        await clock.advance(2.4)  # soon before the next beat
        await app.resume_queue("@timers")
        await clock.advance(0.1)
        assert [(await run.refresh()).state for run in runs] == ["running"] * 3
        await bury(store, worker.replica, [runs[0].id], delays=[0.0])
        await clock.advance(0.6)
        await clock.advance(60)
        assert [(await run.refresh()).state for run in runs[1:]] == ["succeeded"] * 2
    # A triggered run that is lost runs again. The others had not begun.
    assert [crowd.ran[name] for name in NAMES[:3]] == [2, 1, 1]
    assert crowd.most == 1


async def test_runs_that_cannot_start_here_go_back_to_workers_with_slots(make, clock, crowd):
    full, free = await make(), await make()
    for app in (full, free):
        crowd.declare(app, *NAMES[:3], every="1d", seconds=3600)
    async with full.worker(timer_concurrency=1):
        await clock.advance(1)
        await full.pause_queue("@timers")
        for name in NAMES[:3]:
            await full.timer_handle(name).trigger()
        await full.resume_queue("@timers")
        await clock.advance(0.1)
        assert crowd.inside == 1
        async with free.worker(timer_concurrency=5):
            await clock.advance(10)
            assert crowd.inside == 3
            assert crowd.ran == dict.fromkeys(NAMES[:3], 1)


async def test_a_slot_that_becomes_free_is_used_at_once(app, clock, crowd):
    crowd.declare(app, *NAMES, seconds=0.1)
    async with app.worker(timer_concurrency=1):
        await clock.advance(59)
        assert not crowd.ran
        await clock.advance(1 + 1.5)
        assert crowd.ran == dict.fromkeys(NAMES, 1)


async def test_a_worker_for_timers_only_starts_a_triggered_run_at_once(app, clock, crowd):
    crowd.declare(app, "sync", every="1d")
    async with app.worker(timers="only"):
        await clock.advance(7.3)
        await app.timer_handle("sync").trigger()
        await clock.advance(0.1)
        assert crowd.ran == {"sync": 1}


async def test_the_timer_that_has_waited_longest_gets_the_next_slot(app, clock, crowd):
    crowd.declare(app, "often", every="1s", seconds=1.2)
    crowd.declare(app, "seldom", every="1m")
    async with app.worker(timer_concurrency=1):
        await clock.advance(60 + 3)
        assert crowd.ran["seldom"] == 1
