"""Timers in virtual time: one run per tick, with any number of replicas."""

import asyncio
import threading
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime

import pytest

from tenure import Tenure, Tick
from tenure.core.schedules.records import Commit, Committed
from tenure.runtime.timers.scheduling import Scheduling
from tenure.stores.contract import Store
from tenure.stores.memory.schedules import Schedules
from tenure.testing import ManualClock
from tests.rig.endings import bury
from tests.timers.fleet import BEGIN, Fleet, Replica, notes_ticks, seconds_of


@pytest.mark.parametrize("replicas", [1, 3, 10])
@pytest.mark.parametrize("body", [0.0, 0.01])
async def test_each_tick_runs_once(store: Store, clock: ManualClock, replicas: int, body: float):
    fleet = Fleet(store, clock, notes_ticks(body))
    async with fleet.running(replicas):
        await clock.advance(50.5)
    assert fleet.ran == Counter(range(BEGIN + 1, BEGIN + 51))


async def test_a_tick_during_a_run_is_skipped_and_recorded(store: Store, clock: ManualClock):
    fleet = Fleet(store, clock, notes_ticks(2.5))
    async with fleet.running(3):
        await clock.advance(9.9)
        history = await fleet.replicas[0].app.timer_handle("work").history()
    assert sorted(fleet.ran) == [BEGIN + 1, BEGIN + 4, BEGIN + 7]
    assert [(record.outcome, record.reason, record.ticks) for record in history] == [
        ("skipped", "overlap", 2),
        ("succeeded", "", 1),
        ("skipped", "overlap", 2),
        ("succeeded", "", 1),
        ("skipped", "overlap", 2),
        ("succeeded", "", 1),
    ]


async def test_a_killed_replica_costs_no_tick_of_the_others(store: Store, clock: ManualClock):
    fleet = Fleet(store, clock, notes_ticks(0.01))
    async with fleet.running(2):
        victim = fleet.add()
        await victim.app.open()
        worker = victim.app.worker()
        await worker.__aenter__()
        await clock.advance(10.5)
        worker._running.cancel()  # nothing is settled, no replica leaves
        await clock.advance(30)
        history = await fleet.replicas[0].app.timer_handle("work").history(100)
    assert max(fleet.ran.values()) == 1
    ticks = {seconds_of(record.nominal) for record in history if record.ticks == 1}
    assert set(range(BEGIN + 1, BEGIN + 41)) - set(fleet.ran) <= ticks
    await victim.app.close()


async def test_a_schedule_that_the_store_has_lost_is_declared_anew_at_once(
    store: Store, clock: ManualClock
):
    fleet = Fleet(store, clock, notes_ticks())
    async with fleet.running(1):
        await clock.advance(5.5)
        assert await Scheduling(store).forget(idle=0) == 1
        await clock.advance(4)
    assert {BEGIN + 7, BEGIN + 8, BEGIN + 9} <= set(fleet.ran)


async def test_a_run_that_is_lost_is_recorded_and_not_repeated(store: Store, clock: ManualClock):
    fleet = Fleet(store, clock, notes_ticks(1000, every="1h"))
    victim = fleet.add()
    await victim.app.open()
    worker = victim.app.worker()
    await worker.__aenter__()
    await clock.advance(3600 - BEGIN % 3600 + 1)
    assert len(victim.ran) == 1
    victim.faults.lose_request("beat", times=10_000)
    async with fleet.running(1):
        await clock.advance(60)
        (record,) = await fleet.replicas[1].app.timer_handle("work").history()
        assert (record.outcome, record.reason) == ("failed", "lost")
        assert fleet.replicas[1].ran == []
        worker._running.cancel()
    await victim.app.close()


async def test_a_run_that_is_lost_runs_again_if_it_may(store: Store, clock: ManualClock):
    fleet = Fleet(store, clock, notes_ticks(1000, every="1h", on_crash="rerun"))
    victim = fleet.add()
    await victim.app.open()
    worker = victim.app.worker()
    await worker.__aenter__()
    await clock.advance(3600 - BEGIN % 3600 + 1)
    victim.faults.lose_request("beat", times=10_000)
    async with fleet.running(1):
        await clock.advance(60)
        assert fleet.replicas[1].ran == victim.ran
        worker._running.cancel()
    await victim.app.close()


async def test_a_stopped_replica_never_gives_a_run_to_another(store: Store, clock: ManualClock):
    fleet = Fleet(store, clock, notes_ticks(30, every="1m"))
    async with fleet.running(1):
        async with AsyncExitStack() as stack:
            other = fleet.add()
            await stack.enter_async_context(other.app)
            await stack.enter_async_context(other.app.worker())
            await clock.advance(61)
        await clock.advance(20)
    assert max(fleet.ran.values()) == 1


@pytest.mark.parametrize("call", ["commit", "declare", "read", "settle", "beat", "claim"])
async def test_a_lost_reply_costs_nothing(store: Store, clock: ManualClock, call: str):
    fleet = Fleet(store, clock, notes_ticks(0.01))
    async with fleet.running(3):
        for _ in range(20):
            for replica in fleet.replicas:
                replica.faults.lose_reply(call)
            await clock.advance(1)
        for replica in fleet.replicas:
            replica.faults.heal()
        await clock.advance(0.5)
        info = await fleet.replicas[0].app.timer_handle("work").info()
    assert fleet.ran == Counter(range(BEGIN + 1, BEGIN + 21))
    assert info.running == 0


async def test_plain_functions_run_in_threads(store: Store, clock: ManualClock):
    names: list[str] = []
    has_run = asyncio.Event()
    loop = asyncio.get_running_loop()

    def declare(app: Tenure, _: Replica) -> None:
        @app.timer(every="1s")
        def work() -> None:
            names.append(threading.current_thread().name)
            loop.call_soon_threadsafe(has_run.set)

    fleet = Fleet(store, clock, declare)
    async with fleet.running(1):
        await clock.advance(1)
        await asyncio.wait_for(has_run.wait(), 10)
    assert names != [threading.current_thread().name]


async def test_a_schedule_enqueues_a_job_per_tick(store: Store, clock: ManualClock):
    got: list[str] = []

    def declare(app: Tenure, _: Replica) -> None:
        @app.task
        async def report(kind: str) -> str:
            got.append(kind)
            return kind

        app.schedule(report, every="10s", args=("weekly",))

    fleet = Fleet(store, clock, declare)
    async with fleet.running(3):
        await clock.advance(36)
        page = await fleet.replicas[0].app.jobs(task="report")
    assert got == ["weekly"] * 3
    assert len(page) == 3


async def test_a_tick_tells_about_itself(store: Store, clock: ManualClock):
    ticks: list[Tick] = []

    def declare(app: Tenure, _: Replica) -> None:
        @app.timer(every="10s")
        async def work(tick: Tick) -> None:
            ticks.append(tick)

    fleet = Fleet(store, clock, declare)
    async with fleet.running(1):
        await clock.advance(20)
    first, second = ticks
    assert first.name == "work"
    assert first.nominal == first.scheduled == datetime.fromtimestamp(BEGIN + 10, UTC)
    assert (first.attempt, first.previous) == (1, None)
    assert first.lateness < 0.001
    assert second.previous == first.nominal
    assert second.fence > first.fence


async def test_an_answer_that_comes_after_the_replica_was_buried_starts_nothing(
    store: Store, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
):
    fleet = Fleet(store, clock, notes_ticks(1000, every="1m", each="replica", limit=1))
    held, ask = asyncio.Event(), Schedules.commit

    async def answer_late(self: Schedules, commits: Sequence[Commit]) -> list[Committed]:
        answers = await ask(self, commits)
        if commits[0].tick == (BEGIN + 60) * 1_000_000:
            await held.wait()
        return answers

    monkeypatch.setattr(Schedules, "commit", answer_late)
    async with fleet.running(1):
        await clock.advance(61)
        [before] = await store.jobs.replicas()
        await bury(store, before.id, [], delays=[0.0])
        await clock.advance(10)
        held.set()
        await clock.advance(10)
        assert not fleet.ran
        await clock.advance(60)
    assert sorted(fleet.ran) == [BEGIN + 120]


async def test_a_worker_serves_the_queues_of_its_schedules(store: Store, clock: ManualClock):
    got: list[str] = []

    def declare(app: Tenure, _: Replica) -> None:
        @app.task
        async def report() -> None:
            got.append("report")

        app.schedule(report.using(queue="slow"), every="10s")

    fleet = Fleet(store, clock, declare)
    async with fleet.running(1):
        await clock.advance(11)
    assert got == ["report"]
