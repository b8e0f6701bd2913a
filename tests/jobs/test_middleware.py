"""Middleware around attempts: for connections, error reports, traces, log fields."""

import re
import sys
import threading
from collections.abc import Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from types import ModuleType

import pytest
from msgspec.structs import replace

from tenure import Backoff, JobContext, Tenure, current_job
from tests.jobs.replicas import finished
from tests.rig.wait import wait_until_async

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


# Plain functions, which run in threads.


def name_of_thread() -> str:
    return "loop" if threading.current_thread() is threading.main_thread() else "thread"


@pytest.mark.parametrize("kind", ["async", "thread", "timer"])
async def test_a_plain_context_is_entered_where_the_handler_runs(app: Tenure, clock, kind):
    local = threading.local()
    steps: list[str] = []

    @app.around_attempt
    @contextmanager
    def first_plain(job: JobContext) -> Iterator[None]:
        local.session = f"session of {job.task}"
        steps.append(f"plain in: {name_of_thread()}, {word.get()}")
        yield
        steps.append(f"plain out: {name_of_thread()}, {local.session}")

    @app.around_attempt
    @asynccontextmanager
    async def then_async(job: JobContext):
        token = word.set(job.task)
        steps.append(f"async in: {name_of_thread()}")
        yield
        steps.append(f"async out: {name_of_thread()}")
        word.reset(token)

    @app.around_attempt
    @contextmanager
    def last_plain(job: JobContext) -> Iterator[None]:
        token = word.set(f"{word.get()}!")
        steps.append("inner in")
        yield
        steps.append("inner out")
        word.reset(token)

    def work() -> str:
        return f"{local.session} {word.get()}"

    async def work_on_loop() -> str:
        return work()

    if kind == "timer":
        app.timer(every="1s", name="tick")(lambda: steps.append(work()))
        async with app.worker():
            await clock.advance(1.5)
            await wait_until_async(lambda: _advanced(clock, lambda: "async out: loop" in steps))
        assert steps[:7] == [
            "async in: loop",
            "plain in: thread, @tick",
            "inner in",
            "session of @tick @tick!",
            "inner out",
            "plain out: thread, session of @tick",
            "async out: loop",
        ]
        return
    task = app.task(name="work")(work if kind == "thread" else work_on_loop)
    async with app.worker():
        job = await finished(await task.enqueue(), clock)
    assert await job.result(0) == "session of work work!"
    if kind == "thread":
        assert steps == [
            "async in: loop",
            "plain in: thread, work",
            "inner in",
            "inner out",
            "plain out: thread, session of work",
            "async out: loop",
        ]
    else:
        assert steps == [
            "plain in: loop, none",
            "async in: loop",
            "inner in",
            "inner out",
            "async out: loop",
            "plain out: loop, session of work",
        ]


async def _advanced(clock, condition) -> bool:
    await clock.advance(0)
    return condition()


async def test_a_context_in_a_thread_sees_the_error_and_may_swallow_it(app: Tenure, clock):
    seen: list[str] = []

    @app.around_attempt
    @contextmanager
    def around(job: JobContext) -> Iterator[None]:
        try:
            yield
        except ValueError as error:
            seen.append(f"{error} in {name_of_thread()}")
            if str(error) != "swallowed":
                raise

    @app.task(retry=ONCE)
    def work(message: str) -> str | None:
        raise ValueError(message)

    async with app.worker():
        failed = await finished(await work.enqueue("raised"), clock)
        fine = await finished(await work.enqueue("swallowed"), clock)
    assert (failed.state, failed.error) == ("failed", "ValueError: raised")
    assert "runtime/attempts" not in failed.trace
    assert (fine.state, await fine.result(0)) == ("succeeded", None)
    assert seen == ["raised in thread", "swallowed in thread"]


async def test_a_context_in_a_thread_that_fails_fails_the_attempt(app: Tenure, clock):
    runs: list[int] = []

    @app.around_attempt
    @contextmanager
    def around(job: JobContext) -> Iterator[None]:
        if job.attempt == 1:
            raise OSError("no connection")
        yield
        if job.attempt == 2:
            raise OSError("no commit")

    @app.task(retry=Backoff(max_attempts=3, base=0.001))
    def work() -> None:
        runs.append(1)

    async with app.worker():
        job = await work.enqueue()
        await wait_until_async(lambda: _ended(job, clock))
    assert (job.state, job.failures, runs) == ("succeeded", 2, [1, 1])
    errors = [attempt.error for attempt in job.history]
    assert errors == ["OSError: no connection", "OSError: no commit", ""]


async def _ended(job, clock) -> bool:
    await clock.advance(1)
    return (await job.refresh()).is_finished


@pytest.mark.parametrize("reason", ["cancelled", "timed out"])
async def test_a_handler_that_was_stopped_in_its_context_is_never_called(
    app: Tenure, clock, reason
):
    begun, runs, left = threading.Event(), [], []

    @app.around_attempt
    @contextmanager
    def slow(job: JobContext) -> Iterator[None]:
        begun.set()
        while not job.cancelled:
            threading.Event().wait(0.001)
        try:
            yield
        finally:
            left.append(job.stop_reason)

    @app.task(retry=ONCE, timeout=5)
    def work() -> None:
        runs.append(1)

    async with app.worker():
        job = await work.enqueue()
        await wait_until_async(lambda: _advanced(clock, begun.is_set))
        if reason == "cancelled":
            await job.cancel()
        await clock.advance(5)
        await finished(job, clock)
    state = ("cancelled", "") if reason == "cancelled" else ("failed", "timeout")
    assert (job.state, job.reason) == state
    assert (runs, left) == ([], [reason])


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_a_context_sees_that_arguments_cannot_be_read(app: Tenure, clock, kind):
    seen: list[str] = []

    @app.around_attempt
    @contextmanager
    def around(job: JobContext) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            seen.append(f"{type(error).__name__} in {name_of_thread()}")
            raise

    def work(n: int) -> None: ...

    async def work_on_loop(n: int) -> None: ...

    task = app.task(name="work")(work if kind == "thread" else work_on_loop)
    request = task.request(1)
    broken = replace(request, draft=replace(request.draft, payload=b'[["x"],{}]'))
    async with app.worker():
        job = await finished(await app.enqueue(broken), clock)
    assert (job.state, job.reason) == ("failed", "arguments")
    assert seen == [f"Unreadable in {'thread' if kind == 'thread' else 'loop'}"]


async def test_each_attempt_has_the_session_of_its_own_thread(app: Tenure, clock):
    """Threads are used again, so what an attempt leaves behind would reach the next one."""
    local = threading.local()

    @app.around_attempt
    @contextmanager
    def session(job: JobContext) -> Iterator[None]:
        assert not hasattr(local, "session")
        local.session = job.id
        try:
            yield
        finally:
            del local.session

    @app.task
    def work() -> str:
        return local.session

    async with app.worker():
        jobs = [await work.enqueue() for _ in range(20)]
        for job in jobs:
            await finished(job, clock)
    assert [await job.result(0) for job in jobs] == [job.id for job in jobs]


# The examples of the guide that need other packages.

GUIDE = Path(__file__).parents[2] / "docs" / "jobs.md"


async def test_the_example_for_django_closes_the_connections_of_the_thread(
    app: Tenure, clock, monkeypatch
):
    local, calls = threading.local(), []

    def close_old_connections() -> None:
        calls.append(name_of_thread())
        local.connection = f"connection {len(calls)}"

    django, db = ModuleType("django"), ModuleType("django.db")
    db.close_old_connections, db.reset_queries = close_old_connections, lambda: None
    monkeypatch.setitem(sys.modules, "django", django)
    monkeypatch.setitem(sys.modules, "django.db", db)
    [code] = re.findall(
        r"```text\n(from contextlib.*?django\.db.*?)```", GUIDE.read_text(), re.DOTALL
    )
    exec(compile(code, GUIDE, "exec"), {"app": app, "JobContext": JobContext})

    @app.task
    def work() -> str:
        return local.connection

    async with app.worker():
        job = await finished(await work.enqueue(), clock)
    assert await job.result(0) == "connection 1"
    assert calls == ["thread", "thread"]
