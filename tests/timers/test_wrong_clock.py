"""The store's clock was wrong for a while: timers that are ahead of it, on every store."""

import logging
from collections import Counter
from collections.abc import Callable
from datetime import timedelta

import pytest

from tenure import ConfigError, Tenure, Tick, TimerInfo, TimerNotFound
from tenure.core.jobs.view import as_datetime
from tenure.core.schedules.documents import DECLARED_FOR, Schedule
from tenure.core.schedules.pauses import AHEAD_AFTER, seconds_ahead
from tenure.observe import TimerAhead
from tenure.runtime.timers.scheduling import Scheduling
from tenure.runtime.timers.stored_schedules import read_schedules
from tenure.stores.contract import Store
from tests.contract.schedule_calls import SECOND
from tests.contract.worlds import World
from tests.jobs.replicas import of_kind
from tests.timers.shift import Member, PacedClock, Shift

BEGIN = 1_800_000_000  # seconds; the clock's first instant
YEAR = 365 * 86_400
NOTICED = 20  # seconds; workers declare their timers so often
TWO_WEEKS = 14 * 86_400


@pytest.fixture
def clock() -> PacedClock:
    """A clock that waits for the store."""
    return PacedClock()


@pytest.fixture
async def store(world: World) -> Store:
    """How the test itself looks into the store."""
    return await world.store()


@pytest.fixture
def events() -> list[object]:
    """What the apps of the test have told."""
    return []


def notes_ticks(
    clock: PacedClock, events: list[object], body: float = 0.0, **options
) -> Callable[[Tenure, Member], None]:
    """Declare a timer of ten seconds whose handler takes so long."""

    def declare(app: Tenure, member: Member) -> None:
        app.on_event(events.append)

        @app.timer(**{"every": "10s", **options})
        async def work(tick: Tick) -> None:
            member.ran.append(round(tick.nominal.timestamp()))
            await clock.sleep(body)

    return declare


async def be_wrong_for_a_minute(clock: PacedClock, seconds: float = YEAR) -> None:
    clock.step(seconds)
    await clock.advance(60)
    clock.step(-seconds)
    await clock.advance(NOTICED + 1)


async def look_at(store: Store, name: str = "work") -> Schedule:
    [schedule] = (await read_schedules(store, [name])).all
    return schedule


async def info_of(store: Store, name: str = "work") -> TimerInfo:
    async with Tenure(store.clone()) as app:
        return await app.timer_handle(name).info()


async def reset(store: Store, name: str = "work") -> bool:
    async with Tenure(store.clone()) as app:
        return await app.timer_handle(name).reset()


def now_in_seconds(clock: PacedClock) -> int:
    return clock.wall() // SECOND


async def test_a_timer_that_is_ahead_does_not_tick_and_warns_once(
    world: World,
    store: Store,
    clock: PacedClock,
    events: list[object],
    caplog: pytest.LogCaptureFixture,
):
    caplog.set_level(logging.WARNING, "tenure")
    async with Shift(world, clock, notes_ticks(clock, events)) as shift:
        await shift.start(1)
        await clock.advance(25)
        await be_wrong_for_a_minute(clock)
        ran = shift.ran
        assert max(ran) > BEGIN + YEAR, "it has followed the clock"
        await clock.advance(3 * NOTICED)
        assert shift.ran == ran, "no tick runs again, and none before its time"
        info = await info_of(store)
    [ahead] = of_kind(events, TimerAhead)
    cursor = (await look_at(store)).standing.cursor
    assert (ahead.timer, ahead.until, ahead.is_own) == ("work", cursor, False)
    assert abs(ahead.seconds - YEAR) < 2 * 60
    [warning] = [line for line in caplog.messages if "does not tick until" in line]
    until = f"{as_datetime(cursor):%Y-%m-%d %H:%M:%S} UTC"
    assert warning.startswith(f"timer 'work' does not tick until {until}: ")
    assert "Run 'tenure timers reset work' to let it tick again" in warning
    assert info.ahead == pytest.approx(YEAR, abs=3 * 60)
    assert info.next == as_datetime(cursor) + timedelta(seconds=10)


async def test_a_reset_lets_it_tick_again_in_workers_that_run(
    world: World, store: Store, clock: PacedClock, events: list[object]
):
    async with Shift(world, clock, notes_ticks(clock, events)) as shift:
        await shift.start(2)
        await clock.advance(25)
        await be_wrong_for_a_minute(clock)
        before = shift.ran
        assert await reset(store)
        since = now_in_seconds(clock)
        assert not await reset(store), "it is ahead no more"
        await clock.advance(NOTICED + 10)
        after = shift.ran - before
        assert since < min(after) <= max(after) <= now_in_seconds(clock)
        assert max(after.values()) == 1
        await clock.advance(30)
        assert len(shift.ran - before) == len(after) + 3, "each tick runs again, once"
        assert (await info_of(store)).ahead == 0.0
        assert len(of_kind(events, TimerAhead)) == 2, "once in each of the two"
        # If it happens once more, it is told once more.
        await be_wrong_for_a_minute(clock)
        assert len(of_kind(events, TimerAhead)) == 4


async def test_a_worker_that_starts_later_warns_as_well(
    world: World, store: Store, clock: PacedClock, events: list[object]
):
    async with Shift(world, clock, notes_ticks(clock, [])) as first:
        await first.start(1)
        await be_wrong_for_a_minute(clock)
    await clock.advance(5 * 60)
    async with Shift(world, clock, notes_ticks(clock, events)) as second:
        await second.start(1)
        await clock.advance(1)
        assert len(of_kind(events, TimerAhead)) == 1
        assert await reset(store)
        await clock.advance(NOTICED + 10)
        assert second.ran


async def test_a_worker_whose_definition_does_not_rule_does_not_warn(
    world: World, clock: PacedClock, events: list[object]
):
    """It would not tick in any case, and the worker with the ruling one has said so."""
    older, newer = notes_ticks(clock, events), notes_ticks(clock, [], every="5s")
    async with Shift(world, clock, older) as first:
        await first.start(1)
        await clock.advance(15)
    async with Shift(world, clock, newer) as second, Shift(world, clock, older) as third:
        await second.start(1)
        await be_wrong_for_a_minute(clock)
        await third.start(1)
        await clock.advance(NOTICED + 1)
        assert not third.ran
        assert not of_kind(events, TimerAhead)


async def test_a_deploy_sets_no_cursor_back(
    world: World, store: Store, clock: PacedClock, events: list[object]
):
    """Only an operator may let ticks run again."""
    async with Shift(world, clock, notes_ticks(clock, [])) as before:
        await before.start(1)
        await be_wrong_for_a_minute(clock)
    renamed = notes_ticks(clock, events, every="5s", name="sync", renamed_from="work")
    async with Shift(world, clock, renamed) as after:
        await after.start(1)
        await clock.advance(60)
        assert not after.ran
        assert [ahead.timer for ahead in of_kind(events, TimerAhead)] == ["sync"]
        assert (await info_of(store)).ahead == 0.0, "of the former name nobody expects a tick"
        with pytest.raises(ConfigError, match="'work' is called 'sync' now; reset that"):
            await reset(store)
        assert await reset(store, "sync")
        await clock.advance(NOTICED + 5)
        assert after.ran


@pytest.mark.parametrize("back", [1, 30, 58])
async def test_a_clock_that_is_set_back_a_little_is_not_reported(
    world: World, store: Store, clock: PacedClock, events: list[object], back: int
):
    async with Shift(world, clock, notes_ticks(clock, events)) as shift:
        await shift.start(1)
        await clock.advance(40.5)
        clock.step(-back)
        await clock.advance(NOTICED + 1)
        assert not of_kind(events, TimerAhead)
        assert (await info_of(store)).ahead == 0.0
        await clock.advance(back + 10)
        assert max(shift.ran) >= BEGIN + 50, "it goes on by itself"
        assert max(shift.ran.values()) == 1


@pytest.mark.parametrize("seconds", [-5, 0, AHEAD_AFTER])
def test_a_cursor_close_to_now_is_not_ahead(seconds: float):
    assert seconds_ahead(BEGIN * SECOND + int(seconds * SECOND), BEGIN * SECOND) == 0.0


def test_a_cursor_a_minute_from_now_is_ahead():
    assert seconds_ahead((BEGIN + 61) * SECOND, BEGIN * SECOND) == 61.0


async def test_a_replicas_own_ticks_begin_anew_with_its_process(
    world: World,
    store: Store,
    clock: PacedClock,
    events: list[object],
    caplog: pytest.LogCaptureFixture,
):
    caplog.set_level(logging.WARNING, "tenure")
    async with Shift(world, clock, notes_ticks(clock, events, each="replica")) as shift:
        await shift.start(1)
        await clock.advance(25)
        await be_wrong_for_a_minute(clock)
        before = shift.ran
        [ahead] = of_kind(events, TimerAhead)
        assert ahead.is_own
        assert "Restart this worker; ticks" in caplog.text
        info = await info_of(store)
        assert info.ahead == 0.0, "others tick"
        assert info.next is not None
        assert info.next <= as_datetime(clock.wall()) + timedelta(seconds=10)
        await shift.start(1)
        await clock.advance(30)
        assert shift.members[0].ran == sorted(before)
        assert len(shift.members[1].ran) == 3


async def test_a_timer_that_only_each_replica_ticks_is_previewed_from_now(
    world: World, store: Store, clock: PacedClock
):
    """The cursor in the store is that of its first declaration, which was made too late."""
    clock.step(YEAR)
    async with Shift(world, clock, notes_ticks(clock, [], each="replica")) as shift:
        await shift.start(1)
        await clock.advance(1)
    clock.step(-YEAR)
    soon = as_datetime(clock.wall()) + timedelta(seconds=10)
    async with Tenure(store.clone()) as app:
        [first] = await app.timer_handle("work").preview(1)
        info = await app.timer_handle("work").info()
    assert (first, info.next, info.ahead) == (first, first, 0.0)
    assert first <= soon


async def test_a_pause_between_runs_begins_with_the_reset(
    world: World, store: Store, clock: PacedClock, events: list[object]
):
    """The last run, too, has ended in the future."""
    rests = notes_ticks(clock, events, 1.0, after="completion")
    async with Shift(world, clock, rests) as shift:
        await shift.start(1)
        await be_wrong_for_a_minute(clock)
        before = shift.ran
        assert len(of_kind(events, TimerAhead)) == 1
        assert await reset(store)
        due = as_datetime(clock.wall()) + timedelta(seconds=10)
        info = await info_of(store)
        assert info.next is not None
        assert abs(info.next - due) < timedelta(seconds=1)
        await clock.advance(NOTICED + 10)
        assert len(shift.ran - before) >= 1


async def test_a_run_that_ended_in_the_future_holds_up_none(
    world: World, store: Store, clock: PacedClock, events: list[object]
):
    """Its tick was decided in time, so nothing is ahead, and no operator is needed."""
    rests = notes_ticks(clock, events, 30.0, after="completion")
    async with Shift(world, clock, rests) as shift:
        await shift.start(1)
        await clock.advance(15)
        assert len(shift.ran) == 1
        clock.step(YEAR)
        await clock.advance(26)  # it ends meanwhile, and the next one is not due yet
        clock.step(-YEAR)
        assert (await look_at(store)).standing.cursor < (BEGIN + 20) * SECOND
        info = await info_of(store)
        assert info.next is not None
        assert info.next <= as_datetime(clock.wall())
        await clock.advance(60)
        assert len(shift.ran) >= 2
        assert not of_kind(events, TimerAhead)


async def test_a_pause_counts_from_the_end_of_a_run_also_after_a_step_ahead(
    world: World, store: Store, clock: PacedClock, events: list[object]
):
    """A worker that has not heard of the new time takes no end of a run for a wrong one."""
    rests = notes_ticks(clock, events, 15.0, after="completion")
    async with Shift(world, clock, rests) as shift:
        [member] = await shift.start(1)
        await clock.advance(24.97)
        assert len(member.ran) == 1
        clock.step(3600)
        await clock.advance(9)
        assert len(member.ran) == 1, "the last one has ended 9 s ago"
        await clock.advance(3)
        assert len(member.ran) == 2


async def test_a_declaration_of_the_future_does_not_last(
    world: World, store: Store, clock: PacedClock
):
    """No process declares it any more, and the store would keep it for a year."""
    clock.step(YEAR)
    async with Shift(world, clock, notes_ticks(clock, [])) as shift:
        await shift.start(1)
        await clock.advance(1)
    clock.step(-YEAR)
    assert not (await info_of(store)).is_declared
    scheduling = Scheduling(store)
    assert await scheduling.forget(idle=TWO_WEEKS) == 0
    assert (await look_at(store)).record.declared == clock.wall(), "set back by the store"
    await clock.advance(2 * DECLARED_FOR)
    assert not (await info_of(store)).is_declared
    clock.shift(TWO_WEEKS)
    assert await scheduling.forget(idle=TWO_WEEKS) == 1
    with pytest.raises(TimerNotFound):
        await reset(store)


async def test_schedules_are_ahead_like_timers(
    world: World, store: Store, clock: PacedClock, events: list[object]
):
    def declare(app: Tenure, _: Member) -> None:
        app.on_event(events.append)

        @app.task
        async def report() -> None: ...

        app.schedule(report, every="10s", name="reports")
        app.schedule(report, every="10s", name="more reports")

    async with Shift(world, clock, declare) as shift:
        await shift.start(1)
        await be_wrong_for_a_minute(clock)
        assert Counter(ahead.timer for ahead in of_kind(events, TimerAhead)) == Counter(
            ["reports", "more reports"]
        )
        assert await reset(store, "reports")
        await clock.advance(NOTICED + 10)
        async with Tenure(store.clone()) as app:
            ahead = {info.name: bool(info.ahead) for info in await app.timers()}
            [newest] = await app.timer_handle("reports").history(1)
    assert ahead == {"reports": False, "more reports": True}
    assert newest.nominal <= as_datetime(clock.wall())
