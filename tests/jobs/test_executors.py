"""Executors: which declarations are accepted, and which ones a worker refuses at its start."""

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
from tests.rig.stdio import tell

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
def test_an_unknown_executor_is_refused(executor):
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
def test_functions_that_a_child_cannot_import_by_name_are_refused(fn):
    with pytest.raises(ConfigError, match=r"'odd' has executor='process'.*top of a module"):
        Tenure("memory://").task(name="odd", executor="process")(fn)


def test_a_nested_function_is_refused():
    def nested() -> None: ...

    with pytest.raises(ConfigError, match=r"'nested'.*top of a module"):
        Tenure("memory://").task(executor="process")(nested)


@pytest.mark.parametrize("fn", [plain, Place.function, math.factorial])
async def test_functions_that_a_child_can_import_are_accepted(fn):
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


async def test_a_name_that_belongs_to_another_function_is_refused(make_module):
    module = make_module("""
        from tenure import Tenure
        app = Tenure("memory://")
        @app.task(name="first", executor="process")
        def work() -> None: ...
        @app.task(name="second", executor="process")
        def work() -> None: ...
    """)
    message = await refusal(module.app)
    assert "'first' has executor='process'" in message
    assert f"{module.__name__}.work is not its function" in message


async def test_a_name_that_was_deleted_is_refused(make_module):
    module = make_module("""
        from tenure import Tenure
        app = Tenure("memory://")
        @app.task(executor="process")
        def work() -> None: ...
        hidden = work
        del work
    """)
    assert "a child process would import something else, or fail" in await refusal(module.app)


async def test_a_task_declared_after_the_start_fails_with_the_same_error(make_module):
    module = make_module("def work() -> None: ...")
    async with Tenure("memory://") as app, app.worker():
        task = app.task(executor="process", retry=None)(module.work)
        del module.work
        job = await (await task.enqueue()).wait(10)
    assert job.error.startswith("tenure.errors.ConfigError: task 'work' has executor='process'")


def test_a_main_program_can_declare_and_enqueue_such_a_task_but_not_run_it():
    with Fleet() as fleet:
        program = fleet.start("-c", IN_MAIN)
        assert program.expect("enqueued")["state"] == "waiting"
        message = program.expect("refused")["error"]
        assert program.wait() == 0
    assert "task 'crunch'" in message
    assert "Move it into a module" in message


def test_calling_a_task_runs_it_in_the_caller():
    assert cpu_tasks.pid() == os.getpid()
