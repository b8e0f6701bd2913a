"""Timers in virtual time on every store, with wrong clocks, kills, lost requests and replies."""

import random
from collections import Counter
from collections.abc import Iterable

import pytest

from tenure import Tenure, Tick
from tenure.core.jobs.records import JobRecord
from tenure.core.schedules.documents import ANSWERED_LATE, Decision
from tenure.stores.contract import Store
from tests.contract.schedule_calls import decisions
from tests.contract.worlds import World
from tests.rig.sizes import SIZE
from tests.timers.shift import Member, PacedClock, Shift

BEGIN = 1_800_000_000  # seconds; the clock's first instant
TICKS = 200 if SIZE.name == "soak" else 20
CASES = [(3, 0.0), (3, 0.01), (3, 2.5), (10, 0.01)]
if SIZE.name == "soak":
    CASES += [(10, 0.0), (10, 2.5)]
WRONG_BY = (5.0, -5.0)  # seconds, against the store's clock
ON_TIME = 100_000  # microseconds
FREE_AGAIN = 15  # seconds; a replica's ttl of 10 and the time in which others look
CALLS = ("commit", "declare", "read", "settle", "beat", "claim")


@pytest.fixture
def clock() -> PacedClock:
    """A clock that waits for the store."""
    return PacedClock()


@pytest.fixture
async def store(world: World) -> Store:
    """How the test itself looks into the store."""
    return await world.store()


def notes_ticks(clock: PacedClock, body: float, **options):
    """Declare a timer of one second whose handler takes so long."""

    def declare(app: Tenure, member: Member) -> None:
        @app.timer(**{"every": "1s", **options})
        async def work(tick: Tick) -> None:
            await member.unless_dead()
            member.ran.append(round(tick.nominal.timestamp()))
            await clock.sleep(body)
            await member.unless_dead()

    return declare


class Chronicle:
    """All decisions about a timer; the store itself remembers a bounded number of them."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._decisions: dict[tuple[str, int], Decision] = {}

    async def read(self) -> None:
        for decision in await decisions(self._store, "work"):
            self._decisions[decision.outcome, decision.first] = decision

    def outcomes(self) -> dict[int, list[Decision]]:
        """Return what is known about each tick, by its nominal instant in seconds."""
        outcomes: dict[int, list[Decision]] = {}
        for decision in self._decisions.values():
            for tick in range(decision.first, decision.last + 1, 1_000_000):
                outcomes.setdefault(tick // 1_000_000, []).append(decision)
        return outcomes


@pytest.mark.parametrize(("tickers", "body"), CASES)
async def test_each_tick_is_decided_once(
    world: World, store: Store, clock: PacedClock, tickers: int, body: float
):
    chronicle = Chronicle(store)
    async with Shift(world, clock, notes_ticks(clock, body)) as shift:
        await shift.start(tickers, WRONG_BY)
        for _ in range(TICKS):
            await clock.advance(1)
            await chronicle.read()
        await clock.advance(0.5)
        ran = shift.ran
    step = 3 if body > 1 else 1
    assert ran == Counter(range(BEGIN + 1, BEGIN + TICKS + 1, step))
    outcomes = chronicle.outcomes()
    for tick in range(BEGIN + 1, BEGIN + TICKS + 1):
        [decision] = outcomes[tick]
        expected = ("ran", "") if tick in ran else ("skipped", "overlap")
        assert (decision.outcome, decision.reason) == expected
        assert decision.at <= decision.last + ON_TIME


@pytest.mark.parametrize(("tickers", "body"), CASES)
async def test_no_tick_runs_twice_whatever_is_lost(
    world: World, store: Store, clock: PacedClock, tickers: int, body: float
):
    chance = random.Random(tickers)
    chronicle = Chronicle(store)
    async with Shift(world, clock, notes_ticks(clock, body)) as shift:
        await shift.start(tickers, WRONG_BY)
        for tick in range(TICKS):
            lose_something(shift.living, chance)
            if tick % 4 == 1:
                die_at_the_next_tick(chance.choice(shift.living), chance)
            if tick % 10 == 6:
                for member in shift.living:  # for longer than from one tick to the next
                    member.line.lose_request("commit", times=6)
            await clock.advance(1)
            await chronicle.read()
            shift.close_dead(after=2 * FREE_AGAIN)
            await shift.start(tickers - len(shift.living), WRONG_BY)
        for member in shift.living:
            member.line.heal()
        await clock.advance(FREE_AGAIN)
        await chronicle.read()
        ran, runs = shift.ran, await runs_of_timer(store)
    assert max(ran.values()) == 1
    assert len(ran) >= TICKS / 10, "hardly anything has run"
    account_for(chronicle.outcomes(), ran, {run.id: run for run in runs})


def lose_something(members: Iterable[Member], chance: random.Random) -> None:
    for member in members:
        lose = chance.choice([member.line.lose_request, member.line.lose_reply])
        lose(chance.choice(CALLS))


def die_at_the_next_tick(victim: Member, chance: random.Random) -> None:
    """Let a process die before it asks for a tick, after that, in the run, or at its end."""
    moment = chance.choice(["now", "request", "reply", "end"])
    if moment == "now":
        victim.line.cut()
    elif moment == "end":
        victim.line.cut_at("settle", chance.choice(["request", "reply"]))
    else:
        victim.line.cut_at("commit", moment)


def account_for(
    outcomes: dict[int, list[Decision]], ran: Counter[int], runs: dict[str, JobRecord]
) -> None:
    """Check that each tick has one record, and that each run that none has seen has a reason.

    It was lost, or withdrawn: its replica learned of it when the next tick was due.
    """
    for tick in range(BEGIN + 1, BEGIN + TICKS + 1):
        [decision] = outcomes[tick]
        assert (decision.outcome == "ran") >= (tick in ran), f"{tick} ran, but was {decision}"
        if decision.outcome != "ran":
            assert decision.reason
        elif tick not in ran:
            assert runs[decision.job].reason in ("lost", ANSWERED_LATE)


async def test_a_limit_holds_by_the_stores_history(world: World, store: Store, clock: PacedClock):
    chance = random.Random(3)
    options = {"each": "replica", "limit": 3}
    async with Shift(world, clock, notes_ticks(clock, 1.7, **options)) as shift:
        await shift.start(5, WRONG_BY)
        for tick in range(TICKS):
            lose_something(shift.living, chance)
            if tick % 4 == 1:
                die_at_the_next_tick(chance.choice(shift.living), chance)
            await clock.advance(1)
            shift.close_dead(after=2 * FREE_AGAIN)
            await shift.start(5 - len(shift.living), WRONG_BY)
        runs = await runs_of_timer(store)
    assert most_at_once(runs) == 3
    assert all(max(Counter(member.ran).values(), default=1) == 1 for member in shift.members)


async def test_a_dead_replicas_place_is_free_again(world: World, store: Store, clock: PacedClock):
    options = {"each": "replica", "limit": 3}
    async with Shift(world, clock, notes_ticks(clock, 1000, **options)) as shift:
        victims = await shift.start(3, WRONG_BY)
        await clock.advance(1.5)
        others = await shift.start(2, WRONG_BY)
        await clock.advance(5)
        assert [len(member.ran) for member in (*victims, *others)] == [1, 1, 1, 0, 0]
        for member in victims:
            member.line.cut()
        await clock.advance(FREE_AGAIN)
        assert [len(member.ran) for member in others] == [1, 1]
        runs = await runs_of_timer(store)
    assert most_at_once(runs) == 3
    assert sorted(run.reason for run in runs) == ["", "", "lost", "lost", "lost"]


async def runs_of_timer(store: Store) -> list[JobRecord]:
    """Return every run that the store has ever made."""
    runs: list[JobRecord] = []
    cursor = None
    while True:
        page = await store.jobs.find(task="@work", limit=200, cursor=cursor)
        runs += page.jobs
        cursor = page.cursor
        if cursor is None:
            return runs


def most_at_once(runs: Iterable[JobRecord]) -> int:
    """Return how many unfinished runs there were at a time, by the instants of the store."""
    changes: list[tuple[int, int]] = []
    for run in runs:
        changes.append((run.started, 1))
        if run.finished:
            changes.append((run.finished, -1))
    most = running = 0
    for _, change in sorted(changes):
        running += change
        most = max(most, running)
    return most
