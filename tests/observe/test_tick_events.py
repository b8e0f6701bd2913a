"""Events of ticks: each exactly once in the situation that it names, by the process that decides.

The table runs in virtual time on memory. What needs no waiting runs on every store as well.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from tenure import Tenure, Tick, blackout
from tenure.observe import Event, JobEnqueued, TickRan, TickSkipped, TicksMissed, TickUnlocked
from tenure.stores.contract import Store
from tenure.testing import ManualClock
from tests.rig.wait import wait_until_async
from tests.timers.fleet import BEGIN, Fleet, Replica

Seen = tuple[object, ...]


@dataclass
class Stage:
    """Replicas of one timer or schedule, and what they have reported."""

    fleet: Fleet
    clock: ManualClock
    seen: list[Event] = field(default_factory=list)

    @property
    def app(self) -> Tenure:
        return self.fleet.replicas[0].app

    @property
    def reported(self) -> Counter[Seen]:
        """The events of ticks of all replicas, in short."""
        shown = (_short(event) for event in self.seen)
        return Counter(event for event in shown if event is not None)


def _short(event: Event) -> Seen | None:
    match event:
        case TickRan():
            return "ran", _second(event.nominal)
        case TickUnlocked():
            return "unlocked", _second(event.nominal)
        case TickSkipped():
            return "skipped", event.reason, event.limit
        case TicksMissed():
            return "missed", event.ticks, event.reason
        case JobEnqueued():
            return "enqueued", event.timer
    return None


def _second(nominal: int) -> float:
    return nominal / 1e6 - BEGIN


Drive = Callable[[Stage], Awaitable[None]]


async def two_ticks(stage: Stage) -> None:
    await stage.clock.advance(21)


async def with_lost_replies(stage: Stage) -> None:
    await stage.clock.advance(5)
    for replica in stage.fleet.replicas:
        replica.faults.lose_reply("commit", times=2)
    await stage.clock.advance(16)


async def paused(stage: Stage) -> None:
    await stage.clock.advance(5)
    await stage.app.timer_handle("work").pause()
    await stage.clock.advance(6)


async def triggered(stage: Stage) -> None:
    await stage.clock.advance(1)
    await stage.app.timer_handle("work").trigger()
    await stage.clock.advance(1)


async def answered_late(stage: Stage) -> None:
    """The store hangs from the first tick on, and answers after it is too late for that tick."""
    await stage.clock.advance(5)
    [replica] = stage.fleet.replicas
    replica.faults.delay("commit", 11)
    await stage.clock.advance(10)
    replica.faults.heal()
    await stage.clock.advance(10)


async def without_store(stage: Stage) -> None:
    await stage.clock.advance(5)
    [replica] = stage.fleet.replicas
    for call in ("commit", "beat", "declare", "read"):
        replica.faults.lose_request(call, times=10**6)
    await stage.clock.advance(16)
    replica.faults.heal()
    await stage.clock.advance(5)


async def nobody_there(stage: Stage) -> None:
    """No worker runs for three and a half ticks."""
    await stage.clock.advance(5)
    replica = stage.fleet.add()
    async with replica.app:
        async with replica.app.worker():
            await stage.clock.advance(6)
        await stage.clock.advance(34)
        async with replica.app.worker():
            await stage.clock.advance(1)


@dataclass(kw_only=True)
class Case:
    options: dict[str, Any] = field(default_factory=dict)
    replicas: int = 1
    body: float = 0.0
    schedule: bool = False
    drive: Drive = field(default=two_ticks)
    expected: dict[Seen, int]


NIGHT = blackout.window(
    datetime.fromtimestamp(BEGIN + 5, UTC), datetime.fromtimestamp(BEGIN + 15, UTC)
)
TWO = {("ran", 10): 1, ("ran", 20): 1}
CASES = {
    "one of three replicas wins each tick": Case(replicas=3, expected=TWO),
    "each replica wins its own": Case(
        replicas=3, options={"each": "replica"}, expected={("ran", 10): 3, ("ran", 20): 3}
    ),
    "a schedule enqueues a job": Case(
        replicas=2, schedule=True, expected={**TWO, ("enqueued", "work"): 2}
    ),
    "the reply was lost": Case(drive=with_lost_replies, expected=TWO),
    "the reply was lost, for a schedule": Case(
        schedule=True, drive=with_lost_replies, expected={**TWO, ("enqueued", "work"): 2}
    ),
    "the run before it is unfinished": Case(
        replicas=2, body=15, expected={("ran", 10): 1, ("skipped", "overlap", None): 1}
    ),
    "its limit is reached": Case(
        replicas=2,
        body=25,
        options={"limit": 1},
        expected={("ran", 10): 1, ("skipped", "limit", 1): 1},
    ),
    "the limit of the replica is reached": Case(
        replicas=2,
        body=25,
        options={"each": "replica", "overlap": "allow", "per_replica": 1},
        expected={("ran", 10): 2, ("skipped", "per_replica", 1): 2},
    ),
    "it is in a blackout": Case(
        replicas=2,
        options={"blackout": [NIGHT]},
        expected={("skipped", "blackout", None): 1, ("ran", 20): 1},
    ),
    "it is paused": Case(replicas=2, drive=paused, expected={("skipped", "paused", None): 1}),
    "a trigger is no tick": Case(drive=triggered, expected={("enqueued", "work"): 1}),
    "no worker was there": Case(
        replicas=0,
        drive=nobody_there,
        expected={("ran", 10): 1, ("missed", 2, "late"): 1, ("ran", 40): 1},
    ),
    "the store answered too late": Case(
        drive=answered_late,
        options={"within": "3s"},
        expected={("missed", 1, "late"): 1, ("ran", 20): 1},
    ),
    "it ran without the store": Case(
        drive=without_store,
        options={"on_unavailable": "run"},
        expected={("unlocked", 10): 1, ("unlocked", 20): 1},
    ),
}


def declares(case: Case, stage: Stage) -> Callable[[Tenure, Replica], None]:
    def declare(app: Tenure, _: Replica) -> None:
        app.on_event(stage.seen.append)

        async def work() -> None:
            await stage.clock.sleep(case.body)

        if case.schedule:
            app.schedule(app.task(work), every="10s", **case.options)
        else:
            app.timer(every="10s", **case.options)(work)

    return declare


@pytest.mark.parametrize("name", CASES)
async def test_each_event_comes_once_when(name: str, store: Store, clock: ManualClock):
    case = CASES[name]
    stage = Stage(Fleet(store, clock, lambda *_: None), clock)
    stage.fleet._declare = declares(case, stage)
    async with stage.fleet.running(case.replicas):
        await case.drive(stage)
        reported = stage.reported
    assert dict(reported) == case.expected


async def test_a_tick_names_its_run_and_its_lateness_counts_from_when_it_was_due(
    store: Store, clock: ManualClock
):
    seen: list[Event] = []
    begun: list[Tick] = []

    def declare(app: Tenure, _: Replica) -> None:
        app.on_event(seen.append)

        @app.timer(every="1m", spread=True)
        async def work(tick: Tick) -> None:
            begun.append(tick)

    fleet = Fleet(store, clock, declare)
    async with fleet.running(1):
        await clock.advance(130)
        runs = await fleet.replicas[0].app.jobs(timers=True)
    ticks = [event for event in seen if isinstance(event, TickRan)]
    assert (begun[0].scheduled - begun[0].nominal).total_seconds() > 1, "the spread does something"
    assert {tick.job for tick in ticks} == {run.id for run in runs}
    assert all(0 <= tick.lateness < 0.1 for tick in ticks)


async def test_a_late_tick_says_how_late_it_was_decided(store: Store, clock: ManualClock):
    seen: list[Event] = []

    def declare(app: Tenure, _: Replica) -> None:
        app.on_event(seen.append)

        @app.timer(every="1m")
        async def work() -> None: ...

    fleet = Fleet(store, clock, declare)
    async with fleet.running(1):
        await clock.advance(50)
        fleet.replicas[0].faults.delay("commit", 4)
        await clock.advance(20)
    [tick] = [event for event in seen if isinstance(event, TickRan)]
    assert tick.lateness == pytest.approx(4, abs=0.2)


async def test_a_tick_in_time_is_not_late_though_its_answers_get_lost(
    store: Store, clock: ManualClock
):
    seen: list[Event] = []

    def declare(app: Tenure, _: Replica) -> None:
        app.on_event(seen.append)

        @app.timer(every="1m")
        async def work() -> None: ...

    fleet = Fleet(store, clock, declare)
    async with fleet.running(1):
        await clock.advance(50)
        fleet.replicas[0].faults.lose_reply("commit", times=3)
        await clock.advance(20)
    [tick] = [event for event in seen if isinstance(event, TickRan)]
    assert tick.lateness == pytest.approx(0, abs=0.1)


async def test_without_a_subscriber_no_event_of_a_tick_is_made(
    store: Store, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("tenure.runtime.timers.tick_reports.TickRan", _never)
    ran: list[int] = []

    def declare(app: Tenure, _: Replica) -> None:
        app.timer(every="10s", name="work")(lambda: ran.append(1))

    async with Fleet(store, clock, declare).running(1):
        await clock.advance(5)
        await clock.advance(6)
        await wait_until_async(lambda: ran)


def _never(*_: object) -> None:
    raise AssertionError("an event was made")


async def test_each_tick_is_reported_once_on_each_store(real_world):
    seen: list[Event] = []
    stopped = asyncio.Event()

    def app_of_two() -> Tenure:
        app = Tenure(real_world.unopened(), grace=0)
        app.on_event(seen.append)

        @app.timer(every="1s")
        async def shared() -> None: ...

        @app.timer(every="1s", each="replica")
        async def own() -> None: ...

        @app.timer(every="1s", limit=1)
        async def limited() -> None:
            await stopped.wait()

        @app.task
        async def send() -> None: ...

        app.schedule(send, every="1s", name="sends")
        return app

    def nominals(timer: str) -> Counter[int]:
        ticks = (event for event in list(seen) if isinstance(event, TickRan))
        return Counter(tick.nominal for tick in ticks if tick.timer == timer)

    def has_seen_all() -> bool:
        skips = [event for event in list(seen) if isinstance(event, TickSkipped)]
        return bool(nominals("shared") and nominals("sends") and skips and nominals("own"))

    left, right = app_of_two(), app_of_two()
    async with left, right, left.worker(), right.worker():
        await wait_until_async(has_seen_all, 20)
        stopped.set()
        history = await left.timer_handle("shared").history()
        sends = await left.jobs(task="send")
    assert set(nominals("shared").values()) == {1}
    assert set(nominals("sends").values()) == {1}
    assert max(nominals("own").values()) <= 2
    assert TickSkipped("limited", "limit", 1) in seen
    ticks = [event for event in seen if isinstance(event, TickRan)]
    assert {run.job for run in history if run.job} <= {tick.job for tick in ticks}
    assert {job.id for job in sends} <= {tick.job for tick in ticks if tick.timer == "sends"}
    enqueued = Counter(event.job for event in seen if isinstance(event, JobEnqueued))
    assert enqueued == Counter(tick.job for tick in ticks if tick.timer == "sends")
    assert all(0 <= tick.lateness < 5 for tick in ticks)
