"""How handlers run and end: values, errors, time-outs, threads, and their context."""

import asyncio
import threading
from contextvars import ContextVar
from datetime import timedelta

import pytest

from tenure import (
    Backoff,
    ConfigError,
    JobFailed,
    ResultUnavailable,
    Tenure,
    current_job,
)
from tests.jobs.replicas import finished

ONCE = Backoff(max_attempts=1)


class StopEverything(BaseException):
    """A BaseException, like those that some frameworks use to stop their tasks."""


@pytest.mark.parametrize("kind", ["async", "sync"])
class TestBothKinds:
    """Behaviour that is the same for async and plain handlers."""

    def declare(self, app: Tenure, kind: str, body, **options):
        """Declare a task whose handler of that kind calls `body`."""

        async def asynchronous(n: int = 0):
            return body(n)

        def synchronous(n: int = 0):
            return body(n)

        return app.task(name="t", **options)(asynchronous if kind == "async" else synchronous)

    async def test_a_handler_returns_a_result(self, app, clock, kind):
        task = self.declare(app, kind, lambda n: n + 1)
        async with app.worker():
            job = await finished(await task.enqueue(1), clock)
        assert await job.result() == 2
        [line] = job.history
        assert (line.attempt, line.outcome, line.error) == (1, "succeeded", "")

    @pytest.mark.parametrize(
        "error",
        [
            ValueError("no luck"),
            SystemExit(3),
            StopEverything("x"),
            GeneratorExit("x"),
            StopIteration("x"),
        ],
        ids=repr,
    )
    async def test_any_exception_fails_the_job_and_not_the_worker(self, app, clock, kind, error):
        def fail(n):
            if n == 0:
                raise error
            return n

        task = self.declare(app, kind, fail, retry=None)
        async with app.worker():
            job = await finished(await task.enqueue(), clock)
            with pytest.raises(JobFailed) as caught:
                await job.result()
            assert (caught.value.job, caught.value.reason) == (job.id, "error")
            assert type(error).__name__ in job.error
            assert "in fail" in job.trace
            assert (job.failures, job.losses, job.attempt) == (1, 0, 1)
            after = await finished(await task.enqueue(5), clock)
            assert await after.result() == 5

    async def test_errors_without_a_usable_text_still_fail_the_job(self, app, clock, kind):
        class Unprintable(Exception):
            def __str__(self) -> str:
                raise RuntimeError("not even this")

        errors = [Unprintable(), OSError("no file \udcff"), ValueError("x" * 1_000_000)]

        def fail(n):
            raise errors[n]

        task = self.declare(app, kind, fail, retry=None)
        async with app.worker():
            jobs = [await finished(await task.enqueue(n), clock) for n in range(3)]
        assert [job.state for job in jobs] == ["failed"] * 3
        assert "Unprintable" in jobs[0].error
        assert "\\udcff" in jobs[1].error
        assert len(jobs[2].record.error) < 20_000

    async def test_a_result_that_cannot_be_encoded_fails_no_job(self, app, clock, kind):
        class Model:
            def model_dump(self, mode):
                raise KeyError(mode)

        loop: list = []
        loop.append(loop)
        results = [object(), loop, "\udcff", Model()]
        runs = []

        def give(n):
            runs.append(n)
            return results[n]

        task = self.declare(app, kind, give)
        async with app.worker():
            jobs = [await finished(await task.enqueue(n), clock) for n in range(4)]
        # The handler has returned: its effects have happened, and must not happen again.
        assert runs == [0, 1, 2, 3]
        assert [(job.state, job.error, job.attempt) for job in jobs] == [("succeeded", None, 1)] * 4
        for job in jobs:
            with pytest.raises(ResultUnavailable) as caught:
                await job.result(0)
            assert (caught.value.job, caught.value.value) == (job.id, None)

    async def test_a_result_above_the_limit_is_not_stored(self, make, clock, kind):
        app = await make(result_limit=2000)
        task = self.declare(app, kind, lambda n: "x" * n)
        async with app.worker():
            fits = await finished(await task.enqueue(1998), clock)
            large = await finished(await task.enqueue(1999), clock)
        assert (fits.state, large.state) == ("succeeded", "succeeded")
        assert await fits.result(0) == "x" * 1998
        with pytest.raises(ResultUnavailable, match="2,001 bytes, and result_limit allows 2,000"):
            await large.result(0)
        assert len(large.record.result) < 1000

    async def test_the_context_describes_the_running_job(self, app, clock, kind):
        seen = []

        def look(n):
            job = current_job()
            seen.append((job.id, job.task, job.queue, job.tags, job.attempt, job.deadline))
            assert not job.cancelled
            job.check()
            assert job.fence > 0
            assert (job.failures, job.losses) == (0, 0)

        task = self.declare(app, kind, look)
        started = await task.using(tags=["a"], timeout=60).enqueue()
        async with app.worker():
            job = await finished(started, clock)
        assert job.state == "succeeded", job.error
        assert seen == [(job.id, "t", "default", ("a",), 1, job.started + timedelta(seconds=60))]

    async def test_a_handler_that_cancels_itself_has_failed(self, app, clock, kind):
        def give_up(n):
            raise asyncio.CancelledError

        task = self.declare(app, kind, give_up, retry=None)
        async with app.worker():
            job = await finished(await task.enqueue(), clock)
        assert (job.state, job.reason) == ("failed", "error")
        assert "cancelled itself" in job.error


async def test_arguments_that_an_older_task_cannot_read_fail_the_job(app, make, clock):
    newer = await make()

    @newer.task(name="t")
    async def with_two(a: int, b: int) -> None: ...

    @app.task(name="t")
    async def with_one(a: int) -> None: ...

    job = await with_two.enqueue(1, 2)
    async with app.worker():
        await finished(job, clock)
    assert (job.state, job.reason, job.attempt) == ("failed", "arguments", 1)
    assert "do not fit task 't'" in job.error
    assert job.trace == ""


def test_current_job_outside_of_a_job_raises_an_error():
    with pytest.raises(ConfigError, match="no job runs here"):
        current_job()


async def test_context_variables_reach_threads(app, clock):
    word: ContextVar[str] = ContextVar("word", default="none")
    word.set("hello")

    @app.task
    def look() -> str:
        return word.get()

    async with app.worker():
        job = await finished(await look.enqueue(), clock)
    assert await job.result() == "hello"


def test_a_keyboard_interrupt_of_a_handlers_thread_fails_the_job():
    """It is not from Ctrl-C: only the main thread gets that."""
    app = Tenure("memory://")

    @app.task(retry=None)
    def interrupt() -> None:
        raise KeyboardInterrupt("mine")

    async def work() -> str | None:
        async with app, app.worker():
            job = await interrupt.enqueue()
            await job.wait(20)
            return job.error

    ended: list[object] = []

    def run() -> None:
        try:
            ended.append(asyncio.run(work()))
        except BaseException as error:  # noqa: BLE001 - it would end pytest
            ended.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert ended == ["KeyboardInterrupt: mine"]
