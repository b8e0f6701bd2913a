"""Contexts around attempts: for error reports, traces, log fields."""

from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar

import pytest

from tenure import Backoff, current_job
from tests.jobs.replicas import finished

ONCE = Backoff(max_attempts=1)
word: ContextVar[str] = ContextVar("word", default="none")


async def test_contexts_around_an_attempt_are_entered_in_order_and_left_in_reverse(app, clock):
    steps = []

    @app.around_attempt
    @asynccontextmanager
    async def outer(job):
        steps.append(f"outer in {job.task} {job.attempt}")
        yield
        steps.append("outer out")

    @app.around_attempt
    @contextmanager
    def inner(job):
        assert job is current_job()
        steps.append("inner in")
        yield
        steps.append("inner out")

    @app.task
    async def work() -> str:
        steps.append("work")
        return "done"

    async with app.worker():
        job = await finished(await work.enqueue(), clock)
    assert await job.result(0) == "done"
    assert steps == ["outer in work 1", "inner in", "work", "inner out", "outer out"]


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_a_context_around_an_attempt_sees_the_error_and_sets_context_variables(
    app, clock, kind
):
    seen = []

    @app.around_attempt
    @asynccontextmanager
    async def around(job):
        word.set(job.task)
        try:
            yield
        except ValueError as error:
            seen.append(str(error))
            raise

    if kind == "async":

        @app.task(retry=ONCE)
        async def work() -> None:
            raise ValueError(word.get())

    else:

        @app.task(retry=ONCE)
        def work() -> None:
            raise ValueError(word.get())

    async with app.worker():
        job = await finished(await work.enqueue(), clock)
    assert job.error == "ValueError: work"
    assert seen == ["work"]


async def test_a_context_that_fails_fails_the_attempt_and_the_handler_never_runs(app, clock):
    runs = []

    @app.around_attempt
    @contextmanager
    def around(job):
        if job.attempt == 1:
            raise OSError("no tracer")
        yield

    @app.task(retry=Backoff(max_attempts=2, base=0.001))
    async def work() -> None:
        runs.append(1)

    async with app.worker():
        job = await work.enqueue()
        await clock.advance(1)
        await finished(job, clock)
    assert (job.state, job.failures, runs) == ("succeeded", 1, [1])
    assert job.history[0].error == "OSError: no tracer"


async def test_an_error_that_a_context_swallows_is_a_success(app, clock):
    @app.around_attempt
    @contextmanager
    def around(job):
        with suppress(ValueError):
            yield

    @app.task(retry=ONCE)
    async def work() -> None:
        raise ValueError("not so bad")

    async with app.worker():
        job = await finished(await work.enqueue(), clock)
    assert job.state == "succeeded"


async def test_a_cancelled_handler_leaves_the_context(app, clock):
    left = []

    @app.around_attempt
    @contextmanager
    def around(job):
        try:
            yield
        finally:
            left.append(job.stop_reason)

    @app.task
    async def work() -> None:
        await clock.sleep(100)

    async with app.worker():
        job = await work.enqueue()
        await clock.advance(1)
        await job.cancel()
        await clock.advance(5)
        await finished(job, clock)
    assert (job.state, left) == ("cancelled", ["cancelled"])


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_the_time_out_includes_the_contexts_around_an_attempt(app, clock, kind):
    ran = []

    @app.around_attempt
    @asynccontextmanager
    async def slow(job):
        await clock.sleep(6)
        yield

    def work() -> None:
        ran.append(1)

    async def work_async() -> None:
        ran.append(1)

    task = app.task(timeout=1, retry=ONCE)(work_async if kind == "async" else work)
    async with app.worker():
        job = await task.enqueue()
        await clock.advance(7)
        await finished(job, clock)
    assert (job.state, job.reason, job.losses, ran) == ("failed", "timeout", 0, [])
