import asyncio
import os
import re
import time

import pytest

from tenure.core.clock import SystemClock
from tenure.testing import ManualClock

MOMENT = 0.01


@pytest.fixture
def manual() -> ManualClock:
    return ManualClock()


# The clocks of the machine.


def test_wall_time_is_in_microseconds_since_1970():
    before = time.time_ns() // 1000
    wall = SystemClock().wall()
    assert before <= wall <= time.time_ns() // 1000
    assert type(wall) is int


def test_boot_time_never_falls():
    clock = SystemClock()
    instants = [clock.boot() for _ in range(1000)]
    assert instants == sorted(instants)


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="only Linux has this clock")
def test_boot_time_counts_suspend():
    assert SystemClock().boot() == pytest.approx(time.clock_gettime(time.CLOCK_BOOTTIME), abs=1)


@pytest.mark.skipif(not os.path.exists("/proc"), reason="only Linux names its starts")  # noqa: PTH110
def test_a_start_of_the_machine_has_a_name():
    assert SystemClock().boot_id == SystemClock().boot_id != ""


def test_the_store_uses_its_own_clock_in_production():
    clock = SystemClock()
    assert clock.for_server() is None
    assert not clock.virtual


def test_tokens_are_128_random_bits():
    tokens = {SystemClock().token() for _ in range(100)}
    assert len(tokens) == 100
    assert all(re.fullmatch("[0-9a-f]{32}", token) for token in tokens)


def test_random_numbers_are_below_one():
    numbers = [SystemClock().random() for _ in range(100)]
    assert all(0 <= number < 1 for number in numbers)
    assert len(set(numbers)) > 90


async def test_sleep_takes_its_time():
    clock = SystemClock()
    before = time.monotonic()
    await clock.sleep(MOMENT)
    assert time.monotonic() - before >= MOMENT * 0.9


async def test_a_wait_ends_with_the_event_or_with_its_time():
    clock = SystemClock()
    event = asyncio.Event()
    assert await clock.wait(event, MOMENT) is False
    assert await clock.wait(event, 0) is False
    waits = [asyncio.create_task(clock.wait(event, timeout)) for timeout in (20, None)]
    await asyncio.sleep(0)
    event.set()
    assert await asyncio.gather(*waits) == [True, True]
    assert await clock.wait(event, 0) is True


async def test_a_timeout_of_the_caller_is_not_taken_for_the_end_of_the_wait():
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(MOMENT):
            await SystemClock().wait(asyncio.Event(), 20)


# The clock moved by hand.


def test_manual_time_stands_still(manual: ManualClock):
    assert manual.wall() == manual.wall() == manual.for_server()
    assert manual.boot() == manual.boot()
    assert manual.virtual


async def test_advancing_moves_both_clocks(manual: ManualClock):
    wall, boot = manual.wall(), manual.boot()
    await manual.advance(1.5)
    assert manual.wall() - wall == 1_500_000
    assert manual.boot() - boot == pytest.approx(1.5)


def test_a_shift_moves_both_clocks_without_running_anybody(manual: ManualClock):
    wall, boot = manual.wall(), manual.boot()
    manual.shift(0.000_001)
    assert manual.wall() - wall == 1
    assert manual.boot() > boot


@pytest.mark.parametrize("seconds", [-3600, 3600])
def test_a_step_moves_only_the_wall_clock(manual: ManualClock, seconds: float):
    wall, boot = manual.wall(), manual.boot()
    manual.step(seconds)
    assert manual.wall() - wall == seconds * 1_000_000
    assert manual.boot() == boot


async def test_a_manual_sleep_ends_at_its_instant(manual: ManualClock):
    sleep = asyncio.create_task(manual.sleep(10))
    await manual.advance(9.999)
    assert not sleep.done()
    await manual.advance(0.001)
    assert sleep.done()


async def test_advancing_stops_at_every_instant_somebody_sleeps_until(manual: ManualClock):
    start = manual.boot()
    woken: list[tuple[str, float]] = []

    async def sleeper(name: str, *pauses: float) -> None:
        for pause in pauses:
            await manual.sleep(pause)
            woken.append((name, manual.boot() - start))

    tasks = [asyncio.create_task(sleeper("a", 3, 3, 3)), asyncio.create_task(sleeper("b", 4, 1))]
    await manual.advance(100)
    await asyncio.gather(*tasks)
    assert woken == [("a", 3), ("b", 4), ("b", 5), ("a", 6), ("a", 9)]
    assert manual.boot() - start == 100


async def test_sleepers_behind_a_shift_wake_with_the_next_advance(manual: ManualClock):
    sleep = asyncio.create_task(manual.sleep(10))
    await asyncio.sleep(0)
    manual.shift(60)
    await asyncio.sleep(0)
    assert not sleep.done()
    await manual.advance(0)
    assert sleep.done()


async def test_a_manual_wait_ends_with_the_event_or_with_its_time(manual: ManualClock):
    event = asyncio.Event()
    assert await manual.wait(event, 0) is False
    waits = [asyncio.create_task(manual.wait(event, timeout)) for timeout in (1, 20, None)]
    await manual.advance(1)
    assert [wait.done() for wait in waits] == [True, False, False]
    event.set()
    assert await asyncio.gather(*waits) == [False, True, True]
    assert await manual.wait(event, 0) is True


async def test_a_cancelled_manual_wait_leaves_nothing_behind(manual: ManualClock):
    wait = asyncio.create_task(manual.wait(asyncio.Event(), 10))
    await asyncio.sleep(0)
    wait.cancel()
    with pytest.raises(asyncio.CancelledError):
        await wait
    assert not manual._sleepers
    await manual.advance(20)


def test_one_seed_decides_all_randomness():
    draws = [
        [clock.random(), clock.token()] for clock in (ManualClock(seed=7), ManualClock(seed=7))
    ]
    assert draws[0] == draws[1]
    assert ManualClock(seed=8).token() != draws[0][1]
    assert re.fullmatch("[0-9a-f]{32}", ManualClock().token())
