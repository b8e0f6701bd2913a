"""Ticks whose commit is answered late: the store was frozen, or slower than the timer."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from tenure import Tenure, Tick
from tenure.errors import StoreUnavailable
from tenure.observe import Event, TicksMissed
from tenure.stores.contract import Store
from tenure.testing import Faults, FaultyStore, ManualClock
from tests.timers.fleet import BEGIN, Fleet, Replica

CLIENT_TIMEOUT = 5.0


@dataclass
class Run:
    """A run that has begun: when its tick was, and when that was, in seconds of the test."""

    nominal: int
    began: float
    tick: Tick


@dataclass
class Runs:
    """What the timer of a fleet has run."""

    all: list[Run] = field(default_factory=list)
    missed: list[int] = field(default_factory=list)
    """How many ticks each event `TicksMissed` has told."""

    @property
    def nominal(self) -> list[int]:
        return [run.nominal for run in self.all]

    def later_than(self, seconds: float) -> list[Run]:
        return [run for run in self.all if run.began - run.nominal > seconds]


def notes(runs: Runs, clock: ManualClock, body: float = 0.0, **options: Any):
    """Declare a timer that notes its runs."""

    def declare(app: Tenure, _: Replica) -> None:
        @app.timer(**{"every": "2s", **options})
        async def work(tick: Tick) -> None:
            nominal = round(tick.nominal.timestamp()) - BEGIN
            runs.all.append(Run(nominal, clock.wall() / 1e6 - BEGIN, tick))
            await clock.sleep(body)

        app.on_event(note)

    def note(event: Event) -> None:
        if isinstance(event, TicksMissed):
            runs.missed.append(event.ticks)

    return declare


async def history_of(replica: Replica) -> list[tuple[str, str, int]]:
    """Return the history, oldest line first."""
    lines = await replica.app.timer_handle("work").history()
    return [(line.outcome, line.reason, line.ticks) for line in lines[::-1]]


async def answer_late(fleet: Fleet, clock: ManualClock, seconds: float, until: float) -> None:
    """Let all commits that are sent within the next 3 s wait for so long; go on until then."""
    for replica in fleet.replicas:
        replica.faults.delay("commit", seconds)
    await clock.advance(3)
    for replica in fleet.replicas:
        replica.faults.heal()
    await clock.advance(until - (clock.wall() / 1e6 - BEGIN))


@pytest.mark.parametrize("replicas", [1, 2])
async def test_within_holds_for_a_tick_that_was_asked_for_before_the_freeze(
    store: Store, clock: ManualClock, replicas: int
):
    runs = Runs()
    fleet = Fleet(store, clock, notes(runs, clock, within="3s"))
    async with fleet.running(replicas):
        await clock.advance(5)
        await answer_late(fleet, clock, 27, until=40)
        history = await history_of(fleet.replicas[0])
    assert not runs.later_than(3)
    assert runs.nominal[:2] == [2, 4]
    assert runs.nominal[2:] in ([32, 34, 36, 38, 40], [34, 36, 38, 40])
    assert ("missed", "late", 1) in history, "the tick of second 6, whose run was withdrawn"
    assert sum(ticks for _, _, ticks in history) == 20, "each tick stands in the history once"
    assert sum(runs.missed[:2]) == 20 - len(runs.nominal), "each missed tick is told"


@pytest.mark.parametrize("replicas", [1, 2])
async def test_the_newest_tick_runs_after_a_freeze_and_no_older_one(
    store: Store, clock: ManualClock, replicas: int
):
    runs = Runs()
    fleet = Fleet(store, clock, notes(runs, clock))
    async with fleet.running(replicas):
        await clock.advance(5)
        await answer_late(fleet, clock, 27, until=37.5)
        history = await history_of(fleet.replicas[0])
    assert runs.nominal == [2, 4, 32, 34, 36]
    assert not [line for line in history if line[0] == "skipped"]
    assert sum(ticks for _, _, ticks in history) == 18


async def test_the_newest_tick_waits_for_the_end_of_the_run_that_is_withdrawn(
    store: Store, clock: ManualClock
):
    """Another replica sees that run unfinished meanwhile."""
    runs = Runs()
    fleet = Fleet(store, clock, notes(runs, clock, every="10s"))
    async with fleet.running(2):
        await clock.advance(9)
        for replica in fleet.replicas:
            replica.faults.delay("commit", 27)
        await clock.advance(3)
        for replica in fleet.replicas:
            replica.faults.heal()
            replica.faults.delay("settle", 0.5)
        await clock.advance(30)
        history = await history_of(fleet.replicas[0])
    assert runs.nominal == [30, 40]
    assert not [line for line in history if line[0] == "skipped"]


async def test_no_late_tick_runs_after_a_freeze_if_none_is_caught_up(
    store: Store, clock: ManualClock
):
    runs = Runs()
    fleet = Fleet(store, clock, notes(runs, clock, catch_up="none"))
    async with fleet.running(2):
        await clock.advance(5)
        await answer_late(fleet, clock, 28.5, until=41)  # second 34.5: tick 34 is on time
        history = await history_of(fleet.replicas[0])
    assert not runs.later_than(1)
    assert runs.nominal == [2, 4, 34, 36, 38, 40]
    assert sum(ticks for _, _, ticks in history) == 20


async def test_the_last_ten_ticks_run_after_a_freeze_if_all_are_caught_up(
    store: Store, clock: ManualClock
):
    runs = Runs()
    fleet = Fleet(store, clock, notes(runs, clock, catch_up="all"))
    async with fleet.running(1):
        await clock.advance(5)
        await answer_late(fleet, clock, 27, until=41)
    assert runs.nominal == [2, 4, *range(14, 42, 2)]


async def test_a_tick_that_is_answered_late_but_still_wanted_runs(store: Store, clock: ManualClock):
    runs = Runs()
    fleet = Fleet(store, clock, notes(runs, clock, every="10s"))
    async with fleet.running(1):
        await clock.advance(9)
        await answer_late(fleet, clock, 7, until=25)
    assert [(run.nominal, round(run.began)) for run in runs.all] == [(10, 17), (20, 20)]
    assert not runs.missed


@pytest.mark.parametrize("limit", [None, 3])
async def test_a_replicas_own_tick_does_not_run_late_either(
    store: Store, clock: ManualClock, limit: int | None
):
    runs = Runs()
    fleet = Fleet(store, clock, notes(runs, clock, each="replica", limit=limit))
    async with fleet.running(1):
        await clock.advance(5)
        await answer_late(fleet, clock, 27, until=37.5)
        history = await history_of(fleet.replicas[0])
    assert runs.nominal == [2, 4, 32, 34, 36]
    assert sum(ticks for _, _, ticks in history) == 18


async def test_a_store_that_is_slower_than_the_timer_does_not_stop_it(
    store: Store, clock: ManualClock
):
    """Each answer comes when a newer tick is due already."""
    runs = Runs()
    fleet = Fleet(store, clock, notes(runs, clock, every="1s"))
    async with fleet.running(1):
        fleet.replicas[0].faults.delay("commit", 1.3)
        await clock.advance(60)
    assert len(runs.all) >= 15
    assert not runs.later_than(3)


async def test_the_run_before_a_withdrawn_one_is_the_previous(store: Store, clock: ManualClock):
    runs = Runs()
    fleet = Fleet(store, clock, notes(runs, clock))
    async with fleet.running(1):
        await clock.advance(5)
        await answer_late(fleet, clock, 27, until=33.5)
    previous = runs.all[-1].tick.previous
    assert previous is not None
    assert round(previous.timestamp()) == BEGIN + 4


# A server that freezes under clients with a time-out.


class Server:
    """Takes requests while it is frozen, and carries them out afterwards."""

    def __init__(self) -> None:
        self.thawed = asyncio.Event()
        self.thawed.set()
        self.tasks: set[asyncio.Task[Any]] = set()

    async def carry_out(self, send: Callable[[], Awaitable[Any]]) -> Any:
        await self.thawed.wait()
        return await send()


class FreezingStore(FaultyStore):
    """The store of a client that gives up after a time-out. Its request is carried out later."""

    server: Server

    async def _pass(self, call: str, send: Callable[[], Awaitable[Any]]) -> Any:
        if self.server.thawed.is_set():
            return await super()._pass(call, send)
        task = asyncio.ensure_future(self.server.carry_out(send))
        self.server.tasks.add(task)
        answered = asyncio.Event()
        task.add_done_callback(lambda _: answered.set())
        if await self.clock.wait(answered, CLIENT_TIMEOUT):
            return task.result()
        msg = "the store has not answered in time"
        raise StoreUnavailable(msg)


class FreezingFleet(Fleet):
    """Replicas of a server that can freeze."""

    def __init__(self, store: Store, clock: ManualClock, declare: Any) -> None:
        super().__init__(store, clock, declare)
        self.server = Server()
        self._connection = type("Connection", (FreezingStore,), {"server": self.server})

    def add(self, declare: Any = None, **settings: object) -> Replica:
        faults = Faults()
        app = Tenure(self._connection(self._store.clone(), faults), **{"grace": 0, **settings})
        replica = Replica(f"replica {len(self.replicas)}", app, faults)
        (declare or self._declare)(app, replica)
        self.replicas.append(replica)
        return replica

    async def freeze(self, seconds: float) -> None:
        self.server.thawed.clear()
        await self._clock.advance(seconds)
        self.server.thawed.set()


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize(
    "options", [{}, {"within": "3s"}, {"catch_up": "none"}, {"each": "replica", "limit": 9}]
)
async def test_a_frozen_server_lets_no_tick_run_too_late(
    store: Store, clock: ManualClock, replicas: int, options: dict[str, Any]
):
    runs = Runs()
    fleet = FreezingFleet(store, clock, notes(runs, clock, **options))
    async with fleet.running(replicas):
        await clock.advance(5)
        await fleet.freeze(29)
        await clock.advance(15)
        history = await history_of(fleet.replicas[0])
    assert not runs.later_than(3)
    assert not [run for run in runs.all if 4 < run.nominal < 32]
    assert {*range(38, 49, 2)} <= {*runs.nominal}
    assert ("missed", "late", 1) in history


@pytest.mark.parametrize("replicas", [1, 2])
async def test_a_tick_asked_for_before_a_freeze_does_not_run_after_later_ones_without_the_store(
    store: Store, clock: ManualClock, replicas: int
):
    runs = Runs()
    fleet = FreezingFleet(store, clock, notes(runs, clock, on_unavailable="run"))
    async with fleet.running(replicas):
        await clock.advance(5)
        await fleet.freeze(29)
        await clock.advance(10)
    by_time = sorted(runs.all, key=lambda run: run.began)
    assert [run.nominal for run in by_time] == sorted(runs.nominal)
    assert not runs.later_than(3)


# Ticks at the beginning of a silent outage, for timers that run without the store.


@pytest.mark.parametrize("replicas", [1, 2])
async def test_ticks_before_a_silent_outage_is_noticed_are_recorded_as_missed(
    store: Store, clock: ManualClock, replicas: int
):
    runs = Runs()
    fleet = FreezingFleet(store, clock, notes(runs, clock, on_unavailable="run"))
    async with fleet.running(replicas):
        await clock.advance(5)
        await fleet.freeze(20)
        await clock.advance(10)
        history = await history_of(fleet.replicas[0])
    assert sorted({*runs.nominal}) == [2, 4, *range(10, 36, 2)]
    lone = [run for run in runs.all if run.tick.unlocked]
    assert {run.nominal for run in lone} >= {*range(10, 26, 2)}
    late = [line for line in history if line[:2] == ("missed", "late")]
    assert sum(ticks for _, _, ticks in late) == 2, "seconds 6 and 8"
    assert sum(runs.missed) == 1 + replicas, "second 6 is told by the one that has withdrawn it"
    assert sum(ticks for _, _, ticks in history) == 17 + len(lone) * (replicas - 1) // replicas


async def test_a_replica_that_is_cut_off_alone_records_nothing_that_others_ran(
    store: Store, clock: ManualClock
):
    runs = Runs()
    fleet = Fleet(store, clock, notes(runs, clock, on_unavailable="run", within="1s"))
    async with fleet.running(2):
        await clock.advance(5)
        faults = fleet.replicas[0].faults
        for call in ("commit", "declare", "beat", "claim", "settle"):
            faults.lose_request(call, times=10_000)
        faults.delay("commit", 3)
        await clock.advance(20)
        faults.heal()
        await clock.advance(10)
        history = await history_of(fleet.replicas[0])
    assert not [line for line in history if line[0] == "missed"]
    assert not runs.missed


async def test_ticks_before_a_silent_outage_is_noticed_run_if_all_are_caught_up(
    store: Store, clock: ManualClock
):
    runs = Runs()
    options = {"on_unavailable": "run", "catch_up": "all"}
    fleet = FreezingFleet(store, clock, notes(runs, clock, 0.3, **options))
    async with fleet.running(1):
        await clock.advance(5)
        await fleet.freeze(20)
        await clock.advance(10)
        history = await history_of(fleet.replicas[0])
    assert runs.nominal == [*range(2, 36, 2)]
    assert {outcome for outcome, _, _ in history} <= {"succeeded", "running", "ran", "cancelled"}


async def test_ticks_that_did_not_run_without_the_store_are_recorded(
    store: Store, clock: ManualClock
):
    """Each run takes until the next tick has passed."""
    runs = Runs()
    fleet = Fleet(store, clock, notes(runs, clock, 3, on_unavailable="run"))
    async with fleet.running(1):
        await clock.advance(3)
        for call in ("commit", "declare", "beat", "claim", "settle"):
            fleet.replicas[0].faults.lose_request(call, times=10_000)
        await clock.advance(20)
        fleet.replicas[0].faults.heal()
        await clock.advance(7.5)  # past the last tick
        history = await history_of(fleet.replicas[0])
    assert sum(ticks for _, _, ticks in history) == 15
    assert ("skipped", "overlap", 5) in history
    assert ("ran", "unlocked", 5) in history


# A tick that comes on time while an earlier one is made up for.


@pytest.mark.parametrize("replicas", [1, 2])
async def test_the_tick_after_those_that_are_made_up_for_is_not_skipped(
    store: Store, clock: ManualClock, replicas: int
):
    runs = Runs()
    declare = notes(runs, clock, 0.05, every="10s", catch_up="all")
    async with Fleet(store, clock, declare).running(replicas):
        await clock.advance(15)
    await clock.advance(45.5)  # tick 60 is on time
    fleet = Fleet(store, clock, declare)
    async with fleet.running(replicas):
        await clock.advance(15)
        history = await history_of(fleet.replicas[0])
    assert runs.nominal == [10, 20, 30, 40, 50, 60, 70]
    assert {outcome for outcome, _, _ in history} == {"succeeded"}


async def test_runs_longer_than_the_period_are_not_late_for_ever_after_a_catch_up(
    store: Store, clock: ManualClock
):
    runs = Runs()
    declare = notes(runs, clock, 15, every="10s", catch_up="all")
    async with Fleet(store, clock, declare).running(1):
        await clock.advance(5)
    await clock.advance(18)  # tick 10 is late, tick 20 is on time
    fleet = Fleet(store, clock, declare)
    async with fleet.running(2):
        await clock.advance(100)
        history = await history_of(fleet.replicas[0])
    assert [run.nominal for run in runs.later_than(5)] == [10]
    assert {outcome for outcome, _, _ in history} == {"succeeded", "skipped", "running"}
