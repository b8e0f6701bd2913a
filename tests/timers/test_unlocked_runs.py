"""Runs of timers without the store: how they end, and what an unfinished one blocks."""

import asyncio
import logging
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from tenure import Tenure, Tick
from tenure.observe import Event, HandlerStuck, TickSkipped
from tenure.stores.contract import Store
from tenure.testing import Faults, FaultyStore, ManualClock
from tests.jobs.replicas import lose_times, of_kind
from tests.rig.wait import wait_until_async
from tests.timers.fleet import Fleet, Replica
from tests.timers.test_unavailable import at, cut_off, nominal, notes


class Deaf:
    """Handlers that do not react to being cancelled, until they may go."""

    def __init__(self) -> None:
        self.began: list[Tick] = []
        self._may_go = asyncio.Event()
        self._thread_may_go = threading.Event()

    def let_go(self) -> None:
        self._may_go.set()
        self._thread_may_go.set()

    @asynccontextmanager
    async def until_left(self) -> AsyncIterator[None]:
        """Let them go at the end, before the worker waits for them in virtual time."""
        try:
            yield
        finally:
            self.let_go()

    def declare(self, *, plain: bool = False, **options: object) -> Callable[..., None]:
        def declare(app: Tenure, _: Replica) -> None:
            timer = app.timer(
                **{"every": "10s", "on_unavailable": "run", "name": "deaf", **options}
            )
            timer(self.run_in_thread if plain else self.run)

        return declare

    async def run(self, tick: Tick) -> None:
        self.began.append(tick)
        while not self._may_go.is_set():
            try:
                await self._may_go.wait()
            except asyncio.CancelledError:
                continue

    def run_in_thread(self, tick: Tick) -> None:
        self.began.append(tick)
        self._thread_may_go.wait(20)


@asynccontextmanager
async def without_store(
    fleet: Fleet, clock: ManualClock, *, seconds: float = 5.0, **options: object
) -> AsyncIterator[tuple[Replica, list[Event]]]:
    """Run one replica that can no longer reach the store after some seconds; give its events."""
    replica, seen = fleet.add(), []
    async with replica.app, replica.app.worker(**options):
        replica.app.on_event(seen.append)
        await clock.advance(seconds)
        cut_off(replica)
        yield replica, seen


@pytest.mark.parametrize("limit", [None, "5s"])
@pytest.mark.parametrize("plain", [False, True])
async def test_a_handler_that_exits_fails_its_run_and_not_the_worker(
    store: Store,
    clock: ManualClock,
    caplog: pytest.LogCaptureFixture,
    limit: str | None,
    plain: bool,
):
    calls: list[int] = []

    def declare(app: Tenure, _: Replica) -> None:
        def work() -> None:
            calls.append(1)
            sys.exit(3)

        async def work_on_loop() -> None:
            work()

        timer = app.timer(every="10s", on_unavailable="run", timeout=limit, name="work")
        timer(work if plain else work_on_loop)

    fleet = Fleet(store, clock, declare)
    async with without_store(fleet, clock):
        await clock.advance(5)

        async def has_failed() -> bool:
            await clock.advance(0)
            return "failed in a run without the store" in caplog.text

        await wait_until_async(has_failed)
        await clock.advance(10)
        await wait_until_async(lambda: len(calls) == 2)


def test_an_interrupt_raised_in_a_thread_fails_its_run():
    """Only the main thread gets the interrupt of a user who has pressed Ctrl-C."""
    calls: list[int] = []

    async def work() -> int:
        clock, faults = ManualClock(), Faults()
        app = Tenure(FaultyStore("memory://", faults, clock=clock), grace=0)

        @app.timer(every="10s", on_unavailable="run")
        def interrupt() -> None:
            calls.append(1)
            raise KeyboardInterrupt

        async def runs_again() -> bool:
            await clock.advance(1)
            return len(calls) > 1

        async with app, app.worker():
            await clock.advance(5)
            faults.lose_request("commit", times=10_000)
            await wait_until_async(runs_again)
            faults.heal()
        return len(calls)

    ended: list[object] = []

    def run() -> None:
        try:
            ended.append(asyncio.run(work()))
        except BaseException as error:  # noqa: BLE001 - it would end pytest
            ended.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(10)
    assert ended == [2]


async def test_a_handler_that_cancels_itself_is_logged(
    store: Store, clock: ManualClock, caplog: pytest.LogCaptureFixture
):
    def declare(app: Tenure, _: Replica) -> None:
        @app.timer(every="10s", on_unavailable="run")
        async def work() -> None:
            raise asyncio.CancelledError

    async with without_store(Fleet(store, clock, declare), clock):
        await clock.advance(6)
    (record,) = [record for record in caplog.records if "in a run without" in record.message]
    assert record.levelno == logging.ERROR
    assert "cancelled itself" in record.message


async def test_a_run_that_is_stopped_with_its_worker_is_logged(
    store: Store, clock: ManualClock, caplog: pytest.LogCaptureFixture
):
    ticks: list[Tick] = []
    fleet = Fleet(store, clock, notes(ticks, clock, seconds=3600, on_unavailable="run"))
    async with without_store(fleet, clock) as (replica, _):
        await clock.advance(6)
        replica.faults.heal()
    assert len(ticks) == 1
    (record,) = [
        record for record in caplog.records if "in a run without the store" in record.message
    ]
    assert record.levelno == logging.WARNING
    assert "its worker stops" in record.message


@pytest.mark.parametrize("plain", [False, True])
async def test_a_worker_does_not_wait_for_ever_for_a_deaf_run(
    store: Store, clock: ManualClock, plain: bool
):
    deaf, seen = Deaf(), []
    replica = Fleet(store, clock, deaf.declare(plain=plain)).add()
    async with replica.app:
        replica.app.on_event(seen.append)
        worker = await replica.app.worker(grace="1s").__aenter__()
        await clock.advance(5)
        cut_off(replica)
        await clock.advance(6)
        await wait_until_async(lambda: deaf.began)
        replica.faults.heal()
        await clock.advance(3)
        leaving = asyncio.ensure_future(worker.__aexit__(None, None, None))
        await clock.advance(5.5)
        assert not leaving.done(), "it has the time to unwind"
        await clock.advance(1)
        has_left = leaving.done()
        deaf.let_go()
        await leaving
        assert has_left
        assert await store.jobs.replicas() == [], "it has left in order"
    assert of_kind(seen, HandlerStuck) == [HandlerStuck("@deaf", "", "shutting down")]


@pytest.mark.parametrize("plain", [False, True])
async def test_a_run_that_ignores_its_time_limit_keeps_its_place(
    store: Store, clock: ManualClock, plain: bool, caplog: pytest.LogCaptureFixture
):
    deaf = Deaf()
    fleet = Fleet(store, clock, deaf.declare(plain=plain, timeout="3s"))
    async with without_store(fleet, clock) as (_, seen), deaf.until_left():
        await clock.advance(6)
        await wait_until_async(lambda: deaf.began)
        await clock.advance(55)
        assert nominal(deaf.began) == at(10)
        assert of_kind(seen, HandlerStuck) == [HandlerStuck("@deaf", "", "timed out")]
        assert caplog.text.count("for longer than its timeout") == 1
        deaf.let_go()

        async def runs_again() -> bool:
            await clock.advance(1)
            return len(deaf.began) > 1

        await wait_until_async(runs_again)


@pytest.mark.parametrize("plain", [False, True])
async def test_runs_that_ignore_their_time_limit_keep_their_slots(
    store: Store, clock: ManualClock, plain: bool
):
    deaf = Deaf()
    options = {"plain": plain, "timeout": "3s", "overlap": "allow"}
    fleet = Fleet(store, clock, deaf.declare(**options))
    async with without_store(fleet, clock, timer_concurrency=2), deaf.until_left():
        await clock.advance(60)
        await wait_until_async(lambda: len(deaf.began) >= 2)
        await clock.advance(20)
        assert len(deaf.began) == 2


async def test_a_tick_is_skipped_while_a_run_without_the_store_is_unfinished(
    store: Store, clock: ManualClock
):
    ticks: list[Tick] = []
    fleet = Fleet(store, clock, notes(ticks, clock, seconds=25, on_unavailable="run"))
    async with without_store(fleet, clock) as (replica, seen):
        await clock.advance(6)  # the run of 10 takes until 35
        replica.faults.heal()
        await clock.advance(31)
        assert nominal(ticks) == at(10, 40)
        history = await replica.app.timer_handle("work").history()
        lines = [(line.outcome, line.reason, line.ticks) for line in history]
    assert lines == [("running", "", 1), ("skipped", "overlap", 2), ("ran", "unlocked", 1)]
    assert of_kind(seen, TickSkipped) == [TickSkipped("work", "overlap")] * 2


@pytest.mark.parametrize("overlap", ["queue_one", "cancel_previous"])
async def test_a_tick_waits_for_the_end_of_a_run_without_the_store(
    store: Store, clock: ManualClock, overlap: str
):
    ticks: list[Tick] = []
    options = {"on_unavailable": "run", "overlap": overlap}
    fleet = Fleet(store, clock, notes(ticks, clock, seconds=15.5, **options))
    async with without_store(fleet, clock) as (replica, seen):
        await clock.advance(6)  # the run of 10 takes until 25.5
        replica.faults.heal()
        await clock.advance(14.4)
        assert nominal(ticks) == at(10)
        await clock.advance(0.2)
        assert nominal(ticks) == at(10, 20)
        assert [tick.unlocked for tick in ticks] == [True, False]
    assert not of_kind(seen, TickSkipped)


async def test_a_tick_does_not_wait_for_a_run_that_it_may_overlap(store: Store, clock: ManualClock):
    ticks: list[Tick] = []
    options = {"on_unavailable": "run", "overlap": "allow"}
    fleet = Fleet(store, clock, notes(ticks, clock, seconds=15, **options))
    async with without_store(fleet, clock) as (replica, _):
        await clock.advance(6)
        replica.faults.heal()
        await clock.advance(10)
        assert nominal(ticks) == at(10, 20)


async def test_a_store_that_fails_again_does_not_stop_a_skipped_tick(
    store: Store, clock: ManualClock
):
    """Its skip is not waited for: later ticks run without the store, as before."""
    ticks: list[Tick] = []
    fleet = Fleet(store, clock, notes(ticks, clock, seconds=15, on_unavailable="run"))
    async with without_store(fleet, clock) as (replica, _):
        await clock.advance(6)  # the run of 10 takes until 25
        replica.faults.heal()
        await clock.advance(5)
        cut_off(replica)
        await clock.advance(17)
        assert nominal(ticks) == at(10, 30)
        replica.faults.heal()
        await clock.advance(5)
        history = await replica.app.timer_handle("work").history()
        lines = [(line.outcome, line.reason) for line in history]
    assert lines == [("ran", "unlocked"), ("skipped", "overlap"), ("ran", "unlocked")]


async def test_runs_without_the_store_take_slots_from_triggered_ones(
    store: Store, clock: ManualClock
):
    ran: list[Tick] = []
    options = {"on_unavailable": "run", "every": "1h"}
    fleet = Fleet(store, clock, notes(ran, clock, seconds=25, **options))
    workers = {"seconds": 3595, "timer_concurrency": 1}
    async with without_store(fleet, clock, **workers) as (replica, _):
        await clock.advance(6)  # the run takes until 25 s after the hour
        replica.faults.heal()
        await clock.advance(2)
        job = await replica.app.timer_handle("work").trigger()
        await clock.advance(21)
        assert (await job.refresh()).state == "waiting"
        await clock.advance(5)
        assert (await job.refresh()).state == "running"
    assert [tick.unlocked for tick in ran] == [True, False]


async def test_a_suspect_waits_for_a_run_without_the_store(store: Store, clock: ManualClock):
    """It may kill its process, and the run with it."""
    began: list[int] = []

    def declare(app: Tenure, replica: Replica) -> None:
        notes([], clock, seconds=15, on_unavailable="run", every="1h")(app, replica)

        @app.task
        async def suspect() -> None:
            began.append(clock.wall())

        app.suspect = suspect

    fleet = Fleet(store, clock, declare)
    async with fleet.add().app as app:
        await app.suspect.enqueue()
        await lose_times(store, clock, 2)
        await app.pause_queue("default")
    async with without_store(fleet, clock, seconds=3575) as (replica, _):
        await clock.advance(6)  # the run takes until 15 s after the hour
        replica.faults.heal()
        await clock.advance(3)  # the outage is over for everything
        await replica.app.resume_queue("default")
        await clock.advance(60)
    assert [instant // 1_000_000 for instant in began] == at(3615)
