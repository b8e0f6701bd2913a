"""Where handlers run: what can be declared, and what a worker refuses to start with."""

import functools
import math
import os
import threading

import pytest

from tenure import ConfigError, Tenure
from tests.jobs import cpu_tasks
from tests.rig.processes import Fleet

IN_MAIN = """
import asyncio
from tenure import ConfigError, Tenure
from tests.rig.telling import tell

app = Tenure("memory://")


@app.task(executor="process")
def crunch(number: int) -> int:
    return number


async def main() -> None:
    async with app:
        tell("enqueued", state=(await crunch.enqueue(7)).state)
        try:
            async with app.worker():
                tell("working")
        except ConfigError as error:
            tell("refused", error=str(error))


asyncio.run(main())
"""


def plain() -> str:
    return threading.current_thread().name


async def asynchronous() -> None: ...


class Place:
    def method(self) -> None: ...

    @staticmethod
    def function() -> None: ...


@pytest.mark.parametrize("executor", ["auto", "thread"])
async def test_plain_functions_run_in_threads(executor):
    async with Tenure("memory://") as app, app.worker():
        job = await app.task(executor=executor)(plain).enqueue()
        assert (await job.result(10)).startswith("tenure-job-")


@pytest.mark.parametrize("executor", ["threads", "", None, 7, True, ["process"]])
def test_an_executor_that_does_not_exist(executor):
    with pytest.raises(ConfigError, match="'auto', 'thread' or 'process'"):
        Tenure("memory://").task(executor=executor)(plain)


@pytest.mark.parametrize("executor", ["thread", "process"])
def test_async_functions_run_on_the_loop_only(executor):
    with pytest.raises(ConfigError, match="'asynchronous' is an async function"):
        Tenure("memory://").task(executor=executor)(asynchronous)


@pytest.mark.parametrize(
    "fn",
    [
        pytest.param(lambda: None, id="lambda"),
        pytest.param(Place().method, id="method"),
        pytest.param(functools.partial(plain), id="partial"),
    ],
)
def test_what_a_child_could_not_import_by_name(fn):
    with pytest.raises(ConfigError, match=r"'odd' has executor='process'.*top of a module"):
        Tenure("memory://").task(name="odd", executor="process")(fn)


def test_a_function_inside_of_another():
    def nested() -> None: ...

    with pytest.raises(ConfigError, match=r"'nested'.*top of a module"):
        Tenure("memory://").task(executor="process")(nested)


@pytest.mark.parametrize("fn", [plain, Place.function, math.factorial])
async def test_what_a_worker_starts_with(fn):
    app = Tenure("memory://")
    app.task(executor="process")(fn)
    async with app, app.worker():
        pass


async def refusal(app: Tenure) -> str:
    async with app:
        with pytest.raises(ConfigError) as caught:
            async with app.worker():
                pass
    return str(caught.value)


async def test_a_name_that_belongs_to_another_function(make_module):
    module = make_module("""
        from tenure import Tenure
        app = Tenure("memory://")
        @app.task(name="first", executor="process")
        def work() -> None: ...
        @app.task(name="second", executor="process")
        def work() -> None: ...
    """)
    said = await refusal(module.app)
    assert "'first' has executor='process'" in said
    assert f"{module.__name__}.work is not its function" in said


async def test_a_name_that_is_gone(make_module):
    module = make_module("""
        from tenure import Tenure
        app = Tenure("memory://")
        @app.task(executor="process")
        def work() -> None: ...
        hidden = work
        del work
    """)
    assert "a child process would import something else, or fail" in await refusal(module.app)


async def test_a_task_that_came_after_the_start_fails_with_the_same_words(make_module):
    module = make_module("def work() -> None: ...")
    async with Tenure("memory://") as app, app.worker():
        task = app.task(executor="process", retry=None)(module.work)
        del module.work
        job = await (await task.enqueue()).wait(10)
    assert job.error.startswith("tenure.errors.ConfigError: task 'work' has executor='process'")


def test_a_program_may_declare_and_enqueue_but_not_work():
    with Fleet() as fleet:
        program = fleet.start("-c", IN_MAIN)
        assert program.expect("enqueued")["state"] == "waiting"
        said = program.expect("refused")["error"]
        assert program.wait() == 0
    assert "task 'crunch'" in said
    assert "Move it into a module" in said


def test_calling_a_task_runs_it_here():
    assert cpu_tasks.pid() == os.getpid()
