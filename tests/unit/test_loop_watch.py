"""An event loop that does not turn is reported, once each time."""

import asyncio
from collections.abc import Callable
from typing import Any

from tenure.observe import Event, LoopBlocked
from tenure.observe.events import Events
from tenure.runtime.attempts.expected_times import ExpectedTimes
from tenure.runtime.work.loop_watch import LoopWatch
from tenure.testing import ManualClock


class Loop:
    """Stands for the loop that is watched; it turns when the test says so."""

    def __init__(self) -> None:
        self._calls: list[Callable[[], None]] = []

    def call_soon_threadsafe(self, call: Callable[[], None]) -> None:
        self._calls.append(call)

    def turn(self) -> None:
        while self._calls:
            self._calls.pop()()


class Idle:
    """Stands for the slots of a worker that runs nothing."""

    records: tuple[()] = ()

    def __init__(self, clock: ManualClock) -> None:
        self.expected_times = ExpectedTimes(clock, Events())

    def job_of(self, _task: object) -> None:
        return None


async def test_each_time_that_a_loop_is_blocked_is_reported_once(clock: ManualClock):
    blocks: list[Event] = []
    events = Events()
    idle: Any = Idle(clock)
    events.subscribe(blocks.append)
    watch = LoopWatch(clock, events, idle, ttl=10.0)
    loop: Any = Loop()
    watch._loop = loop
    watching = asyncio.create_task(watch.run())
    try:
        for times in range(3):
            for _ in range(10):
                await clock.advance(0.5)
                loop.turn()
            assert len(blocks) == times
            await clock.advance(60)
            loop.turn()
            assert len(blocks) == times + 1
    finally:
        watching.cancel()
    assert all(isinstance(event, LoopBlocked) and event.seconds < 4 for event in blocks)


async def test_the_time_of_a_blocked_loop_is_reported_in_tenths_of_a_second(clock: ManualClock):
    blocks: list[Event] = []
    events = Events()
    idle: Any = Idle(clock)
    events.subscribe(blocks.append)
    watch = LoopWatch(clock, events, idle, ttl=10.0)
    watch._probed_at = clock.boot()
    watch._report_block(clock.boot() + 3.26)
    [event] = blocks
    assert isinstance(event, LoopBlocked)
    assert event.seconds == 3.3
