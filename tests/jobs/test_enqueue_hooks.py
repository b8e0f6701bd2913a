"""Hooks of an enqueue: they see every job before it is stored, set headers, and may refuse it."""

import asyncio
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path

import pytest

from tenure import (
    ConfigError,
    Outgoing,
    OutgoingBatch,
    Tenure,
    UniqueMismatch,
    blocking,
    current_job,
)
from tests.jobs.replicas import finished

request_id: ContextVar[str] = ContextVar("request_id", default="none")


@pytest.fixture
def work(app: Tenure):
    @app.task(queue="mail")
    async def work(n: int = 0) -> int:
        return n

    return work


# A function for each job.


async def test_a_hook_sees_each_job_and_sets_its_headers(app: Tenure, work):
    seen: list[tuple[str, str, str, dict[str, str]]] = []

    @app.on_enqueue
    def note(job: Outgoing) -> None:
        seen.append((job.id, job.task, job.queue, {**job.headers}))
        job.headers["n"] = str(len(seen))

    single = await work.using(headers={"own": "1"}).enqueue()
    many = await app.enqueue_many([work.request(n) for n in range(2)])
    jobs = [single, *many]
    assert [job.headers for job in jobs] == [{"own": "1", "n": "1"}, {"n": "2"}, {"n": "3"}]
    assert [(await app.job(job.id)).headers for job in jobs] == [job.headers for job in jobs]
    assert seen == [
        (job.id, "work", "mail", headers)
        for job, headers in zip(jobs, [{"own": "1"}, {}, {}], strict=True)
    ]


async def test_hooks_are_called_in_the_order_of_their_declaration(app: Tenure, work):
    @app.on_enqueue
    def first(job: Outgoing) -> None:
        job.headers = {"by": "first"}

    @app.on_enqueue
    def second(job: Outgoing) -> None:
        job.headers["by"] += " and second"

    assert (await work.enqueue()).headers == {"by": "first and second"}


async def test_a_hook_changes_the_headers_of_one_job_and_of_no_request(app: Tenure, work):
    numbers = iter("12")

    @app.on_enqueue
    def number(job: Outgoing) -> None:
        assert "n" not in job.headers
        job.headers["n"] = next(numbers)

    request = work.request()
    assert (await app.enqueue(request)).headers == {"n": "1"}
    assert (await app.enqueue(request)).headers == {"n": "2"}


@pytest.mark.parametrize("many", [False, True])
async def test_a_hook_that_raises_refuses_all_jobs_of_its_call(app: Tenure, work, many: bool):
    @app.on_enqueue
    def refuse(job: Outgoing) -> None:
        if job.headers.get("tenant") != "acme":
            raise PermissionError("no tenant")

    of_acme = work.using(headers={"tenant": "acme"})
    with pytest.raises(PermissionError, match="no tenant"):
        if many:
            await app.enqueue_many([of_acme.request(1), work.request(2)], return_exceptions=True)
        else:
            await work.enqueue()
    assert await app.jobs() == []
    await of_acme.enqueue()
    assert len(await app.jobs()) == 1


@pytest.mark.parametrize("headers", [{"X": "1"}, {"x": 1}, {"x": "\0"}, {"x": "y" * 4096}, None])
async def test_headers_of_a_hook_are_checked_as_those_of_a_caller(app: Tenure, work, headers):
    @app.on_enqueue
    def spoil(job: Outgoing) -> None:
        job.headers = headers

    with pytest.raises(ConfigError, match="header"):
        await work.enqueue()
    assert await app.jobs() == []


async def test_a_hook_can_change_nothing_but_headers(app: Tenure, work):
    problems = []

    @app.on_enqueue
    def meddle(job: Outgoing) -> None:
        for name in ("queue", "task", "id", "payload"):
            with pytest.raises(AttributeError) as problem:
                setattr(job, name, "other")
            problems.append(problem)
        assert "secret" not in repr(job)
        assert repr(job) == f"<Outgoing job {job.id} of 'work' on queue 'mail'>"

    await work.using(headers={"x": "secret"}).enqueue()
    assert len(problems) == 4


async def test_a_clone_has_the_hooks_of_its_app(app: Tenure, work):
    @app.on_enqueue
    def mark(job: Outgoing) -> None:
        job.headers["by"] = "hook"

    async with app.clone() as other:
        assert (await other.enqueue(work.request())).headers == {"by": "hook"}


async def test_runs_of_timers_and_jobs_of_schedules_are_not_enqueued_by_a_caller(
    app: Tenure, work, clock
):
    seen: list[str] = []

    @app.on_enqueue
    def note(job: Outgoing) -> None:
        seen.append(job.task)

    @app.timer(every="1s")
    async def sweep() -> None: ...

    timer = app.schedule(work, every="1s")
    async with app.worker():
        await clock.advance(2.5)
        await timer.trigger()
    assert (await app.jobs(task="work"))[0].record.schedule == "work"
    assert await app.jobs(task="@sweep")
    assert seen == []


async def test_a_recipe_carries_headers_from_a_job_to_those_that_it_enqueues(app: Tenure, clock):
    @app.on_enqueue
    def inherit(job: Outgoing) -> None:
        with suppress(ConfigError):  # no job runs here
            for name, value in current_job().headers.items():
                job.headers.setdefault(name, value)

    @app.task
    async def child() -> dict[str, str]:
        return {**current_job().headers}

    @app.task
    async def parent() -> str:
        return (await child.using(headers={"a": "own"}).enqueue()).id

    @app.task
    def plain_parent() -> str:
        return asyncio.run(parent())

    for task in (parent, plain_parent):
        async with app.worker():
            job = await task.using(headers={"a": "1", "b": "2"}).enqueue()
            await finished(job, clock)
        assert (await app.job(await job.result(0))).headers == {"a": "own", "b": "2"}


# A context manager around each call.


async def test_middleware_surrounds_each_call_and_may_set_headers(app: Tenure, work):
    steps: list[str] = []

    @app.around_enqueue
    @asynccontextmanager
    async def outer(batch: OutgoingBatch):
        steps.append(f"outer in {len(batch.jobs)}")
        for number, job in enumerate(batch.jobs):
            job.headers["n"] = str(number)
        await asyncio.sleep(0)
        yield
        steps.append(f"outer out {len(await app.jobs(limit=1000))}")

    @app.around_enqueue
    @contextmanager
    def inner(batch: OutgoingBatch) -> Iterator[None]:
        steps.append(f"inner in {[job.headers['n'] for job in batch.jobs]}")
        yield
        steps.append("inner out")

    @app.on_enqueue
    def hook(job: Outgoing) -> None:
        steps.append("hook")

    assert (await work.enqueue()).headers == {"n": "0"}
    assert steps == ["hook", "outer in 1", "inner in ['0']", "inner out", "outer out 1"]
    steps.clear()
    jobs = await app.enqueue_many([work.request(n) for n in range(250)])
    assert [job.headers["n"] for job in jobs] == [str(n) for n in range(250)]
    assert steps[250:] == [
        "outer in 250",
        f"inner in {[str(n) for n in range(250)]}",
        "inner out",
        "outer out 251",
    ]


async def test_middleware_sees_the_error_of_the_call(app: Tenure, work, faults):
    seen: list[str] = []

    @app.around_enqueue
    @contextmanager
    def around(batch: OutgoingBatch) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            seen.append(type(error).__name__)
            raise

    await work.using(unique="k").enqueue(1)
    with pytest.raises(UniqueMismatch):
        await work.using(unique="k").enqueue(2)
    with pytest.raises(UniqueMismatch):
        await app.enqueue_many([work.using(unique="k").request(2)])
    assert seen == ["UniqueMismatch"] * 2


@pytest.mark.parametrize("where", ["in the store", "in the middleware", "in the headers"])
async def test_an_error_that_middleware_swallows_reaches_the_caller(app: Tenure, work, where):
    """There is no job to return."""

    @app.around_enqueue
    @contextmanager
    def swallow(batch: OutgoingBatch) -> Iterator[None]:
        with suppress(Exception):
            yield

    @app.around_enqueue
    @asynccontextmanager
    async def inner(batch: OutgoingBatch):
        if where == "in the middleware":
            raise ValueError("inner")
        if where == "in the headers":
            batch.jobs[0].headers["X"] = ""
        yield

    if where == "in the store":
        await work.using(unique="k").enqueue(1)
    kinds = {
        "in the store": UniqueMismatch,
        "in the middleware": ValueError,
        "in the headers": ConfigError,
    }
    with pytest.raises(kinds[where]):
        await work.using(unique="k").enqueue(2)


async def test_hooks_that_could_not_run_are_refused_where_they_are_declared(app: Tenure):
    async def waits(job: Outgoing) -> None: ...

    def yields(job: Outgoing) -> Iterator[None]:
        yield

    async def yields_later(job: Outgoing):
        yield

    for wrong in (waits, yields, yields_later, None, "hook"):
        for declare in (app.on_enqueue, app.around_enqueue, app.around_attempt):
            with pytest.raises(ConfigError, match=f"@app.{declare.__name__} "):
                declare(wrong)
    with pytest.raises(ConfigError, match="put @contextmanager above"):
        app.around_attempt(yields)
    with pytest.raises(ConfigError, match=r"put @asynccontextmanager above '.*\.yields_later'"):
        app.around_attempt(yields_later)


# Threads.


@pytest.fixture
def letters(world_url: str, namespace: str) -> Tenure:
    return Tenure(world_url, namespace=namespace)


def test_hooks_run_in_the_thread_that_enqueues(letters: Tenure):
    local = threading.local()
    local.tenant = "acme"
    request_id.set("r-1")
    places: list[threading.Thread] = []

    @letters.task
    async def work() -> None: ...

    with blocking.Tenure(letters) as sync:

        @sync.on_enqueue
        def hook(job: Outgoing) -> None:
            job.headers |= {"tenant": local.tenant, "x-request-id": request_id.get()}

        @sync.around_enqueue
        @asynccontextmanager
        async def on_the_loop(batch: OutgoingBatch):
            places.append(threading.current_thread())
            for job in batch.jobs:
                job.headers["late"] = f"{job.headers['here']} {request_id.get()}"
            yield

        @sync.around_enqueue
        @contextmanager
        def here(batch: OutgoingBatch) -> Iterator[None]:
            for job in batch.jobs:
                job.headers["here"] = local.tenant
            yield

        expected = {"tenant": "acme", "x-request-id": "r-1", "here": "acme", "late": "acme r-1"}
        jobs = [sync.enqueue(work.request()), *sync.enqueue_many([work.request()] * 2)]
        assert [job.headers for job in jobs] == [expected] * 3
        assert [sync.job(job.id).headers for job in jobs] == [expected] * 3
        assert len(places) == 2
        assert threading.current_thread() not in places


def test_a_thread_that_enqueues_gets_the_errors_of_hooks_and_of_the_store(letters: Tenure):
    @letters.task
    async def work(n: int) -> None: ...

    @letters.on_enqueue
    def refuse(job: Outgoing) -> None:
        if "bad" in job.headers:
            raise PermissionError("refused")

    @letters.around_enqueue
    @contextmanager
    def swallow(batch: OutgoingBatch) -> Iterator[None]:
        with suppress(UniqueMismatch):
            yield

    with blocking.Tenure(letters) as sync:
        with pytest.raises(PermissionError, match="refused"):
            sync.enqueue(work.using(headers={"bad": ""}).request(1))
        assert sync.jobs() == []
        first = sync.enqueue(work.using(unique="k").request(1))
        again = sync.enqueue(work.using(unique="k").request(1))
        assert (again.id, again.is_new) == (first.id, False)
        with pytest.raises(UniqueMismatch):
            sync.enqueue(work.using(unique="k").request(2))
        requests = [work.using(unique="k").request(2), work.request(3)]
        kept = sync.enqueue_many(requests, return_exceptions=True)
        assert [type(answer).__name__ for answer in kept] == ["UniqueMismatch", "Job"]


def test_a_synchronous_transaction_has_the_plain_hooks(tmp_path: Path):
    app = Tenure(f"sqlite:///{tmp_path / 'tenure.db'}")

    @app.task
    async def work() -> None: ...

    @app.around_enqueue
    @contextmanager
    def here(batch: OutgoingBatch) -> Iterator[None]:
        for job in batch.jobs:
            job.headers["thread"] = threading.current_thread().name
        yield

    own = sqlite3.connect(tmp_path / "tenure.db", isolation_level=None)
    with blocking.Tenure(app) as sync:
        own.execute("BEGIN IMMEDIATE")
        job = sync.enqueue(work.request(), within=own)
        own.execute("COMMIT")
        assert sync.job(job.id).headers == {"thread": threading.current_thread().name}

        @app.around_enqueue
        @asynccontextmanager
        async def elsewhere(batch: OutgoingBatch):
            yield

        own.execute("BEGIN IMMEDIATE")
        with pytest.raises(ConfigError, match="Declare a plain one"):
            sync.enqueue(work.request(), within=own)
        own.execute("ROLLBACK")
    own.close()
