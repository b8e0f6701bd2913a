"""Handlers past their time-outs, by the injected clock and in real time, and their threads."""

import asyncio
import threading
import time

import pytest

from tenure import (
    Backoff,
    Tenure,
    current_job,
)
from tenure.observe import HandlerStuck, JobFailed
from tests.jobs.replicas import finished, of_kind
from tests.rig.wait import wait_until_async

ONCE = Backoff(max_attempts=1)


async def test_a_time_out_uses_the_injected_clock(app, clock):
    @app.task(timeout=30, retry=None)
    async def slow(seconds: float) -> float:
        await clock.sleep(seconds)
        return seconds

    async with app.worker():
        jobs = [await slow.enqueue(29), await slow.enqueue(31)]
        await clock.advance(32)
        states = [(await job.refresh()).state for job in jobs]
    assert states == ["succeeded", "failed"]
    assert jobs[1].error == "TimeoutError: it ran longer than its time-out of 30 s"


async def test_a_thread_sees_its_time_out_by_the_injected_clock(app, clock, seen):
    is_asked = threading.Event()

    @app.task(timeout=30, retry=None)
    def slow() -> None:
        while not current_job().cancelled:
            is_asked.set()
        time.sleep(0.05)

    async with app.worker():
        job = await slow.enqueue()
        await clock.advance(29)
        await wait_until_async(is_asked.is_set)
        assert (await job.refresh()).state == "running"
        await clock.advance(5)
        await finished(job, clock)
    assert job.error == "TimeoutError: it ran longer than its time-out of 30 s"


async def test_a_thread_that_came_back_in_time_is_not_reported_later(app, clock, seen):
    @app.task(timeout=30, retry=None)
    def quick() -> None:
        pass

    async with app.worker():
        job = await finished(await quick.enqueue(), clock)
        await clock.advance(600)
    assert job.state == "succeeded"
    assert not of_kind(seen, HandlerStuck)


# The same in real time.


@pytest.fixture
async def real(store):
    async with Tenure("memory://") as app:
        yield app


async def test_an_async_handler_past_its_time_out_is_cancelled_and_has_failed(real):
    unwound = []

    @real.task(timeout=0.05, retry=None)
    async def slow() -> None:
        try:
            await asyncio.sleep(30)
        finally:
            unwound.append(True)

    async with real.worker():
        job = await slow.enqueue()
        await job.wait(5)
    assert unwound
    assert (job.state, job.reason, job.failures) == ("failed", "timeout", 1)
    assert job.error == "TimeoutError: it ran longer than its time-out of 0.05 s"


async def test_a_timeout_error_that_the_handler_raises_is_an_ordinary_failure(real):
    @real.task(timeout=30, retry=None)
    async def impatient() -> None:
        async with asyncio.timeout(0):
            await asyncio.sleep(1)

    async with real.worker():
        job = await (await impatient.enqueue()).wait(5)
    assert job.error == "TimeoutError: "


async def test_a_timed_out_attempt_is_retried(real):
    tries = []

    @real.task(retry=Backoff(max_attempts=2, base=0))
    async def slow() -> str:
        tries.append(current_job().attempt)
        if len(tries) == 1:
            await asyncio.sleep(30)
        return "in time"

    async with real.worker():
        job = await slow.using(timeout="50ms").enqueue()
        assert await job.result(5) == "in time"
    assert tries == [1, 2]


async def test_a_thread_sees_its_time_out(real):
    @real.task(timeout=0.05, retry=None)
    def slow() -> None:
        until = time.monotonic() + 10
        while time.monotonic() < until:
            current_job().check()
            time.sleep(0.005)

    async with real.worker():
        job = await (await slow.enqueue()).wait(5)
    assert job.error == "TimeoutError: it ran longer than its time-out of 0.05 s"


async def test_a_thread_that_ignores_its_time_out_is_reported_and_its_result_refused(
    real, monkeypatch
):
    monkeypatch.setattr("tenure.runtime.attempts.attempt.STUCK_AFTER", 0.05)
    seen: list = []
    real.on_event(seen.append)
    go_on = threading.Event()

    @real.task(timeout=0.05, retry=None)
    def stubborn() -> str:
        go_on.wait(10)
        return "too late"

    async with real.worker():
        job = await stubborn.enqueue()
        await wait_until_async(lambda: of_kind(seen, HandlerStuck))
        assert (await job.refresh()).state == "running"
        go_on.set()
        await job.wait(5)
    assert of_kind(seen, HandlerStuck) == [HandlerStuck("stubborn", job.id, "timed out")]
    [failed] = of_kind(seen, JobFailed)
    assert (failed.job, failed.attempt, failed.cause) == (job.id, 1, "timeout")
    assert (job.state, job.failures) == ("failed", 1)


async def test_threads_keep_to_the_concurrency_and_do_not_block_the_loop(real):
    inside: list[int] = []
    most = 0

    @real.task
    def slow() -> None:
        nonlocal most
        inside.append(1)
        most = max(most, len(inside))
        time.sleep(0.02)
        inside.pop()

    async with real.worker(concurrency=3):
        jobs = await real.enqueue_many(slow.request() for _ in range(9))
        for job in jobs:
            await job.wait(10)
    assert most == 3
