"""Functions and bound methods can be tasks; other objects are refused with advice."""

import sys
from contextlib import contextmanager

import pytest

from tenure import ConfigError, JobContext, Task, Tenure, current_job


async def test_methods_are_refused_with_advice(app: Tenure):
    with pytest.raises(ConfigError, match=r"method '.*Service\.handle'.*Service\(\.\.\.\)\.handle"):

        class Service:
            @app.task
            async def handle(self, number: int) -> int: ...

    with pytest.raises(ConfigError, match="needs an object"):

        class Plain:
            @app.task(queue="mail")
            def handle(cls, number: int) -> int: ...  # noqa: N805 - that is the point

    assert app.task_names == ()


@pytest.mark.parametrize("kind", [staticmethod, classmethod])
async def test_decorators_of_methods_below_the_task_are_refused(app: Tenure, kind):
    with pytest.raises(ConfigError, match=f"stands above @{kind.__name__}"):

        class Service:
            @app.task
            @kind
            async def handle(number: int) -> int: ...  # noqa: N805 - as above


async def test_functions_that_need_no_object_can_be_tasks(app: Tenure, clock):
    class Service:
        factor = 3

        def times(self, number: int) -> int:
            return self.factor * number

        @classmethod
        async def of_class(cls, number: int) -> int:
            return cls.factor * number

        @staticmethod
        @app.task
        async def alone(number: int) -> int:
            return number

    def make(factor: int):
        @app.task
        async def nested(self: int) -> int:
            return factor * self

        return nested

    times = app.task(name="times", executor="thread")(Service().times)
    of_class = app.task(Service.of_class)
    async with app.worker():
        for task, result in ((times, 6), (of_class, 6), (Service.alone, 2), (make(5), 10)):
            job = await task.enqueue(2)
            await clock.advance(0.1)
            assert await job.result(10) == result


@pytest.mark.parametrize("is_async", [True, False])
async def test_generators_are_refused(app: Tenure, is_async):
    def plain():
        yield 1

    async def on_loop():
        yield 1

    with pytest.raises(ConfigError, match="Return a list"):
        app.task(on_loop if is_async else plain)


async def test_classes_are_refused(app: Tenure):
    class Work:
        def __init__(self, number: int) -> None: ...

    with pytest.raises(ConfigError, match="a function, not the class"):
        app.task(Work)


def declared(app: Tenure, answer: str):
    @app.task
    async def work() -> str:
        return answer

    return work


async def test_a_notebook_may_run_a_cell_again(app: Tenure, clock, monkeypatch):
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    declared(app, "first")
    async with app.worker():
        work = declared(app, "second")
        job = await work.enqueue()
        await clock.advance(0.1)
        assert await job.result(0) == "second"

    async def other() -> str: ...

    with pytest.raises(ConfigError, match="there is a task 'work' already"):
        app.task(name="work")(other)


async def test_a_program_cannot_declare_a_task_twice(app: Tenure, monkeypatch):
    monkeypatch.delattr(sys, "ps1", raising=False)
    declared(app, "first")
    with pytest.raises(ConfigError, match="there is a task 'work' already"):
        declared(app, "second")


def shown(kind: type) -> set[str]:
    """Return the names that completion offers on an object."""
    return {name for name in dir(kind) if not name.startswith("_")}


def test_completion_shows_only_public_attributes():
    view = {"id", "task", "queue", "tags", "headers", "parent", "attempt", "failures", "losses"}
    own = {"fence", "deadline", "cancelled", "stop_reason", "check", "progress", "checkpoint"}
    assert shown(JobContext) == view | own | {"save", "transaction"}
    assert shown(Task) == {"name", "options", "using", "within", "request", "enqueue"}


async def test_a_handler_and_the_contexts_around_it_see_the_same_job_context(app: Tenure, clock):
    seen: list[JobContext] = []

    @app.around_attempt
    @contextmanager
    def around(job: JobContext):
        seen.append(job)
        yield

    @app.task
    async def work() -> None:
        seen.append(current_job())

    async with app.worker():
        await work.enqueue()
        await clock.advance(0.1)
    assert seen[0] is seen[1]
    assert repr(seen[0]) == f"<JobContext {seen[0].id} of 'work', attempt 1>"
