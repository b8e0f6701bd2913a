"""Operators and deploys act on timers, in virtual time."""

import asyncio
from collections import Counter
from datetime import timedelta

import pytest

from tenure import ConfigError, JobStateError, Tenure, TimerBusy
from tenure.core.jobs.view import as_datetime
from tenure.core.schedules.documents import DECLARED_FOR
from tenure.observe import HandlerStuck, TickSkipped, TicksMissed
from tenure.stores.contract import Store
from tenure.testing import ManualClock
from tests.jobs.replicas import of_kind
from tests.timers.fleet import BEGIN, Fleet, Replica, notes_ticks, seconds_of


async def test_a_pause_skips_ticks_until_it_ends(store: Store, clock: ManualClock):
    fleet = Fleet(store, clock, notes_ticks())
    async with fleet.running(2):
        await clock.advance(2.5)
        timer = fleet.replicas[0].app.timer_handle("work")
        await timer.pause(reason="migration", until="3s")
        await clock.advance(5)
        assert sorted(fleet.ran) == [BEGIN + 1, BEGIN + 2, BEGIN + 6, BEGIN + 7]
        skipped = (await timer.history())[2]
        assert (skipped.reason, skipped.ticks) == ("paused", 3)
        await timer.pause(reason="for good")
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
        await fleet.replicas[0].app.timer_handle("work").pause()
    async with fleet.running(1):
        await clock.advance(5)
    assert sorted(fleet.ran) == [BEGIN + 1]


async def test_everything_is_frozen_at_once(store: Store, clock: ManualClock):
    fleet = Fleet(store, clock, notes_ticks())
    async with fleet.running(2):
        app = fleet.replicas[0].app
        until = as_datetime(clock.wall()) + timedelta(seconds=5)
        await app.pause_timers(reason="release", until=until)
        await clock.advance(3.5)
        assert not fleet.ran
        assert await app.resume_timers()
        assert not await app.resume_timers()
        await clock.advance(1)
    assert sorted(fleet.ran) == [BEGIN + 4]


async def test_a_trigger_runs_once_also_while_paused(store: Store, clock: ManualClock):
    fleet = Fleet(store, clock, notes_ticks(every="1h"))
    async with fleet.running(2):
        await clock.advance(1)
        timer = fleet.replicas[0].app.timer_handle("work")
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


async def test_a_run_that_waits_under_an_old_name_runs_under_the_new_one(
    store: Store, clock: ManualClock
):
    async with Fleet(store, clock, notes_ticks(every="1h", name="before")).running(1):
        await clock.advance(1)
    async with Tenure(store) as app:
        triggered = await app.timer_handle("before").trigger()
        new = Fleet(store, clock, notes_ticks(every="1h", name="after", renamed_from="before"))
        async with new.running(1):
            await clock.advance(5)
        assert (await triggered.refresh()).state == "succeeded"
    assert sum(new.ran.values()) == 1


async def test_opening_an_app_fires_nothing(make, clock: ManualClock):
    app = await make()
    ran: list[int] = []

    @app.timer(every="1s")
    async def work() -> None:
        ran.append(1)

    await clock.advance(10)
    assert not ran
    assert await app.timers() == []


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
    events: list[object] = []

    def declare(app: Tenure, _: Replica) -> None:
        app.on_event(events.append)

        @app.timer(every="1s")
        async def work() -> None:
            await clock.sleep(1.5)

    fleet = Fleet(store, clock, declare)
    async with fleet.running(1):
        await clock.advance(2.1)
    clock.shift(10)
    async with fleet.running(1):
        await clock.advance(0.1)
    assert of_kind(events, TickSkipped) == [TickSkipped("work", "overlap")]
    assert [event.ticks for event in of_kind(events, TicksMissed)] == [9]
    assert not of_kind(events, HandlerStuck)


async def test_a_timer_that_no_worker_declares_is_forgotten(store: Store, clock: ManualClock):
    fleet = Fleet(store, clock, notes_ticks(every="1h", name="old"))
    async with fleet.running(1):
        await clock.advance(1)
    clock.shift(15 * 86_400)
    others = Fleet(store, clock, notes_ticks(every="1h", name="new"))
    async with others.running(1):
        await clock.advance(300)
        assert [timer.name for timer in await others.replicas[0].app.timers()] == ["new"]


async def test_a_worker_that_yields_to_another_definition_logs_it(
    store: Store, clock: ManualClock, caplog: pytest.LogCaptureFixture
):
    caplog.set_level("INFO", "tenure")
    old = Fleet(store, clock, notes_ticks(every="10s"))
    async with old.running(1):
        await clock.advance(1)
        new = Fleet(store, clock, notes_ticks(every="15s"))
        async with new.running(1):
            await clock.advance(DECLARED_FOR)
            lines = [line for line in caplog.messages if "another definition of it rules" in line]
            assert len(lines) == 1
            assert lines[0].startswith("timer 'work'")
        await clock.advance(2 * DECLARED_FOR)
    assert "timer 'work' ticks here from now on" in caplog.messages


async def test_a_look_at_all_timers_says_how_the_last_run_ended(store: Store, clock: ManualClock):
    def declare(app: Tenure, _: Replica) -> None:
        @app.timer(every="10s")
        async def broken() -> None:
            raise ValueError

    fleet = Fleet(store, clock, declare)
    async with fleet.running(1):
        await clock.advance(11)
        (info,) = await fleet.replicas[0].app.timers()
    assert info.latest is not None
    assert (info.latest.outcome, info.latest.reason) == ("failed", "error")


async def test_a_rest_counts_from_the_end_of_a_run(store: Store, clock: ManualClock):
    fleet = Fleet(store, clock, notes_ticks(3.0, every="10s", after="completion"))
    async with fleet.running(1):
        await clock.advance(0.5)
        timer = fleet.replicas[0].app.timer_handle("work")
        info = await timer.info()
        assert info.rule == "10 s after each run"
        begins = info.next
        assert begins is not None
        assert abs(seconds_of(begins) - (BEGIN + 10)) <= 1
        assert await timer.preview(5) == [begins]
        await clock.advance(11)
        assert (await timer.info()).next is None, "it depends on when this run ends"
        assert await timer.preview() == []
        await clock.advance(3)
        info = await timer.info()
        (ran,) = await timer.history()
        assert ran.finished is not None
        assert info.next == ran.finished + timedelta(seconds=10)
        await clock.advance(9)
    assert len(fleet.ran) == 2


async def test_a_trigger_of_a_busy_timer_names_the_job_that_runs(store: Store, clock: ManualClock):
    fleet = Fleet(store, clock, notes_ticks(100, every="1m"))
    async with fleet.running(1):
        await clock.advance(61)
        timer = fleet.replicas[0].app.timer_handle("work")
        (ran,) = await timer.history()
        with pytest.raises(TimerBusy, match=rf"\(overlap\): job {ran.job}, running\. Try again"):
            await timer.trigger()


async def test_a_timer_says_when_it_was_last_heard_of(store: Store, clock: ManualClock):
    fleet = Fleet(store, clock, notes_ticks(every="1h"))
    async with fleet.running(1):
        await clock.advance(1)
    await clock.advance(30)
    async with fleet.replicas[0].app as app:
        info = await app.timer_handle("work").info()
    assert info.is_declared, "a minute has not passed"
    assert 30 <= seconds_of(as_datetime(clock.wall())) - seconds_of(info.declared) <= 32


async def test_a_changed_option_keeps_the_ticks_that_were_missed(store: Store, clock: ManualClock):
    first = Fleet(store, clock, notes_ticks(every="10s", catch_up="all"))
    async with first.running(1):
        await clock.advance(11)
    clock.shift(26)
    changed = Fleet(store, clock, notes_ticks(every="10s", catch_up="all", timeout="5s"))
    async with changed.running(1):
        await clock.advance(2)
    assert sorted(changed.ran) == [BEGIN + 20, BEGIN + 30]


async def test_another_rule_begins_now(store: Store, clock: ManualClock):
    first = Fleet(store, clock, notes_ticks(every="10s", catch_up="all"))
    async with first.running(1):
        await clock.advance(11)
    clock.shift(30)
    changed = Fleet(store, clock, notes_ticks(every="5s", catch_up="all"))
    async with changed.running(1):
        await clock.advance(0.5)
        assert not changed.ran
        await clock.advance(5)
    assert sorted(changed.ran) == [BEGIN + 45]


async def test_operations_on_an_old_name_are_refused(store: Store, clock: ManualClock):
    for declare in (
        notes_ticks(every="1m", name="before"),
        notes_ticks(every="1m", name="after", renamed_from="before"),
    ):
        async with Fleet(store, clock, declare).running(1):
            await clock.advance(1)
    async with Tenure(store) as app:
        before = app.timer_handle("before")
        for act in (before.pause, before.resume, before.trigger):
            with pytest.raises(
                ConfigError, match=f"'before' is called 'after' now; {act.__name__}"
            ):
                await act()
        assert (await before.info()).pause is None


async def test_a_rename_may_be_taken_back_and_deployed_again(store: Store, clock: ManualClock):
    before = notes_ticks(every="1m", name="before")
    after = notes_ticks(every="1m", name="after", renamed_from="before")
    fleets = []
    for declare in (before, after, before, after):
        fleets.append(Fleet(store, clock, declare))
        async with fleets[-1].running(1):
            await clock.advance(3 * DECLARED_FOR)
    ran = sum((fleet.ran for fleet in fleets), Counter())
    assert max(ran.values()) == 1
    assert all(fleet.ran for fleet in fleets)
