"""`with_lock`: runs the function if the lock is free, and returns the outcome."""

import asyncio
import threading

import pytest

from tenure import ConfigError, LeaseLost, OnceFailed, StoreUnavailable
from tenure.app import engine_of
from tests.rig.interrupts import INTERRUPTS


async def test_with_lock_runs_the_function_and_returns_its_value(app):
    async def add(a: int, b: int) -> int:
        return a + b

    outcome = await app.with_lock("add", add, 1, 2, ttl=60)
    assert outcome
    assert outcome.ran
    assert outcome.value == 3
    assert await app.locks() == []


async def test_a_plain_function_runs_in_a_thread(app):
    outcome = await app.with_lock("thread", threading.current_thread, ttl=60)
    assert outcome.value is not threading.main_thread()


async def test_taken_is_a_skip_at_once(app, rival):
    ran = []

    async def work() -> None:
        ran.append(1)

    async with rival.lock("cron"):
        outcome = await app.with_lock("cron", work, ttl=60)
    assert not outcome
    assert outcome.skipped
    assert not outcome.ran
    assert ran == []


async def test_an_error_of_the_function_is_raised_and_the_lock_released(app):
    async def fail() -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError):
        await app.with_lock("fails", fail, ttl=60)
    assert await app.locks() == []


async def test_loss_is_an_outcome(app, clock):
    async def work() -> None:
        [lease] = await app.locks()
        await engine_of(app).store.leases.release([lease])
        await clock.sleep(1000)

    task = asyncio.create_task(app.with_lock("lost", work, ttl=10))
    await clock.advance(20)
    outcome = await task
    assert not outcome
    assert outcome.lost
    assert outcome.ran


async def test_the_loss_of_another_lock_inside_is_an_error(app, clock):
    async def work() -> None:
        async with app.lock("inner", ttl=10) as hold:
            await engine_of(app).store.leases.release([hold._kept.lease])
            await clock.sleep(1000)

    task = asyncio.create_task(app.with_lock("outer", work, ttl=10))
    await clock.advance(20)
    with pytest.raises(LeaseLost, match="inner"):
        await task


@pytest.mark.parametrize("choice", ["raise", "skip", "run"])
async def test_an_unreachable_store_fails_closed_unless_asked_otherwise(app, faults, clock, choice):
    async def work() -> str:
        return "done"

    faults.lose_request("acquire", times=1000)
    task = asyncio.create_task(app.with_lock("down", work, ttl=10, on_unavailable=choice))
    await clock.advance(5)
    if choice == "raise":
        with pytest.raises(StoreUnavailable):
            await task
        return
    outcome = await task
    assert not outcome
    assert (outcome.skipped, outcome.unlocked) == (choice == "skip", choice == "run")
    assert outcome.value == ("done" if choice == "run" else None)


async def test_an_unknown_choice_is_refused(app):
    with pytest.raises(ConfigError, match="on_unavailable"):
        await app.with_lock("x", print, ttl=10, on_unavailable="maybe")


@pytest.mark.parametrize("kind", INTERRUPTS)
@pytest.mark.parametrize("is_async", [True, False], ids=["async", "plain"])
async def test_an_interrupt_of_the_function_is_raised_and_the_lock_released(app, kind, is_async):
    error = INTERRUPTS[kind]()

    def fail() -> None:
        raise error

    async def fail_on_the_loop() -> None:
        raise error

    with pytest.raises(type(error)):
        await app.with_lock("fails", fail_on_the_loop if is_async else fail, ttl=60)
    assert await app.locks() == []


async def test_a_plain_function_that_raises_stop_iteration_hangs_no_caller(app):
    with pytest.raises(RuntimeError, match="StopIteration"):
        await app.with_lock("fails", lambda: next(iter(())), ttl=60)
    with pytest.raises(OnceFailed, match="StopIteration"):
        await app.once("fails", lambda: next(iter(())))
    assert await app.locks() == []
