"""Overlap, limits, missed ticks, retries and delays of timers, in virtual time."""

import asyncio
import logging
import sqlite3
from collections import Counter
from contextlib import closing
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from tenure import Backoff, Retry, Tenure, Tick, current_job
from tenure.app import engine_of
from tenure.observe import Event, JobFailed, JobRetried
from tenure.stores.contract import Store
from tenure.testing import ManualClock
from tests.jobs.replicas import of_kind
from tests.rig.wait import wait_until_async
from tests.timers.fleet import BEGIN, Fleet, Replica, notes_ticks, seconds_of


async def test_queue_one_runs_the_newest_tick_next(store: Store, clock: ManualClock):
    fleet = Fleet(store, clock, notes_ticks(2.5, overlap="queue_one"))
    async with fleet.running(2):
        await clock.advance(7.9)
    assert sorted(fleet.ran) == [BEGIN + 1, BEGIN + 3, BEGIN + 6]


async def test_cancel_previous_runs_every_tick(store: Store, clock: ManualClock):
    fleet = Fleet(store, clock, notes_ticks(100, every="10s", overlap="cancel_previous"))
    async with fleet.running(1):
        await clock.advance(35)
        history = await fleet.replicas[0].app.timer_handle("work").history()
    assert sorted(fleet.ran) == [BEGIN + 10, BEGIN + 20, BEGIN + 30]
    assert [record.outcome for record in history] == ["running", "cancelled", "cancelled"]


async def test_a_limit_holds_over_all_replicas(store: Store, clock: ManualClock):
    running = most = 0

    def declare(app: Tenure, replica: Replica) -> None:
        @app.timer(every="1s", each="replica", limit=3)
        async def work(tick: Tick) -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            replica.ran.append(seconds_of(tick.nominal))
            await clock.sleep(0.5)
            running -= 1

    fleet = Fleet(store, clock, declare)
    async with fleet.running(5):
        await clock.advance(20.9)
    assert most == 3
    assert set(fleet.ran.values()) == {3}
    assert len(fleet.ran) == 20


async def test_every_replica_may_have_its_own_ticks(store: Store, clock: ManualClock):
    fleet = Fleet(store, clock, notes_ticks(1.5, each="replica"))
    async with fleet.running(3):
        await clock.advance(4.9)
    for replica in fleet.replicas:
        assert replica.ran == [BEGIN + 1, BEGIN + 3]


async def test_two_ticks_may_overlap(store: Store, clock: ManualClock):
    fleet = Fleet(store, clock, notes_ticks(2.5, overlap="allow"))
    async with fleet.running(2):
        await clock.advance(4.5)
    assert fleet.ran == Counter(range(BEGIN + 1, BEGIN + 5))


async def test_no_more_than_its_share_runs_on_one_replica(store: Store, clock: ManualClock):
    fleet = Fleet(store, clock, notes_ticks(3.5, overlap="allow", per_replica=2))
    async with fleet.running(2):
        await clock.advance(4.4)
    assert [len(replica.ran) for replica in fleet.replicas] == [2, 2]


async def test_a_pause_may_count_from_the_end_of_a_run(store: Store, clock: ManualClock):
    fleet = Fleet(store, clock, notes_ticks(3.0, every="10s", after="completion"))
    async with fleet.running(3):
        await clock.advance(40)
    assert sorted(fleet.ran) == [BEGIN + 10, BEGIN + 23, BEGIN + 36]


@pytest.mark.parametrize(
    ("catch_up", "away", "expected"),
    [
        ("latest", 30, [120]),
        ("latest", 90, [120, 180]),
        ("latest", 600, [660, 720]),
        ("none", 30, [120]),
        ("none", 90, [180]),
        ("none", 600, [720]),
        ("all", 90, [120, 180]),
        ("all", 150, [120, 180, 240]),
        ("all", 1200, [*range(720, 1260 + 1, 60), 1320]),
    ],
)
async def test_ticks_that_nobody_ran(
    store: Store, clock: ManualClock, catch_up: str, away: int, expected: list[int]
):
    """All replicas are away from second 75 on."""
    fleet = Fleet(store, clock, notes_ticks(every="1m", catch_up=catch_up))
    async with fleet.running(2):
        await clock.advance(75)
    clock.shift(away)
    async with fleet.running(2):
        await clock.advance(60)
        history = await fleet.replicas[-1].app.timer_handle("work").history(100)
    assert sorted(fleet.ran) == [BEGIN + seconds for seconds in (60, *expected)]
    assert sum(record.ticks for record in history) == (135 + away) // 60


async def test_runs_that_catch_up_keep_to_the_limit(store: Store, clock: ManualClock):
    running = most = 0

    def declare(app: Tenure, replica: Replica) -> None:
        @app.timer(every="1m", catch_up="all", overlap="allow", limit=2)
        async def work(tick: Tick) -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            replica.ran.append(seconds_of(tick.nominal))
            await clock.sleep(50)
            running -= 1

    fleet = Fleet(store, clock, declare)
    async with fleet.running(1):
        await clock.advance(1)
    clock.shift(9 * 60)
    async with fleet.running(2):
        await clock.advance(49)
        history = await fleet.replicas[-1].app.timer_handle("work").history(100)
    assert most == 2
    assert sorted(fleet.ran) == [BEGIN + 60, BEGIN + 120]
    assert {record.reason for record in history if record.outcome == "skipped"} == {"limit"}


async def test_too_late_is_not_made_up_for(store: Store, clock: ManualClock):
    fleet = Fleet(store, clock, notes_ticks(every="1h", within="5m"))
    async with fleet.running(1):
        await clock.advance(1)
    clock.shift(3600 - BEGIN % 3600 + 360)
    async with fleet.running(1):
        await clock.advance(1)
        (record,) = await fleet.replicas[-1].app.timer_handle("work").history()
    assert (record.outcome, record.reason) == ("missed", "late")
    assert not fleet.ran


async def test_a_new_timer_makes_up_for_nothing(store: Store, clock: ManualClock):
    fleet = Fleet(store, clock, notes_ticks(every="1h", catch_up="all"))
    async with fleet.running(1):
        await clock.advance(1)
    assert not fleet.ran


async def test_the_stores_clock_may_be_set(
    store: Store, clock: ManualClock, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.WARNING, "tenure")
    fleet = Fleet(store, clock, notes_ticks(every="1m"))
    async with fleet.running(2):
        await clock.advance(130)
        clock.step(86_400)
        await clock.advance(61)
        assert len(fleet.ran) == 4  # no burst
        assert "ticks missed: timer work, ticks 1000" in caplog.text
        clock.step(-86_400 - 3600)
        await clock.advance(600)
    assert max(fleet.ran.values()) == 1


async def test_a_clock_set_ahead_is_noticed_within_a_minute(store: Store, clock: ManualClock):
    fleet = Fleet(store, clock, notes_ticks(every="12h"))
    async with fleet.running(1):
        await clock.advance(10)
        clock.step(13 * 3600)
        await clock.advance(61)
    assert len(fleet.ran) == 1


async def test_a_run_that_asks_for_a_pause_gets_it(store: Store, clock: ManualClock):
    tries: list[int] = []
    pauses = iter(["60s", "30s", "10m"])

    def declare(app: Tenure, _: Replica) -> None:
        @app.timer(every="10m", retry=5)
        async def work() -> None:
            tries.append(round(clock.boot()))
            raise Retry(after=next(pauses))

    fleet = Fleet(store, clock, declare)
    async with fleet.running(1):
        await clock.advance(1100)
        history = await fleet.replicas[0].app.timer_handle("work").history()
    # The third pause would end after the next tick, which is a run of its own.
    assert [later - earlier for earlier, later in pairwise(tries)] == [60, 30]
    assert (history[0].outcome, history[0].error) == ("failed", "Retry: asked to run again")


async def test_retries_end_with_the_next_tick(store: Store, clock: ManualClock):
    tries: list[tuple[int, int]] = []
    seen: list[Event] = []

    def declare(app: Tenure, _: Replica) -> None:
        app.on_event(seen.append)

        @app.timer(every="10s", retry=Backoff(max_attempts=100, base=3, factor=1))
        async def work(tick: Tick) -> None:
            tries.append((seconds_of(tick.nominal) - BEGIN, tick.attempt))
            raise ValueError(tick.attempt)

    fleet = Fleet(store, clock, declare)
    async with fleet.running(1):
        await clock.advance(28.5)
        history = await fleet.replicas[0].app.timer_handle("work").history()
    assert tries == [(10, 1), (10, 2), (10, 3), (10, 4), (20, 1), (20, 2), (20, 3)]
    assert (history[1].outcome, history[1].reason) == ("failed", "error")
    assert "ValueError" in history[1].error
    # The fourth try of the first run is its last. The second run waits for its next try when its
    # worker is stopped, and may run only once.
    assert len(of_kind(seen, JobRetried)) == len(tries) - 1
    assert [event.cause for event in of_kind(seen, JobFailed)] == ["error", "interrupted"]


async def test_a_run_that_takes_too_long_is_cancelled(store: Store, clock: ManualClock):
    fleet = Fleet(store, clock, notes_ticks(100, every="10s", timeout="3s"))
    async with fleet.running(1):
        await clock.advance(29)
        history = await fleet.replicas[0].app.timer_handle("work").history()
    assert sorted(fleet.ran) == [BEGIN + 10, BEGIN + 20]
    assert {(record.outcome, record.reason) for record in history} == {("failed", "timeout")}


async def test_jitter_delays_each_run_by_another_time(store: Store, clock: ManualClock):
    begun: list[float] = []

    def declare(app: Tenure, _: Replica) -> None:
        @app.timer(every="1m", jitter="30s")
        async def work(tick: Tick) -> None:
            begun.append(clock.wall() / 1e6 - seconds_of(tick.nominal))
            assert tick.lateness == 0
            assert tick.scheduled - tick.nominal <= timedelta(seconds=30)

    fleet = Fleet(store, clock, declare)
    async with fleet.running(2):
        await clock.advance(300)
    assert len({round(offset, 3) for offset in begun}) == len(begun) >= 4
    assert all(0 <= offset <= 30 for offset in begun)


@pytest.mark.parametrize("minutes", [4, 60])
async def test_after_an_outage_the_newest_tick_runs(store: Store, clock: ManualClock, minutes: int):
    fleet = Fleet(store, clock, notes_ticks(every="1m"))
    async with fleet.running(1):
        await clock.advance(59)
        fleet.replicas[0].faults.lose_request("commit", times=10_000)
        await clock.advance(60 * minutes - 40)
        fleet.replicas[0].faults.heal()
        await clock.advance(2)
        history = await fleet.replicas[0].app.timer_handle("work").history()
    assert sorted(fleet.ran) == [BEGIN + 60 * minutes]
    outcomes = [(record.outcome, record.ticks) for record in history]
    assert outcomes == [("succeeded", 1), ("missed", minutes - 1)]


async def test_a_plain_function_is_not_called_again_after_it_was_stopped(
    store: Store, clock: ManualClock
):
    tries: list[int] = []

    def declare(app: Tenure, _: Replica) -> None:
        @app.timer(every="1h", retry=Backoff(max_attempts=9, base=20, factor=1), timeout="30s")
        def work(tick: Tick) -> None:
            tries.append(tick.attempt)
            raise ValueError

    fleet = Fleet(store, clock, declare)
    async with fleet.running(1):
        await clock.advance(3600 - BEGIN % 3600)
        await wait_until_async(lambda: tries, 10)
        for _ in range(5):
            await asyncio.sleep(0.01)
            await clock.advance(20)
        (record,) = await fleet.replicas[0].app.timer_handle("work").history()
    assert tries == [1, 2]
    assert record.outcome == "failed"


async def test_a_plain_function_that_waits_for_its_next_try_can_be_cancelled(
    store: Store, clock: ManualClock
):
    runs: list[str] = []

    def declare(app: Tenure, _: Replica) -> None:
        @app.timer(every="1h", retry=5)
        def work() -> None:
            runs.append(current_job().id)
            raise Retry(after="20m")

    fleet = Fleet(store, clock, declare)
    async with fleet.running(1):
        await clock.advance(3600 - BEGIN % 3600)
        await wait_until_async(lambda: runs, 10)
        app = fleet.replicas[0].app
        await (await app.job(runs[0])).cancel("not today")

        async def has_ended() -> bool:
            await clock.advance(0.1)
            return (await app.job(runs[0])).is_finished

        await wait_until_async(has_ended, 10)
        (record,) = await app.timer_handle("work").history()
    assert (len(runs), record.outcome, record.reason) == (1, "cancelled", "not today")
    assert clock.wall() / 1e6 % 3600 < 1200


async def test_the_time_of_a_run_does_not_count_its_jitter(store: Store, clock: ManualClock):
    fleet = Fleet(store, clock, notes_ticks(2, every="1m", jitter="50s", timeout="3s"))
    async with fleet.running(1):
        await clock.advance(300)
        history = await fleet.replicas[0].app.timer_handle("work").history()
    assert {record.outcome for record in history[1:]} == {"succeeded"}


async def test_only_the_end_of_its_own_runs_wakes_a_tick_that_waits(
    store: Store, clock: ManualClock
):
    def declare(app: Tenure, _: Replica) -> None:
        @app.timer(every="1s", overlap="queue_one")
        async def work() -> None:
            await clock.sleep(5)

        @app.task
        async def quick() -> None: ...

        app.quick = quick

    fleet = Fleet(store, clock, declare)
    async with fleet.running(1):
        await clock.advance(1.1)
        replica = fleet.replicas[0]
        before = replica.faults.calls["commit"]
        for _ in range(20):
            await replica.app.quick.enqueue()
            await clock.advance(0.1)
        assert replica.faults.calls["commit"] - before <= 4


@pytest.mark.parametrize("day", ["2026-01-10", "2026-03-20", "2026-07-01"])
def test_the_spread_of_a_rule_does_not_depend_on_the_day(day: str):
    clock = ManualClock(int(datetime.fromisoformat(f"{day}T00:00Z").timestamp()) * 1_000_000)
    app = Tenure("memory://", clock=clock)

    @app.timer(cron="30 2 * * *", tz="Europe/Berlin", spread=True)
    async def work() -> None: ...

    assert engine_of(app).registry.plans["work"].definition.offset == 7_774_792_279


async def test_a_run_that_has_committed_its_end_is_not_tried_again(tmp_path: Path):
    file = tmp_path / "tenure.db"
    app = Tenure(f"sqlite:///{file}")
    ticks: list[datetime] = []

    @app.timer(every="1s", retry=Backoff(max_attempts=3, base=0.01, factor=1))
    def work(tick: Tick) -> None:
        ticks.append(tick.nominal)
        with closing(sqlite3.connect(file)) as db, current_job().transaction(db):
            pass
        raise ValueError("after the commit")

    async with app, app.worker():
        await wait_until_async(lambda: len(ticks) >= 2, 20)
    assert len(ticks) == len(set(ticks))
