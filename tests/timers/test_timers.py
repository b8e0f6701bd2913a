"""Timers in virtual time: one run per tick, whoever else is there."""

import asyncio
import threading
from collections import Counter
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta

import pytest

from tenure import Backoff, ConfigError, JobStateError, Tenure, Tick
from tenure.core.schedules import DECLARED_FOR, Advance, Advanced
from tenure.core.views import as_datetime
from tenure.observe.events import AttemptFailed, HandlerStuck, TickSkipped, TicksMissed
from tenure.stores.contract import Store
from tenure.testing import FaultyStore, ManualClock
from tests.jobs.replicas import of_kind
from tests.rig.waiting import wait_until_async
from tests.timers.fleet import Fleet, Replica

BEGIN = 1_800_000_000  # seconds; the clock's first instant, and a whole minute


def seconds_of(moment: datetime) -> int:
    return int(moment.timestamp())


def notes_ticks(body: float = 0.0, **options):
    """Declare a timer of one second whose handler takes so long."""

    def declare(app: Tenure, replica: Replica) -> None:
        clock = app._store.clock

        @app.timer(**{"every": "1s", **options})
        async def work(tick: Tick) -> None:
            replica.ran.append(seconds_of(tick.nominal))
            await clock.sleep(body)

    return declare


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
        history = await fleet.replicas[0].app.timers["work"].history()
    assert sorted(fleet.ran) == [BEGIN + 1, BEGIN + 4, BEGIN + 7]
    assert [(one.outcome, one.reason, one.ticks) for one in history] == [
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
        worker._running.cancel()  # nothing is settled, nobody leaves
        await clock.advance(30)
        history = await fleet.replicas[0].app.timers["work"].history(100)
    assert max(fleet.ran.values()) == 1
    ticks = {seconds_of(one.nominal) for one in history if one.ticks == 1}
    assert set(range(BEGIN + 1, BEGIN + 41)) - set(fleet.ran) <= ticks
    await victim.app.close()


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
        (record,) = await fleet.replicas[1].app.timers["work"].history()
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


@pytest.mark.parametrize("call", ["advance", "plant", "settle", "beat", "claim"])
async def test_a_lost_reply_costs_nothing(store: Store, clock: ManualClock, call: str):
    fleet = Fleet(store, clock, notes_ticks(0.01))
    async with fleet.running(3):
        for _ in range(20):
            for replica in fleet.replicas:
                replica.faults.lose_reply(call)
            await clock.advance(1)
        await clock.advance(0.5)
        info = await fleet.replicas[0].app.timers["work"].info()
    assert fleet.ran == Counter(range(BEGIN + 1, BEGIN + 21))
    assert info.running == 0


# Policies.


async def test_queue_one_runs_the_newest_tick_next(store: Store, clock: ManualClock):
    fleet = Fleet(store, clock, notes_ticks(2.5, overlap="queue_one"))
    async with fleet.running(2):
        await clock.advance(7.9)
    assert sorted(fleet.ran) == [BEGIN + 1, BEGIN + 3, BEGIN + 6]


async def test_cancel_previous_runs_every_tick(store: Store, clock: ManualClock):
    fleet = Fleet(store, clock, notes_ticks(100, every="10s", overlap="cancel_previous"))
    async with fleet.running(1):
        await clock.advance(35)
        history = await fleet.replicas[0].app.timers["work"].history()
    assert sorted(fleet.ran) == [BEGIN + 10, BEGIN + 20, BEGIN + 30]
    assert [one.outcome for one in history] == ["running", "cancelled", "cancelled"]


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
        history = await fleet.replicas[-1].app.timers["work"].history(100)
    assert sorted(fleet.ran) == [BEGIN + one for one in (60, *expected)]
    assert sum(one.ticks for one in history) == (135 + away) // 60


async def test_too_late_is_not_made_up_for(store: Store, clock: ManualClock):
    fleet = Fleet(store, clock, notes_ticks(every="1h", within="5m"))
    async with fleet.running(1):
        await clock.advance(1)
    clock.shift(3600 - BEGIN % 3600 + 360)
    async with fleet.running(1):
        await clock.advance(1)
        (record,) = await fleet.replicas[-1].app.timers["work"].history()
    assert (record.outcome, record.reason) == ("missed", "late")
    assert not fleet.ran


async def test_a_new_timer_makes_up_for_nothing(store: Store, clock: ManualClock):
    fleet = Fleet(store, clock, notes_ticks(every="1h", catch_up="all"))
    async with fleet.running(1):
        await clock.advance(1)
    assert not fleet.ran


async def test_the_stores_clock_may_be_set(store: Store, clock: ManualClock):
    fleet = Fleet(store, clock, notes_ticks(every="1m"))
    async with fleet.running(2):
        await clock.advance(130)
        clock.step(86_400)
        await clock.advance(61)
        assert len(fleet.ran) == 4  # no burst
        clock.step(-86_400 - 3600)
        await clock.advance(600)
    assert max(fleet.ran.values()) == 1


async def test_retries_end_with_the_next_tick(store: Store, clock: ManualClock):
    tries: list[tuple[int, int]] = []
    failed: list[AttemptFailed] = []

    def declare(app: Tenure, _: Replica) -> None:
        app.on_event(failed.append)

        @app.timer(every="10s", retry=Backoff(max_attempts=100, base=3, factor=1))
        async def work(tick: Tick) -> None:
            tries.append((seconds_of(tick.nominal) - BEGIN, tick.attempt))
            raise ValueError(tick.attempt)

    fleet = Fleet(store, clock, declare)
    async with fleet.running(1):
        await clock.advance(28.5)
        history = await fleet.replicas[0].app.timers["work"].history()
    assert tries == [(10, 1), (10, 2), (10, 3), (10, 4), (20, 1), (20, 2), (20, 3)]
    assert (history[1].outcome, history[1].reason) == ("failed", "error")
    assert "ValueError" in history[1].error
    assert len(of_kind(failed, AttemptFailed)) == len(tries)


async def test_a_run_that_takes_too_long_is_cancelled(store: Store, clock: ManualClock):
    fleet = Fleet(store, clock, notes_ticks(100, every="10s", max_run_time="3s"))
    async with fleet.running(1):
        await clock.advance(29)
        history = await fleet.replicas[0].app.timers["work"].history()
    assert sorted(fleet.ran) == [BEGIN + 10, BEGIN + 20]
    assert {(one.outcome, one.reason) for one in history} == {("failed", "timeout")}


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
    assert len({round(one, 3) for one in begun}) == len(begun) >= 4
    assert all(0 <= one <= 30 for one in begun)


# Operators.


async def test_a_pause_skips_ticks_until_it_ends(store: Store, clock: ManualClock):
    fleet = Fleet(store, clock, notes_ticks())
    async with fleet.running(2):
        await clock.advance(2.5)
        timer = fleet.replicas[0].app.timers["work"]
        await timer.pause("migration", until="3s")
        await clock.advance(5)
        assert sorted(fleet.ran) == [BEGIN + 1, BEGIN + 2, BEGIN + 6, BEGIN + 7]
        skipped = (await timer.history())[2]
        assert (skipped.reason, skipped.ticks) == ("paused", 3)
        await timer.pause("for good")
        await clock.advance(10)
        info = await timer.info()
        assert info.pause is not None
        assert (info.pause.reason, info.pause.until) == ("for good", None)
        assert await timer.resume()
        assert not await timer.resume()
        await clock.advance(1)
    assert len(fleet.ran) == 5


async def test_a_pause_survives_a_deploy(store: Store, clock: ManualClock):
    fleet = Fleet(store, clock, notes_ticks())
    async with fleet.running(1):
        await clock.advance(1.5)
        await fleet.replicas[0].app.timers["work"].pause()
    async with fleet.running(1):
        await clock.advance(5)
    assert sorted(fleet.ran) == [BEGIN + 1]


async def test_everything_is_frozen_at_once(store: Store, clock: ManualClock):
    fleet = Fleet(store, clock, notes_ticks())
    async with fleet.running(2):
        app = fleet.replicas[0].app
        until = as_datetime(clock.wall()) + timedelta(seconds=5)
        await app.freeze("release", until=until)
        await clock.advance(3.5)
        assert not fleet.ran
        assert await app.unfreeze()
        assert not await app.unfreeze()
        await clock.advance(1)
    assert sorted(fleet.ran) == [BEGIN + 4]


async def test_a_trigger_runs_once_also_while_paused(store: Store, clock: ManualClock):
    fleet = Fleet(store, clock, notes_ticks(every="1h"))
    async with fleet.running(2):
        await clock.advance(1)
        timer = fleet.replicas[0].app.timers["work"]
        await timer.pause()
        job = await timer.trigger()
        await clock.advance(6)
        await job.refresh()
        assert job.state == "succeeded"
        (record,) = await timer.history()
        assert (record.outcome, record.reason, record.job) == ("succeeded", "triggered", job.id)
        with pytest.raises(JobStateError, match="trigger that instead"):
            await job.requeue()
    assert len(fleet.ran) == 1


async def test_a_changed_rule_takes_over_and_the_old_one_stops(store: Store, clock: ManualClock):
    old = Fleet(store, clock, notes_ticks(every="10s"))
    async with old.running(1):
        await clock.advance(25)
        new = Fleet(store, clock, notes_ticks(every="15s"))
        async with new.running(1):
            await clock.advance(60)
            assert sorted(old.ran) == [BEGIN + 10, BEGIN + 20]
            assert sorted(new.ran) == [BEGIN + 30, BEGIN + 45, BEGIN + 60, BEGIN + 75]
        await clock.advance(2 * DECLARED_FOR)
    assert max(old.ran) > BEGIN + 100, "it goes on when the newer one is gone for good"


async def test_a_renamed_timer_runs_no_tick_again(store: Store, clock: ManualClock):
    old = Fleet(store, clock, notes_ticks(every="1m", name="before"))
    async with old.running(1):
        await clock.advance(61)
        new = Fleet(store, clock, notes_ticks(every="1m", name="after", renamed_from="before"))
        async with new.running(1):
            await clock.advance(120)
    both = old.ran + new.ran
    assert max(both.values()) == 1
    assert len(both) == 3


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


async def test_opening_an_app_fires_nothing(make, clock: ManualClock):
    app = await make()
    ran: list[int] = []

    @app.timer(every="1s")
    async def work() -> None:
        ran.append(1)

    await clock.advance(10)
    assert not ran
    assert await app.timers.all() == []


async def test_timers_run_once_per_process(make):
    app = await make()

    @app.timer(every="1s")
    async def work() -> None: ...

    async with app.worker():
        with pytest.raises(ConfigError, match="already"):
            await app.run_timers()


async def test_run_timers_runs_timers_and_no_jobs(make, clock: ManualClock):
    app = await make()
    ran: list[str] = []

    @app.timer(every="1s")
    async def work() -> None:
        ran.append("timer")

    @app.task
    async def job() -> None:
        ran.append("job")

    await job.enqueue()
    running = asyncio.ensure_future(app.run_timers())
    await clock.advance(2.5)
    running.cancel()
    await asyncio.wait([running])
    assert ran == ["timer", "timer"]


async def test_events_tell_of_ticks_that_did_not_run(store: Store, clock: ManualClock):
    told: list[object] = []

    def declare(app: Tenure, _: Replica) -> None:
        app.on_event(told.append)

        @app.timer(every="1s")
        async def work() -> None:
            await clock.sleep(1.5)

    fleet = Fleet(store, clock, declare)
    async with fleet.running(1):
        await clock.advance(2.1)
    clock.shift(10)
    async with fleet.running(1):
        await clock.advance(0.1)
    assert of_kind(told, TickSkipped) == [TickSkipped("work", "overlap")]
    assert [one.ticks for one in of_kind(told, TicksMissed)] == [9]
    assert not of_kind(told, HandlerStuck)


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


async def test_after_an_outage_the_newest_tick_runs(store: Store, clock: ManualClock):
    fleet = Fleet(store, clock, notes_ticks(every="1m"))
    async with fleet.running(1):
        await clock.advance(59)
        fleet.replicas[0].faults.lose_request("advance", times=10_000)
        await clock.advance(200)
        fleet.replicas[0].faults.heal()
        await clock.advance(2)
        history = await fleet.replicas[0].app.timers["work"].history()
    assert sorted(fleet.ran) == [BEGIN + 240]
    assert [(one.outcome, one.ticks) for one in history] == [("succeeded", 1), ("missed", 3)]


async def test_a_timer_that_nobody_has_any_more_is_forgotten(store: Store, clock: ManualClock):
    fleet = Fleet(store, clock, notes_ticks(every="1h", name="old"))
    async with fleet.running(1):
        await clock.advance(1)
    clock.shift(15 * 86_400)
    others = Fleet(store, clock, notes_ticks(every="1h", name="new"))
    async with others.running(1):
        await clock.advance(300)
        assert [one.name for one in await others.replicas[0].app.timers.all()] == ["new"]


async def test_an_answer_that_comes_after_the_replica_was_buried_starts_nothing(
    store: Store, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
):
    fleet = Fleet(store, clock, notes_ticks(1000, every="1m", each="replica", limit=1))
    held, ask = asyncio.Event(), FaultyStore.advance

    async def answer_late(self: FaultyStore, move: Advance) -> Advanced:
        answer = await ask(self, move)
        if move.to == (BEGIN + 60) * 1_000_000:
            await held.wait()
        return answer

    monkeypatch.setattr(FaultyStore, "advance", answer_late)
    async with fleet.running(1):
        await clock.advance(61)
        [before] = await store.replicas()
        await store.bury(before.id, [], delays=[0.0])
        await clock.advance(10)
        held.set()
        await clock.advance(10)
        assert not fleet.ran
        await clock.advance(60)
    assert sorted(fleet.ran) == [BEGIN + 120]


async def test_a_plain_function_is_not_called_again_after_it_was_stopped(
    store: Store, clock: ManualClock
):
    tries: list[int] = []

    def declare(app: Tenure, _: Replica) -> None:
        @app.timer(every="1h", retry=Backoff(max_attempts=9, base=20, factor=1), max_run_time="30s")
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
        (record,) = await fleet.replicas[0].app.timers["work"].history()
    assert tries == [1, 2]
    assert record.outcome == "failed"


async def test_the_time_of_a_run_does_not_count_its_jitter(store: Store, clock: ManualClock):
    fleet = Fleet(store, clock, notes_ticks(2, every="1m", jitter="50s", max_run_time="3s"))
    async with fleet.running(1):
        await clock.advance(300)
        history = await fleet.replicas[0].app.timers["work"].history()
    assert {one.outcome for one in history[1:]} == {"succeeded"}


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
        before = replica.faults.calls["advance"]
        for _ in range(20):
            await replica.app.quick.enqueue()
            await clock.advance(0.1)
        assert replica.faults.calls["advance"] - before <= 4


@pytest.mark.parametrize("day", ["2026-01-10", "2026-03-20", "2026-07-01"])
def test_the_spread_of_a_rule_does_not_depend_on_the_day(day: str):
    clock = ManualClock(int(datetime.fromisoformat(f"{day}T00:00Z").timestamp()) * 1_000_000)
    app = Tenure("memory://", clock=clock)

    @app.timer(cron="30 2 * * *", tz="Europe/Berlin", spread=True)
    async def work() -> None: ...

    assert app._plans["work"].definition.offset == 7_774_792_279
