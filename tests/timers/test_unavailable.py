"""Timers while the store is down."""

import asyncio
import json
import logging
from collections import Counter
from datetime import timedelta

import pytest

from tenure import Tenure, Tick
from tenure.app import engine_of
from tenure.core.jobs.endings import failed
from tenure.core.schedules.records import Commit, Expected, Write
from tenure.errors import ConfigError, StoreError
from tenure.observe import Event, StoreFailing, StoreRestored, TickUnlocked
from tenure.stores.contract import Store
from tenure.testing import ManualClock
from tests.timers.fleet import BEGIN, Fleet, Replica, seconds_of


def notes(ticks: list[Tick], clock: ManualClock, seconds: float = 0.0, **options):
    """Declare a timer that notes its ticks."""

    def declare(app: Tenure, _: Replica) -> None:
        @app.timer(**{"every": "10s", **options})
        async def work(tick: Tick) -> None:
            ticks.append(tick)
            await clock.sleep(seconds)

    return declare


def at(*instants: int) -> list[int]:
    return [BEGIN + instant for instant in instants]


def nominal(ticks: list[Tick]) -> list[int]:
    return [round(tick.nominal.timestamp()) for tick in ticks]


def cut_off(replica: Replica, *calls: str) -> None:
    for call in calls or ("commit", "declare", "read", "beat", "settle", "claim"):
        replica.faults.lose_request(call, times=10_000)


async def test_ticks_wait_for_the_store_by_default(store: Store, clock: ManualClock):
    ticks: list[Tick] = []
    fleet = Fleet(store, clock, notes(ticks, clock))
    async with fleet.running(1):
        await clock.advance(11)
        cut_off(fleet.replicas[0])
        await clock.advance(30)
    assert nominal(ticks) == at(10)


async def test_a_timer_that_asks_for_it_runs_without_the_store(store: Store, clock: ManualClock):
    ticks: list[Tick] = []
    fleet = Fleet(store, clock, notes(ticks, clock, on_unavailable="run"))
    async with fleet.running(2):
        seen: list[list[Event]] = [[], []]
        for replica, events in zip(fleet.replicas, seen, strict=True):
            replica.app.on_event(events.append)
        await clock.advance(11)
        for replica in fleet.replicas:
            cut_off(replica)
        await clock.advance(30)
    assert not ticks[0].unlocked
    assert ticks[0].fence > 0
    lone = ticks[1:]
    assert sorted(nominal(lone)) == at(20, 20, 30, 30, 40, 40)  # on each of the two
    assert all(tick.unlocked and tick.fence == 0 and tick.attempt == 1 for tick in lone)
    for events in seen:
        unlocked = [event for event in events if isinstance(event, TickUnlocked)]
        assert [event.nominal // 1_000_000 for event in unlocked] == at(20, 30, 40)


async def test_runs_without_the_store_are_recorded_and_not_caught_up(
    store: Store, clock: ManualClock
):
    ticks: list[Tick] = []
    fleet = Fleet(store, clock, notes(ticks, clock, on_unavailable="run", catch_up="all"))
    async with fleet.running(1):
        await clock.advance(11)
        cut_off(fleet.replicas[0])
        await clock.advance(32)
        fleet.replicas[0].faults.heal()
        await clock.advance(20)
        history = await fleet.replicas[0].app.timer_handle("work").history()
        info = await fleet.replicas[0].app.timer_handle("work").info()
    assert nominal(ticks) == at(10, 20, 30, 40, 50, 60)
    assert [tick.unlocked for tick in ticks] == [False, True, True, True, False, False]
    assert [(record.outcome, record.reason, record.ticks) for record in history] == [
        ("succeeded", "", 1),
        ("succeeded", "", 1),
        ("ran", "unlocked", 3),
        ("succeeded", "", 1),
    ]
    assert info.running == 0


async def test_a_tick_that_was_decided_before_its_reply_was_lost_runs_once_here(
    store: Store, clock: ManualClock
):
    ticks: list[Tick] = []
    fleet = Fleet(store, clock, notes(ticks, clock, on_unavailable="run"))
    async with fleet.running(1):
        await clock.advance(5)
        fleet.replicas[0].faults.lose_reply("commit", times=1)
        await clock.advance(20)
        page = await fleet.replicas[0].app.jobs(task="@work")
        info = await fleet.replicas[0].app.timer_handle("work").info()
    assert nominal(ticks) == at(10, 20)
    assert ticks[0].unlocked
    assert [(job.state, job.reason) for job in page][::-1] == [
        ("cancelled", "its tick ran without the store"),
        ("succeeded", ""),
    ]
    assert info.running == 0


async def test_a_tick_that_ran_without_the_store_is_not_decided_after_that(
    store: Store, clock: ManualClock
):
    """The replica stays alive: only its commits are lost."""
    ticks: list[Tick] = []
    fleet = Fleet(store, clock, notes(ticks, clock, on_unavailable="run"))
    async with fleet.running(1):
        await clock.advance(11)
        cut_off(fleet.replicas[0], "commit")
        await clock.advance(20)
        fleet.replicas[0].faults.heal()
        await clock.advance(10)
        page = await fleet.replicas[0].app.jobs(task="@work")
    assert nominal(ticks) == at(10, 20, 30, 40)
    assert [job.state for job in page] == ["succeeded", "succeeded"]


async def test_every_replica_records_what_it_ran(store: Store, clock: ManualClock):
    ticks: list[Tick] = []
    fleet = Fleet(store, clock, notes(ticks, clock, on_unavailable="run"))
    async with fleet.running(2):
        await clock.advance(11)
        for replica in fleet.replicas:
            cut_off(replica)
        await clock.advance(22)
        for replica in fleet.replicas:
            replica.faults.heal()
        await clock.advance(5)
        history = await fleet.replicas[0].app.timer_handle("work").history()
    lone = [(line.outcome, line.reason, line.ticks) for line in history[:-1]]
    assert lone == [("ran", "unlocked", 2)] * 2
    assert len({line.replica for line in history[:-1]}) == 2


@pytest.mark.parametrize("each", ["cluster", "replica"])
async def test_a_record_whose_reply_was_lost_is_not_written_again(
    store: Store, clock: ManualClock, each: str
):
    ticks: list[Tick] = []
    fleet = Fleet(store, clock, notes(ticks, clock, on_unavailable="run", each=each))
    async with fleet.running(1):
        await clock.advance(11)
        cut_off(fleet.replicas[0], "commit")
        await clock.advance(22)
        faults = fleet.replicas[0].faults

        def lose_the_next_reply(event: Event) -> None:
            if isinstance(event, StoreRestored) and event.call == "commit" and not has_lost:
                has_lost.append(True)
                faults.lose_reply("commit")

        has_lost: list[bool] = []
        fleet.replicas[0].app.on_event(lose_the_next_reply)
        faults.heal()
        await clock.advance(30)
        assert has_lost
        history = await fleet.replicas[0].app.timer_handle("work").history()
    lone = [(line.reason, line.ticks) for line in history if line.reason == "unlocked"]
    assert lone == [("unlocked", 2)]


async def test_a_tick_that_runs_while_a_record_is_written_runs_and_counts_once(
    store: Store, clock: ManualClock
):
    ticks: list[Tick] = []
    options = {"every": "1s", "catch_up": "all", "on_unavailable": "run"}
    fleet = Fleet(store, clock, notes(ticks, clock, **options))
    async with fleet.running(1):
        await clock.advance(2.5)
        faults = fleet.replicas[0].faults
        cut_off(fleet.replicas[0])
        await clock.advance(5)
        faults.heal()
        faults.delay("commit", 1.2)  # one or two more ticks run without the store meanwhile
        await clock.advance(10)
        faults.heal()
        await clock.advance(5)
        history = await fleet.replicas[0].app.timer_handle("work").history(100)
    assert nominal(ticks) == at(*range(1, 23))
    lines = [line for line in history if line.reason == "unlocked"]
    assert len(lines) > 2
    assert sum(line.ticks for line in lines) == sum(tick.unlocked for tick in ticks)
    alone = {line.first for line in lines if line.ticks == 1}
    assert alone
    assert alone <= {tick.nominal for tick in ticks}


async def test_a_run_sees_the_previous_run_without_the_store(store: Store, clock: ManualClock):
    ticks: list[Tick] = []
    fleet = Fleet(store, clock, notes(ticks, clock, on_unavailable="run"))
    async with fleet.running(1):
        await clock.advance(11)
        cut_off(fleet.replicas[0])
        await clock.advance(20)
    previous = [tick.previous for tick in ticks]
    assert previous == [None, *(tick.nominal for tick in ticks[:-1])]


@pytest.mark.parametrize("each", ["cluster", "replica"])
async def test_a_run_without_the_store_is_the_previous_run_after_a_restart(
    store: Store, clock: ManualClock, each: str
):
    ticks: list[Tick] = []
    declare = notes(ticks, clock, on_unavailable="run", each=each)
    fleet = Fleet(store, clock, declare)
    async with fleet.running(1):
        await clock.advance(11)
        cut_off(fleet.replicas[0])
        await clock.advance(32)
        fleet.replicas[0].faults.heal()
        await clock.advance(5)
        info = await fleet.replicas[0].app.timer_handle("work").info()
    assert [info.previous] == [tick.nominal for tick in ticks[-1:]]
    fleet = Fleet(store, clock, declare)
    async with fleet.running(1):
        await clock.advance(20)
    assert nominal(ticks) == at(10, 20, 30, 40, 50, 60)
    previous = [tick.previous for tick in ticks]
    assert previous == [None, *(tick.nominal for tick in ticks[:-1])]


async def test_an_outage_is_reported_once_however_many_timers_tick(
    store: Store, clock: ManualClock
):
    def declare(app: Tenure, _: Replica) -> None:
        for number in range(12):
            how = "run" if number % 2 else "wait"

            @app.timer(every=f"{number + 1}s", name=f"timer {number}", on_unavailable=how)
            async def work() -> None: ...

    fleet = Fleet(store, clock, declare)
    async with fleet.running(1):
        events: list[Event] = []
        fleet.replicas[0].app.on_event(events.append)
        for _ in range(2):
            await clock.advance(5)
            cut_off(fleet.replicas[0])
            await clock.advance(30)
            fleet.replicas[0].faults.heal()
            await clock.advance(5)
    for kind in (StoreFailing, StoreRestored):
        reported = [event for event in events if isinstance(event, kind)]
        assert len(reported) == 2, "once for each outage"


async def test_another_definition_takes_over_in_an_outage(store: Store, clock: ManualClock):
    """Nothing is recorded then: what the new definition has decided stands."""
    ticks: list[Tick] = []
    fleet = Fleet(store, clock, notes(ticks, clock, on_unavailable="run"))
    async with fleet.running(1):
        await clock.advance(11)
        cut_off(fleet.replicas[0])
        await clock.advance(15)
        newer = Fleet(store, clock, notes([], clock, every="30s"))
        async with newer.running(1):
            await clock.advance(5)
            faults = fleet.replicas[0].faults
            faults.heal()
            faults.delay("read", 0.1)  # or asking for ever would hang
            before = len(ticks)
            await clock.advance(60)
            assert len(ticks) <= before + 1, "it yields as soon as the store answers"
            calls = faults.calls.copy()
            await clock.advance(60)
            calls_since = faults.calls - calls
            assert calls_since["commit"] == 0
            assert calls_since["read"] <= 4, "only to declare it"
            history = await newer.replicas[0].app.timer_handle("work").history()
    assert not [line for line in history if line.reason == "unlocked"]


@pytest.mark.parametrize(("limit", "runs"), [(None, 4), (2, 1)])
async def test_a_replicas_own_ticks_go_on_unless_a_limit_counts_them(
    store: Store, clock: ManualClock, limit: int | None, runs: int
):
    ticks: list[Tick] = []
    fleet = Fleet(store, clock, notes(ticks, clock, each="replica", limit=limit))
    async with fleet.running(1):
        await clock.advance(11)
        cut_off(fleet.replicas[0])
        await clock.advance(30)
    assert len(ticks) == runs


async def test_a_replicas_own_ticks_wait_for_the_store_if_they_are_told_to(
    store: Store, clock: ManualClock
):
    ticks: list[Tick] = []
    fleet = Fleet(store, clock, notes(ticks, clock, each="replica", on_unavailable="wait"))
    async with fleet.running(1):
        await clock.advance(11)
        cut_off(fleet.replicas[0])
        await clock.advance(30)
        fleet.replicas[0].faults.heal()
        await clock.advance(5)
    assert nominal(ticks) == at(10, 40)
    assert not any(tick.unlocked for tick in ticks)


async def test_a_run_without_the_store_is_not_overlapped(store: Store, clock: ManualClock):
    ticks: list[Tick] = []
    fleet = Fleet(store, clock, notes(ticks, clock, seconds=15, on_unavailable="run"))
    async with fleet.running(1):
        await clock.advance(5)
        cut_off(fleet.replicas[0])
        await clock.advance(41)
    assert nominal(ticks) == at(10, 30)


async def test_a_run_that_began_with_the_store_is_not_overlapped_either(
    store: Store, clock: ManualClock
):
    ticks: list[Tick] = []
    fleet = Fleet(store, clock, notes(ticks, clock, seconds=15, on_unavailable="run"))
    async with fleet.running(1):
        await clock.advance(11)
        cut_off(fleet.replicas[0], "commit")
        await clock.advance(35)  # to the end of the last run
    assert nominal(ticks) == at(10, 30)


async def test_runs_without_the_store_may_overlap_if_they_always_may(
    store: Store, clock: ManualClock
):
    ticks: list[Tick] = []

    def declare(app: Tenure, _: Replica) -> None:
        @app.timer(every="10s", on_unavailable="run", overlap="allow")
        async def work(tick: Tick) -> None:
            ticks.append(tick)
            await clock.sleep(15 if len(ticks) == 1 else 0)

    fleet = Fleet(store, clock, declare)
    async with fleet.running(1):
        await clock.advance(5)
        cut_off(fleet.replicas[0])
        await clock.advance(21)
    assert nominal(ticks) == at(10, 20)


async def test_runs_without_the_store_wait_for_a_slot(store: Store, clock: ManualClock):
    ran: Counter[str] = Counter()
    inside: list[int] = [0]

    def declare(app: Tenure, _: Replica) -> None:
        for number in range(4):

            @app.timer(every="10s", on_unavailable="run", name=f"timer {number}")
            async def work(tick: Tick) -> None:
                ran[tick.name] += 1
                inside.append(inside[-1] + 1)
                await clock.sleep(2)
                inside.append(inside[-1] - 1)

    fleet = Fleet(store, clock, declare)
    replica = fleet.add()
    async with replica.app, replica.app.worker(timer_concurrency=2):
        await clock.advance(5)
        cut_off(replica)
        await clock.advance(14)
    assert max(inside) == 2
    assert ran == {f"timer {number}": 1 for number in range(4)}


async def test_a_tick_that_ran_without_the_store_takes_no_slot_after_the_outage(
    store: Store, clock: ManualClock
):
    ran: list[int] = []

    def declare(app: Tenure, _: Replica) -> None:
        @app.timer(every="1h", on_unavailable="run")
        async def hourly() -> None: ...

        @app.timer(every="10s")
        async def often(tick: Tick) -> None:
            ran.append(seconds_of(tick.nominal))

    fleet = Fleet(store, clock, declare)
    replica = fleet.add()
    async with replica.app, replica.app.worker(timer_concurrency=1):
        await clock.advance(3595)
        cut_off(replica, "commit")
        await clock.advance(10)
        replica.faults.heal()
        await clock.advance(20)
    assert ran[-2:] == at(3610, 3620)


async def test_a_run_without_the_store_knows_when_it_was_to_begin(store: Store, clock: ManualClock):
    ticks: list[Tick] = []
    options = {"every": "1m", "spread": "50s", "on_unavailable": "run"}
    fleet = Fleet(store, clock, notes(ticks, clock, **options))
    async with fleet.running(1):
        await clock.advance(115)
        cut_off(fleet.replicas[0])
        await clock.advance(60)
    with_the_store, without = ticks
    assert without.unlocked
    late_by = {tick.scheduled - tick.nominal for tick in ticks}
    assert late_by == {with_the_store.scheduled - with_the_store.nominal}
    assert late_by != {timedelta(0)}


async def test_runs_without_the_store_are_recorded_although_its_clock_was_set_back(
    store: Store, clock: ManualClock
):
    ticks: list[Tick] = []
    fleet = Fleet(store, clock, notes(ticks, clock, on_unavailable="run"))
    async with fleet.running(1):
        await clock.advance(11)
        cut_off(fleet.replicas[0])
        await clock.advance(22)
        clock.step(-30)
        fleet.replicas[0].faults.heal()
        await clock.advance(60)
        history = await fleet.replicas[0].app.timer_handle("work").history()
    assert nominal(ticks) == at(10, 20, 30, 40, 50, 60)
    lone = [(line.reason, line.ticks) for line in history if line.reason == "unlocked"]
    assert lone == [("unlocked", 2)]


@pytest.mark.parametrize("is_all", [False, True])
async def test_a_pause_holds_without_the_store(store: Store, clock: ManualClock, is_all: bool):
    ticks: list[Tick] = []
    fleet = Fleet(store, clock, notes(ticks, clock, on_unavailable="run"))
    async with fleet.running(1):
        await clock.advance(5)
        app = fleet.replicas[0].app
        await (
            app.pause_timers(reason="release")
            if is_all
            else app.timer_handle("work").pause(reason="release")
        )
        await clock.advance(10)  # the tick tells of the pause
        cut_off(fleet.replicas[0])
        await clock.advance(30)
        fleet.replicas[0].faults.heal()
        await clock.advance(2)
        history = await app.timer_handle("work").history()
    assert ticks == []
    assert [(line.outcome, line.reason, line.ticks) for line in history] == [
        ("skipped", "paused", 4)
    ]


async def test_many_timers_run_without_the_store(store: Store, clock: ManualClock):
    ran: list[str] = []

    def declare(app: Tenure, _: Replica) -> None:
        for number in range(30):  # more than there are slots

            @app.timer(every="10s", on_unavailable="run", name=f"timer {number}")
            async def work(tick: Tick) -> None:
                ran.append(tick.name)

    fleet = Fleet(store, clock, declare)
    async with fleet.running(1):
        await clock.advance(5)
        cut_off(fleet.replicas[0])
        await clock.advance(15)
    assert len(ran) == 60


@pytest.mark.parametrize("options", [{}, {"timeout": "3s"}])
async def test_a_failure_without_the_store_is_logged_and_ends_nothing(
    store: Store, clock: ManualClock, caplog: pytest.LogCaptureFixture, options: dict[str, str]
):
    calls: list[int] = []

    def declare(app: Tenure, _: Replica) -> None:
        @app.timer(every="10s", on_unavailable="run", **options)
        async def work() -> None:
            calls.append(1)
            raise ValueError

    fleet = Fleet(store, clock, declare)
    async with fleet.running(1):
        await clock.advance(5)
        cut_off(fleet.replicas[0])
        await clock.advance(20)
    assert len(calls) == 2
    failed = [record for record in caplog.records if "in a run without the store" in record.message]
    assert len(failed) == 2
    assert failed[0].levelno == logging.ERROR


async def test_plain_functions_run_without_the_store_too(store: Store, clock: ManualClock):
    ticks: list[Tick] = []
    has_run = asyncio.Event()
    loop = asyncio.get_running_loop()

    def declare(app: Tenure, _: Replica) -> None:
        @app.timer(every="10s", on_unavailable="run")
        def work(tick: Tick) -> None:
            ticks.append(tick)
            loop.call_soon_threadsafe(has_run.set)

    fleet = Fleet(store, clock, declare)
    async with fleet.running(1):
        await clock.advance(5)
        cut_off(fleet.replicas[0])
        await clock.advance(6)
        await asyncio.wait_for(has_run.wait(), 10)
    assert [tick.unlocked for tick in ticks] == [True]


async def test_a_run_without_the_store_has_its_time_limit(store: Store, clock: ManualClock):
    ticks: list[Tick] = []
    options = {"on_unavailable": "run", "timeout": "3s"}
    fleet = Fleet(store, clock, notes(ticks, clock, seconds=3600, **options))
    async with fleet.running(1):
        await clock.advance(5)
        cut_off(fleet.replicas[0])
        await clock.advance(31)
    assert nominal(ticks) == at(10, 20, 30)


async def test_a_tick_that_has_waited_for_long_is_sent_under_another_id(
    store: Store, clock: ManualClock
):
    """Its run may be over and pruned by then: with the same id, it would run twice."""
    ticks: list[Tick] = []
    fleet = Fleet(store, clock, notes(ticks, clock, every="1h", each="replica", limit=2))
    async with fleet.running(1):
        await clock.advance(3599)
        faults = fleet.replicas[0].faults
        faults.lose_reply("commit")
        cut_off(fleet.replicas[0], "settle")
        await clock.advance(1.01)
        cut_off(fleet.replicas[0], "commit")
        (made,) = (await store.jobs.find(task="@work")).jobs
        await store.jobs.settle([failed(made, reason="gone")])
        assert await store.jobs.delete([made.id]) == ["deleted"]
        await clock.advance(30)
        faults.heal()
        await clock.advance(10)
        (second,) = (await store.jobs.find(task="@work")).jobs
    assert made.id != second.id
    assert nominal(ticks) == at(3600)


def test_only_a_timer_that_counts_by_itself_can_run_without_the_store():
    app = Tenure("memory://")
    with pytest.raises(ConfigError, match="on_unavailable"):

        @app.timer(every="10s", after="completion", on_unavailable="run")
        def rest() -> None: ...

    with pytest.raises(ConfigError, match="must be one of 'wait', 'run'"):

        @app.timer(every="10s", on_unavailable="skip")
        def work() -> None: ...


async def test_timers_that_wait_for_the_store_hold_up_none_that_do_not(
    store: Store, clock: ManualClock
):
    ticks: list[Tick] = []

    def declare(app: Tenure, replica: Replica) -> None:
        for number in range(200):

            @app.timer(every="10s", name=f"wait {number:03}")
            async def wait(tick: Tick) -> None: ...

        notes(ticks, clock, on_unavailable="run")(app, replica)

    replica = Fleet(store, clock, declare).add()
    async with replica.app, replica.app.worker(timer_concurrency=500):
        await clock.advance(11)
        cut_off(replica)
        await clock.advance(30)
    assert [tick.unlocked for tick in ticks] == [False, *[True] * 3]


async def test_an_error_that_does_not_pass_by_itself_is_an_outage_too(
    store: Store, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
):
    ticks: list[Tick] = []
    fleet = Fleet(store, clock, notes(ticks, clock, on_unavailable="run"))

    async def refuse(*_: object) -> None:
        raise StoreError("the disk is read-only")

    async with fleet.running(1):
        await clock.advance(11)
        opened = engine_of(fleet.replicas[0].app).store
        with monkeypatch.context() as broken:
            for part in (opened.leases, opened.jobs, opened.schedules):
                broken.setattr(part, "_send", refuse)
            await clock.advance(30)
    assert [tick.unlocked for tick in ticks] == [False, *[True] * 3]


async def test_a_name_that_was_given_up_by_hand_is_not_asked_for_again_and_again(
    store: Store, clock: ManualClock
):
    """Only damage leaves a ruler to a schedule that has a successor."""
    fleet = Fleet(store, clock, notes([], clock))
    async with fleet.running(1):
        await clock.advance(11)
        [record] = (await store.schedules.read(["work"])).records
        given_up = json.loads(record.standing) | {"successor": "gone"}
        write = Write("work", json.dumps(given_up), ruler=record.ruler)
        expects = (Expected("work", record.version),)
        await store.schedules.commit(
            [Commit(id="by hand", name="work", expects=expects, writes=(write,))]
        )
        faults = fleet.replicas[0].faults
        faults.delay("read", 0.01)  # or asking for ever would hang
        before = faults.calls.copy()
        await clock.advance(30)
    assert (faults.calls - before)["read"] < 20
