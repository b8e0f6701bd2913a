"""The events of locks: each is sent exactly once, in the situation that it names."""

import asyncio
import gc
import logging
import os
import sqlite3
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, closing, suppress
from pathlib import Path
from typing import TypeAlias

import pytest

import tenure.locks.hold
import tenure.runtime.leases.acquirer
from tenure import (
    AcquireTimeout,
    Hold,
    LeaseLost,
    LimitMismatch,
    StoreUnavailable,
    Tenure,
    WouldDeadlock,
    blocking,
)
from tenure.app import engine_of
from tenure.errors import ConfigError
from tenure.observe import (
    Event,
    HoldLost,
    LockAcquired,
    LockHeldLong,
    LockReleased,
    LockTimedOut,
)
from tenure.testing import Faults, FaultyStore, ManualClock
from tests.contract.worlds import World
from tests.rig.wait import wait_until, wait_until_async

A_MOMENT = 0.05


class Stage:
    """An app whose events are recorded, and a rival on the same store."""

    def __init__(self, app: Tenure, rival: Tenure, faults: Faults) -> None:
        self.app = app
        self.rival = rival
        self.faults = faults
        self.seen: list[Event] = []
        app.on_event(self.seen.append)  # opened before, so that no StoreCalled is among them

    @property
    def clock(self) -> ManualClock:
        clock = engine_of(self.app).store.clock
        assert isinstance(clock, ManualClock)
        return clock

    async def has_waiter(self) -> bool:
        return any(lease.waiting for lease in await self.rival.locks())

    async def take_away(self, hold: Hold) -> None:
        """End a lease behind the back of its holder."""
        await engine_of(self.rival).store.leases.release([hold.lease])

    async def play(self, story: "Story") -> list[str]:
        """Return the events of a story, after everything that it started has ended."""
        await story(self)
        await self.app.close()  # events of losses come from the host's thread
        begun = [event for event in self.seen if isinstance(event, LockAcquired)]
        ended = [event for event in self.seen if isinstance(event, LockReleased | HoldLost)]
        holds = {(event.name, event.fence) for event in ended}
        assert len(ended) == len(holds), "a hold has ended twice"
        assert holds <= {(event.name, event.fence) for event in begun}
        return names(self.seen)


Story: TypeAlias = Callable[[Stage], Awaitable[object]]


def names(seen: list[Event]) -> list[str]:
    """Return what is exact in every run: the kinds of the events, and the names of the locks."""
    return [f"{type(event).__name__} {getattr(event, 'name', '')}" for event in seen]


async def staged(stack: AsyncExitStack, world: World) -> Stage:
    faults = Faults()
    app = await stack.enter_async_context(Tenure(FaultyStore(world.unopened(), faults)))
    rival = await stack.enter_async_context(Tenure(world.unopened()))
    return Stage(app, rival, faults)


@pytest.fixture
async def real_stage(real_world: World) -> AsyncIterator[Stage]:
    """Each store, in real time."""
    async with AsyncExitStack() as stack:
        yield await staged(stack, real_world)


@pytest.fixture
async def stage(world: World) -> AsyncIterator[Stage]:
    """Each store, in a time that the test shifts."""
    async with AsyncExitStack() as stack:
        yield await staged(stack, world)


# Situations that need no time to pass.


async def acquire_and_release(stage: Stage) -> None:
    async with stage.app.lock("a"):
        pass


async def release_twice(stage: Stage) -> None:
    async with stage.app.lock("a") as hold:
        assert await hold.release()
    assert not await hold.release()


async def be_refused(stage: Stage) -> None:
    async with stage.rival.lock("a"):
        assert await stage.app.lock("a").try_acquire() is None


async def be_refused_in_a_block(stage: Stage) -> None:
    async with stage.rival.lock("a"):
        with pytest.raises(AcquireTimeout):
            async with stage.app.lock("a", wait=0):
                pass


async def time_out(stage: Stage) -> None:
    async with stage.rival.lock("a"):
        with pytest.raises(AcquireTimeout):
            await stage.app.lock("a", wait=A_MOMENT).acquire()


async def time_out_behind_a_task_of_this_process(stage: Stage) -> None:
    async with stage.rival.lock("a"):
        first = asyncio.create_task(stage.app.lock("a").acquire())
        await wait_until_async(stage.has_waiter, 20)
        with pytest.raises(AcquireTimeout):
            await stage.app.lock("a", wait=A_MOMENT).acquire()
    await (await first).release()


async def wait_and_get_it(stage: Stage) -> None:
    async with stage.rival.lock("a"):
        waiting = asyncio.create_task(stage.app.lock("a", wait=20).acquire())
        await wait_until_async(stage.has_waiter, 20)
    await (await waiting).release()


async def cancel_the_wait(stage: Stage) -> None:
    async with stage.rival.lock("a"):
        waiting = asyncio.create_task(stage.app.lock("a", wait=20).acquire())
        await wait_until_async(stage.has_waiter, 20)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting


async def time_out_by_asyncio(stage: Stage) -> None:
    async with stage.rival.lock("a"):
        with suppress(TimeoutError):
            async with asyncio.timeout(A_MOMENT):
                await stage.app.lock("a").acquire()


async def queue_up_inside_a_process(stage: Stage) -> None:
    """Three tasks take turns, and one between them is cancelled."""

    async def take_turn() -> None:
        async with stage.app.lock("a", wait=20):
            await asyncio.sleep(0)

    async with stage.rival.lock("a"):
        tasks = [asyncio.create_task(take_turn()) for _ in range(4)]
        await wait_until_async(stage.has_waiter, 20)
        tasks[1].cancel()
    await asyncio.wait(tasks)


async def fill_a_semaphore(stage: Stage) -> None:
    semaphore = stage.app.semaphore("a", 2)
    async with semaphore, semaphore:
        assert await semaphore.try_acquire() is None


async def mismatch_limits(stage: Stage) -> None:
    async with stage.rival.semaphore("a", 2):
        with pytest.raises(LimitMismatch):
            await stage.app.semaphore("a", 3, strict=True).try_acquire()


async def wait_for_yourself(stage: Stage) -> None:
    async with stage.app.lock("a"):
        with pytest.raises(WouldDeadlock):
            await stage.app.lock("a").acquire()


async def run_with_lock(stage: Stage) -> None:
    assert await stage.app.with_lock("a", list, ttl=30)


async def skip_with_lock(stage: Stage) -> None:
    async with stage.rival.lock("a"):
        assert (await stage.app.with_lock("a", list, ttl=30)).skipped


async def time_out_with_lock(stage: Stage) -> None:
    async with stage.rival.lock("a"):
        assert (await stage.app.with_lock("a", list, ttl=30, wait=A_MOMENT)).skipped


async def run_without_the_lock(stage: Stage) -> None:
    stage.faults.lose_request("acquire", times=100)
    assert (await stage.app.with_lock("a", list, on_unavailable="run")).unlocked


async def skip_without_the_store(stage: Stage) -> None:
    stage.faults.lose_request("acquire", times=100)
    assert (await stage.app.with_lock("a", list, on_unavailable="skip")).skipped
    with pytest.raises(StoreUnavailable):
        await stage.app.lock("a").try_acquire()


async def run_once_and_again(stage: Stage) -> None:
    assert await stage.app.once("a", list)
    assert not await stage.app.once("a", list)


async def lead_for_a_term(stage: Stage) -> None:
    async for term in stage.app.election("a").terms():
        async with term:
            break


async def lose_the_reply_to_acquire(stage: Stage) -> None:
    stage.faults.lose_reply("acquire")
    await acquire_and_release(stage)


async def lose_the_reply_to_release(stage: Stage) -> None:
    stage.faults.lose_reply("release")
    await acquire_and_release(stage)


async def cancel_the_release(stage: Stage) -> None:
    hold = await stage.app.lock("a").acquire()
    stage.faults.delay("release", A_MOMENT)
    releasing = asyncio.create_task(hold.release())
    await asyncio.sleep(0)
    releasing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await releasing
    await wait_until_async(lambda: len(stage.seen) > 1, 20)


async def lose_it_before_the_release(stage: Stage) -> None:
    hold = await stage.app.lock("a").acquire()
    await stage.take_away(hold)
    assert not await hold.release()
    assert not await hold.release()


async def lose_it_at_a_renewal(stage: Stage) -> None:
    hold = await stage.app.lock("a").acquire()
    await stage.take_away(hold)
    with pytest.raises(LeaseLost):
        await hold.renew()
    assert not await hold.release()


async def close_the_app_inside(stage: Stage) -> None:
    async with stage.app.lock("a"):
        await stage.app.close()


async def close_the_app_with_a_hold(stage: Stage) -> None:
    hold = await stage.app.lock("a").acquire()
    await stage.app.close()
    assert hold.is_held


async def release_in_a_forked_child(stage: Stage) -> None:
    hold = await stage.app.lock("a").acquire()
    hold._pid = os.getpid() + 1
    assert not await hold.release()
    hold._released = True


AT_ONCE: dict[str, tuple[Story, list[str]]] = {
    "acquired and released": (acquire_and_release, ["LockAcquired a", "LockReleased a"]),
    "released twice": (release_twice, ["LockAcquired a", "LockReleased a"]),
    "refused": (be_refused, ["LockRefused a"]),
    "refused in a block": (be_refused_in_a_block, ["LockRefused a"]),
    "timed out": (time_out, ["LockTimedOut a"]),
    "timed out behind a task of this process": (
        time_out_behind_a_task_of_this_process,
        ["LockTimedOut a", "LockAcquired a", "LockReleased a"],
    ),
    "waited and got it": (wait_and_get_it, ["LockAcquired a", "LockReleased a"]),
    "cancelled while it waited": (cancel_the_wait, []),
    "cancelled by asyncio.timeout": (time_out_by_asyncio, []),
    "a semaphore": (
        fill_a_semaphore,
        ["LockAcquired a"] * 2 + ["LockRefused a"] + ["LockReleased a"] * 2,
    ),
    "another limit is in use": (mismatch_limits, []),
    "would wait for itself": (wait_for_yourself, ["LockAcquired a", "LockReleased a"]),
    "with_lock runs": (run_with_lock, ["LockAcquired a", "LockReleased a"]),
    "with_lock skips": (skip_with_lock, ["LockRefused a"]),
    "with_lock times out": (time_out_with_lock, ["LockTimedOut a"]),
    "with_lock runs without the lock": (run_without_the_lock, ["RanUnlocked a"]),
    "the store does not answer": (skip_without_the_store, []),
    "once": (run_once_and_again, ["LockAcquired once:a", "LockReleased once:a"]),
    "election": (lead_for_a_term, ["LockAcquired election:a", "LockReleased election:a"]),
    "reply to acquire lost": (lose_the_reply_to_acquire, ["LockAcquired a", "LockReleased a"]),
    "reply to release lost": (lose_the_reply_to_release, ["LockAcquired a", "LockReleased a"]),
    "release cancelled": (cancel_the_release, ["LockAcquired a", "LockReleased a"]),
    "lost before the release": (lose_it_before_the_release, ["LockAcquired a", "HoldLost a"]),
    "lost at a renewal": (lose_it_at_a_renewal, ["LockAcquired a", "HoldLost a"]),
    "app closed inside the block": (close_the_app_inside, ["LockAcquired a", "LockReleased a"]),
    "app closed with a hold": (close_the_app_with_a_hold, ["LockAcquired a"]),
    "inherited by a fork": (release_in_a_forked_child, ["LockAcquired a"]),
}


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize(("story", "expected"), AT_ONCE.values(), ids=AT_ONCE)
async def test_each_event_is_sent_once_where_it_belongs(
    real_stage: Stage, story: Story, expected: list[str]
):
    assert await real_stage.play(story) == expected


async def test_tasks_of_a_process_that_take_turns_send_their_own_events(real_stage: Stage):
    """The next grant may be answered before the release that made room for it."""
    events = await real_stage.play(queue_up_inside_a_process)
    assert sorted(events) == ["LockAcquired a"] * 3 + ["LockReleased a"] * 3


# Situations in which time passes.


async def take_over_from_the_dead(stage: Stage) -> None:
    dead = await stage.rival.lock("a", ttl=5).acquire()
    stage.clock.shift(5)
    async with stage.app.lock("a"):
        pass
    await dead.release()
    async with stage.app.lock("a"):
        pass


async def take_over_a_place_of_a_semaphore(stage: Stage) -> None:
    dead = await stage.rival.semaphore("a", 2, ttl=5).acquire()
    async with stage.rival.semaphore("a", 2, ttl=60):
        stage.clock.shift(5)
        async with stage.app.semaphore("a", 2):
            assert await stage.app.semaphore("a", 2).try_acquire() is None
    await dead.release()


async def take_over_by_with_lock_and_once(stage: Stage) -> None:
    dead = [await stage.rival.lock(name, ttl=5).acquire() for name in ("a", "once:b")]
    stage.clock.shift(5)
    assert await stage.app.with_lock("a", list, ttl=30)
    assert await stage.app.once("b", list)
    for hold in dead:
        await hold.release()


async def take_over_what_this_process_dropped(stage: Stage) -> None:
    hold: Hold | None = await stage.app.lock("a", ttl=5).acquire()
    assert hold is not None
    hold = None
    gc.collect()
    stage.clock.shift(5)
    async with stage.app.lock("a"):
        pass


async def keep_it_for_min_hold(stage: Stage) -> None:
    async with stage.app.lock("a", min_hold=5):
        stage.clock.shift(2)
    assert await stage.app.lock("a").try_acquire() is None
    stage.clock.shift(3)
    async with stage.app.lock("a"):
        pass


async def reach_max_hold(stage: Stage) -> None:
    hold = await stage.app.lock("a", max_hold=5, expected=4).acquire()
    stage.clock.shift(7)
    assert hold.is_lost
    assert hold.is_lost
    assert not await hold.release()


async def pause_for_too_long(stage: Stage) -> None:
    with pytest.raises(LeaseLost):
        async with stage.app.lock("a", ttl=5, on_lost="raise", expected=1):
            stage.clock.shift(5)
    async with stage.app.lock("a"):
        pass


async def lose_a_term(stage: Stage) -> None:
    async for term in stage.app.election("a", ttl=5).terms():
        async with term:
            stage.clock.shift(5)
            assert term.is_lost
        break


IN_TIME: dict[str, tuple[Story, list[str]]] = {
    "taken over, and not again": (
        take_over_from_the_dead,
        [
            "LockAcquired a",
            "LockTakenOver a",
            "LockReleased a",
            "LockAcquired a",
            "LockReleased a",
        ],
    ),
    "a place of a semaphore taken over": (
        take_over_a_place_of_a_semaphore,
        ["LockAcquired a", "LockTakenOver a", "LockRefused a", "LockReleased a"],
    ),
    "taken over by with_lock and once": (
        take_over_by_with_lock_and_once,
        [
            f"{kind} {name}"
            for name in ("a", "once:b")
            for kind in ("LockAcquired", "LockTakenOver", "LockReleased")
        ],
    ),
    "dropped without a release": (
        take_over_what_this_process_dropped,
        ["LockAcquired a", "LockAcquired a", "LockTakenOver a", "LockReleased a"],
    ),
    "kept by min_hold": (
        keep_it_for_min_hold,
        [
            "LockAcquired a",
            "LockReleased a",
            "LockRefused a",
            "LockAcquired a",
            "LockReleased a",
        ],
    ),
    "max_hold is over": (reach_max_hold, ["LockAcquired a", "HoldLost a"]),
    "lost in a pause, and free after its late release": (
        pause_for_too_long,
        ["LockAcquired a", "HoldLost a", "LockAcquired a", "LockReleased a"],
    ),
    "a term is lost": (lose_a_term, ["LockAcquired election:a", "HoldLost election:a"]),
}


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize(("story", "expected"), IN_TIME.values(), ids=IN_TIME)
async def test_each_event_is_sent_once_when_time_passes(
    stage: Stage, story: Story, expected: list[str]
):
    assert await stage.play(story) == expected


# What the events say.


@pytest.fixture
async def virtual(clock: ManualClock, namespace: str) -> AsyncIterator[Stage]:
    """Memory in virtual time, where the keeper works as well."""
    async with AsyncExitStack() as stack:
        yield await staged(stack, World("memory", f"memory://{namespace}", namespace, clock))


async def test_waits_and_holds_are_counted_from_the_call_to_the_release(virtual: Stage):
    app, clock = virtual.app, virtual.clock
    async with virtual.rival.semaphore("gpu", 1, ttl=100):
        late = asyncio.create_task(app.semaphore("gpu", 1, wait=3).acquire())
        waiting = asyncio.create_task(app.semaphore("gpu", 1, wait=20, min_hold=50).acquire())
        await clock.advance(4)
        with pytest.raises(AcquireTimeout):
            await late
        await clock.advance(2)
    await clock.advance(1)
    hold = await waiting
    await clock.advance(7)
    await hold.release()
    timed_out, acquired, released = virtual.seen
    assert isinstance(timed_out, LockTimedOut)
    assert (timed_out.limit, round(timed_out.waited)) == (1, 3)
    assert isinstance(acquired, LockAcquired)
    assert (acquired.fence, acquired.limit) == (hold.fence, 1)
    assert 6 <= acquired.waited <= 7
    assert isinstance(released, LockReleased)
    assert released.fence == hold.fence
    assert released.held == pytest.approx(14 - acquired.waited)


async def test_a_hold_ends_with_its_release_not_with_the_answer_of_the_store(virtual: Stage):
    hold = await virtual.app.lock("a", ttl=50).acquire()
    virtual.faults.delay("release", 5)
    releasing = asyncio.create_task(hold.release())
    await virtual.clock.advance(5)
    assert await releasing
    _, released = virtual.seen
    assert isinstance(released, LockReleased)
    assert released.held == 0


async def test_a_cancelled_release_that_awaits_a_renewal_is_finished(virtual: Stage):
    """A min_hold lets a renewal in flight land before it shortens the lease."""
    hold = await virtual.app.lock("a", ttl=10, min_hold=4).acquire()
    virtual.faults.delay("renew", 0.5)
    await virtual.clock.advance(3.1)
    releasing = asyncio.create_task(hold.release())
    await virtual.clock.advance(0.01)
    releasing.cancel()
    await virtual.clock.advance(5)
    assert releasing.cancelled()
    assert names(virtual.seen) == ["LockAcquired a", "LockReleased a"]
    assert await virtual.rival.locks() == []


async def test_a_release_that_does_not_reach_the_store_is_reported(virtual: Stage):
    hold = await virtual.app.lock("a", ttl=5).acquire()
    virtual.faults.lose_request("release", times=100)
    releasing = asyncio.create_task(hold.release())
    await virtual.clock.advance(10)
    assert await releasing
    async with virtual.app.lock("b"):
        virtual.faults.heal()
    async with virtual.app.lock("a"):  # whose last lease has expired
        pass
    assert names(virtual.seen) == [
        *("LockAcquired a", "LockReleased a", "LockAcquired b", "LockReleased b"),
        *("LockAcquired a", "LockTakenOver a", "LockReleased a"),
    ]


async def test_a_take_over_is_reported_although_the_first_answer_came_too_late(virtual: Stage):
    dead = await virtual.rival.lock("a", ttl=1).acquire()
    virtual.clock.shift(1)
    slow = engine_of(virtual.app).store.leases
    acquire, calls = slow.acquire, []

    async def acquire_slowly(*arguments: object, **options: object) -> object:
        calls.append(arguments)
        answer = await acquire(*arguments, **options)
        if len(calls) == 1:
            virtual.clock.shift(99.3)  # within the ttl of the lease, and not to be trusted
        return answer

    slow.acquire = acquire_slowly  # type: ignore[method-assign]
    taking = asyncio.create_task(virtual.app.lock("a", ttl=100).acquire())
    await virtual.clock.advance(0)  # the first answer moves the clock
    await virtual.clock.advance(0.5)
    async with await taking:
        assert len(calls) == 2
    assert names(virtual.seen) == ["LockAcquired a", "LockTakenOver a", "LockReleased a"]
    await dead.release()


# Held for longer than expected.


async def hold_for(stage: Stage, seconds: float, **options: object) -> None:
    async with stage.app.lock("a", ttl=10, **options):
        await stage.clock.sleep(seconds)


async def run_for(stage: Stage, seconds: float, **options: object) -> None:
    await stage.app.with_lock("a", stage.clock.sleep, seconds, **options)


async def once_for(stage: Stage, seconds: float, **options: object) -> None:
    await stage.app.once("a", lambda: stage.clock.sleep(seconds), **options)


async def place_for(stage: Stage, seconds: float, **options: object) -> None:
    async with stage.app.semaphore("a", 3, **options):
        await stage.clock.sleep(seconds)


@pytest.mark.parametrize("held", [hold_for, run_for, once_for, place_for])
async def test_a_lock_held_for_longer_than_expected_is_reported_once(
    virtual: Stage, caplog, held: Callable[..., Awaitable[None]]
):
    task = asyncio.create_task(held(virtual, 1000.0, expected=20))
    await virtual.clock.advance(29.9)
    assert names(virtual.seen)[0].startswith("LockAcquired")
    assert len(virtual.seen) == 1
    await virtual.clock.advance(0.2)
    acquired, alarm = virtual.seen
    assert isinstance(acquired, LockAcquired)
    assert isinstance(alarm, LockHeldLong)
    assert alarm == LockHeldLong(acquired.name, acquired.fence, pytest.approx(30), 20)
    await virtual.clock.advance(1000)
    await task
    assert [type(event) for event in virtual.seen[2:]] == [LockReleased]
    [record] = caplog.records
    assert (record.levelname, record.lock, record.fence) == (
        "WARNING",
        alarm.name,
        acquired.fence,
    )
    assert "is held for 30 s; expected is 20 s" in record.getMessage()


async def test_each_hold_has_an_alarm_of_its_own(virtual: Stage):
    for _ in range(2):
        task = asyncio.create_task(hold_for(virtual, 100, expected="10s"))
        await virtual.clock.advance(101)
        await task
    kinds = ["LockAcquired a", "LockHeldLong a", "LockReleased a"]
    assert names(virtual.seen) == kinds * 2


@pytest.mark.parametrize("seconds", [14.9, 5.0])
async def test_a_hold_that_ends_in_time_raises_no_alarm(virtual: Stage, seconds: float):
    task = asyncio.create_task(hold_for(virtual, seconds, expected=10))
    await virtual.clock.advance(100)
    await task
    assert names(virtual.seen) == ["LockAcquired a", "LockReleased a"]


async def test_a_lost_hold_raises_no_alarm(virtual: Stage):
    hold = await virtual.app.lock("a", ttl=10, expected=20).acquire()
    await virtual.clock.advance(25)
    await virtual.take_away(hold)
    await virtual.clock.advance(100)
    assert names(virtual.seen) == ["LockAcquired a", "HoldLost a"]
    await hold.release()


@pytest.mark.filterwarnings("ignore::ResourceWarning")
async def test_a_dropped_hold_raises_no_alarm(virtual: Stage):
    await virtual.app.lock("a", expected=20).acquire()
    gc.collect()
    await virtual.clock.advance(100)
    assert names(virtual.seen) == ["LockAcquired a"]


async def test_without_expected_there_is_no_alarm(virtual: Stage):
    task = asyncio.create_task(hold_for(virtual, 1000))
    await virtual.clock.advance(1001)
    await task
    assert names(virtual.seen) == ["LockAcquired a", "LockReleased a"]


async def test_an_alarm_delays_no_renewal_and_no_loss(virtual: Stage):
    virtual.faults.delay("renew", 1000)
    hold = await virtual.app.lock("a", ttl=10, expected=4, on_lost="raise").acquire()
    await virtual.clock.advance(9.95)
    assert names(virtual.seen) == ["LockAcquired a", "LockHeldLong a", "HoldLost a"]
    virtual.faults.heal()
    await hold.release()


async def test_an_alarm_is_raised_while_the_event_loop_of_the_holder_is_blocked(real_stage: Stage):
    async with real_stage.app.lock("a", expected=0.02):
        wait_until(lambda: len(real_stage.seen) > 1, 20)
    assert names(real_stage.seen) == ["LockAcquired a", "LockHeldLong a", "LockReleased a"]


async def test_an_early_alarm_wakes_a_keeper_that_waits_for_later(virtual: Stage):
    async with virtual.app.lock("other", ttl=600):
        await virtual.clock.advance(5)  # from now on it waits for the renewal of this one
        async with virtual.app.lock("a", ttl=600, expected=2):
            await virtual.clock.advance(3.1)
            assert names(virtual.seen)[2:] == ["LockHeldLong a"]


async def test_a_hold_that_is_lost_in_a_pause_raises_no_alarm(virtual: Stage):
    """The keeper finds both at once: it is lost, and it was held for too long."""
    hold = await virtual.app.lock("a", ttl=10, expected=4, on_lost="ignore").acquire()
    await virtual.clock.advance(1)
    virtual.clock.shift(20)
    await virtual.clock.advance(1)
    assert names(virtual.seen) == ["LockAcquired a", "HoldLost a"]
    await hold.release()


@pytest.mark.parametrize("expected", [0, -1, "soon", True])
async def test_an_impossible_expectation_is_refused(virtual: Stage, expected: object):
    with pytest.raises(ConfigError, match="expected"):
        virtual.app.lock("a", expected=expected)  # type: ignore[arg-type]


# Threads.


def test_threads_send_the_same_events(tmp_path: Path):
    url = f"sqlite:///{tmp_path / 'tenure.db'}"
    seen: list[Event] = []
    with blocking.Tenure(url) as app, blocking.Tenure(url) as rival:
        app.on_event(seen.append)
        with app.lock("a", expected=0.02) as hold:
            wait_until(lambda: len(seen) == 2, 20)
        assert not hold.release()
        with rival.lock("a"):
            assert app.lock("a").try_acquire() is None
            with pytest.raises(AcquireTimeout):
                app.lock("a").acquire(wait=A_MOMENT)
            assert app.with_lock("a", list, ttl=30).skipped
        assert app.with_lock("a", list, ttl=30)
        assert app.once("b", list)
        for term in app.election("c").terms():
            assert term.is_held
            break
        gone = app.lock("a").acquire()
        with closing(sqlite3.connect(tmp_path / "tenure.db", isolation_level=None)) as connection:
            connection.execute("DELETE FROM tenure_lease")
            connection.execute("BEGIN")
            with pytest.raises(LeaseLost):
                gone.guard(connection)
            connection.execute("ROLLBACK")
        assert not gone.release()
    assert names(seen) == [
        *("LockAcquired a", "LockHeldLong a", "LockReleased a"),
        *("LockRefused a", "LockTimedOut a", "LockRefused a"),
        *("LockAcquired a", "LockReleased a"),
        *("LockAcquired once:b", "LockReleased once:b"),
        *("LockAcquired election:c", "LockReleased election:c"),
        *("LockAcquired a", "HoldLost a"),
    ]


def test_a_thread_interrupted_while_it_waits_sends_nothing(tmp_path: Path):
    seen: list[Event] = []
    with blocking.Tenure(f"sqlite:///{tmp_path / 'tenure.db'}") as app:
        app.on_event(seen.append)
        ended = threading.Event()

        def wait() -> None:
            with suppress(Exception):
                app.lock("a").acquire()
            ended.set()

        with app.lock("a"):
            threading.Thread(target=wait, daemon=True).start()
            wait_until(lambda: any(lease.waiting for lease in app.locks()), 20)
            app.close()  # ends the wait
        assert ended.wait(20)
    assert [kind for kind in names(seen) if kind != "LockReleased a"] == ["LockAcquired a"]


# What events cost, and what the log says.


async def test_without_a_subscriber_no_event_is_made(virtual: Stage, monkeypatch):
    def refuse(*_: object) -> None:
        pytest.fail("an event was made that has no subscriber")

    monkeypatch.setattr(tenure.locks.hold, "LockAcquired", refuse)
    monkeypatch.setattr(tenure.locks.hold, "LockReleased", refuse)
    monkeypatch.setattr(tenure.runtime.leases.acquirer, "LockRefused", refuse)
    monkeypatch.setattr(tenure.runtime.leases.acquirer, "LockTimedOut", refuse)
    assert not logging.getLogger("tenure").isEnabledFor(logging.DEBUG)
    rival = virtual.rival  # which has no subscriber
    async with rival.lock("a"):
        assert await rival.lock("a").try_acquire() is None
        waiting = asyncio.create_task(rival.with_lock("a", list, wait=1))
        await virtual.clock.advance(2)
        assert (await waiting).skipped
    assert not virtual.seen


async def test_a_take_over_is_logged_without_a_subscriber(virtual: Stage, caplog):
    caplog.set_level(logging.INFO, "tenure")
    dead = await virtual.app.lock("a", ttl=5).acquire()
    virtual.clock.shift(5)
    async with virtual.rival.lock("a") as hold:
        await dead.release()
    [record] = [record for record in caplog.records if record.levelno == logging.INFO]
    assert (record.tenure_event, record.lock, record.fence) == ("LockTakenOver", "a", hold.fence)


async def test_lines_of_the_log_are_these_events(virtual: Stage, caplog):
    caplog.set_level(logging.DEBUG, "tenure")
    async with virtual.rival.lock("a") as hold:
        assert await virtual.rival.lock("a").try_acquire() is None
        waiting = asyncio.create_task(virtual.rival.with_lock("a", list, wait=1))
        await virtual.clock.advance(2)
        assert (await waiting).skipped
    records = [record for record in caplog.records if record.name == "tenure"]
    assert {record.levelname for record in records} == {"DEBUG"}
    assert [
        (record.tenure_event, record.lock, record.fence, record.getMessage()) for record in records
    ] == [
        ("LockAcquired", "a", hold.fence, f"lock 'a' acquired after 0 s, fence {hold.fence}"),
        ("LockRefused", "a", None, "lock 'a' refused: others hold it"),
        ("LockTimedOut", "a", None, "lock 'a' timed out after 1 s: others hold it"),
        ("LockReleased", "a", hold.fence, f"lock 'a' released after 2 s, fence {hold.fence}"),
    ]
