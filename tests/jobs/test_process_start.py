"""The start of child processes: time limits, their number, and jobs that wait for one."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType

import pytest

from tenure import ConfigError, Job, Tenure, UniqueMismatch
from tenure.core.settings import Settings, usable_cores
from tenure.runtime.replica.recovery import recovery_grace
from tests.jobs import cpu_tasks
from tests.rig.spawn import alive, family, send
from tests.rig.waiting import wait_until, wait_until_async

SLOW = """
    import os, time
    from pathlib import Path
    here = Path(__file__).parent
    if (here / "slow").exists():
        (here / f"importing-{os.getpid()}").touch()
        while not (here / "go").exists():
            time.sleep(0.01)
        time.sleep(float((here / "go").read_text() or 0))
    def fine() -> int:
        return os.getpid()
"""


@asynccontextmanager
async def working(**settings: object) -> AsyncIterator[Tenure]:
    async with Tenure("memory://", **settings) as app:
        app._handlers.update(cpu_tasks.app._handlers)
        async with app.worker(queues=["default", "cpu"]):
            yield app


@pytest.fixture
def slow(make_module: Callable[[str], ModuleType]) -> ModuleType:
    """A module whose import waits in child processes until a file "go" exists."""
    module = make_module(SLOW)
    here(module, "slow").touch()
    return module


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    before = set(family(os.getpid()))
    yield
    wait_until(lambda: not [pid for pid in family(os.getpid()) if pid not in before])


def here(module: ModuleType, name: str) -> Path:
    return Path(str(module.__file__)).with_name(name)


def importing(module: ModuleType) -> list[Path]:
    return list(here(module, "slow").parent.glob("importing-*"))


async def states(jobs: list[Job]) -> list[str]:
    return sorted([(await job.refresh()).state for job in jobs])


async def test_the_time_out_begins_with_the_handler(slow):
    here(slow, "go").write_text("1.0")
    async with working() as app:
        task = app.task(executor="process", retry=None, timeout=0.5)(slow.fine)
        job = await (await app.enqueue(task.request())).wait(20)
    assert (job.state, job.error) == ("succeeded", None)


async def test_a_start_that_takes_too_long_fails_the_attempt_with_the_reason(slow):
    async with working(process_start=1) as app:
        task = app.task(executor="process", retry=None, timeout=60)(slow.fine)
        job = await (await app.enqueue(task.request())).wait(20)
    assert job.state == "failed"
    assert "did not begin the job within 1 s" in job.error
    assert repr(slow.__name__) in job.error
    assert "raise process_start" in job.error


async def test_children_start_one_at_a_time_and_jobs_wait_in_the_store(slow):
    async with working(process_workers=4) as app:
        task = app.task(executor="process", retry=None, queue="cpu")(slow.fine)
        jobs = await app.enqueue_many(task.request() for _ in range(6))
        await wait_until_async(lambda: bool(importing(slow)), 20)

        async def others_wait() -> bool:
            return await states(jobs) == ["running", *["waiting"] * 5]

        await wait_until_async(others_wait, 20)
        assert len(importing(slow)) == 1
        plain = await app.enqueue(app.task(name="plain")(lambda: 1).request())
        assert await plain.result(20) == 1
        here(slow, "go").touch()
        assert len({await job.result(20) for job in jobs}) <= 4
        assert {job.failures for job in jobs} == {0}


async def test_there_are_no_more_children_than_process_workers(tmp_path):
    async with working(process_workers=2) as app:
        meet = cpu_tasks.meet.using(queue="cpu")
        jobs = await app.enqueue_many(meet.request(str(tmp_path), 2) for _ in range(8))
        pids = [await job.result(20) for job in jobs]
    assert len(set(pids)) == 2


async def test_a_job_that_waits_for_a_child_can_be_cancelled(tmp_path):
    async with working(process_workers=1, grace=0.1) as app:
        busy = await app.enqueue(cpu_tasks.rest.request(60, str(tmp_path / "pid")))
        waiting = await app.enqueue(cpu_tasks.pid.request())
        await wait_until_async((tmp_path / "pid").exists, 20)
        await waiting.cancel()
        assert (await waiting.wait(20)).state == "cancelled"
        await busy.cancel()
        assert (await busy.wait(20)).state == "cancelled"
        assert (await (await app.enqueue(cpu_tasks.pid.request())).wait(20)).state == "succeeded"


async def test_a_child_that_is_killed_while_it_starts_lets_the_next_one_start(slow):
    async with working(process_workers=2) as app:
        task = app.task(executor="process", retry=None)(slow.fine)
        first = await app.enqueue(task.request())
        [file] = await wait_until_async(lambda: importing(slow), 20)
        pid = int(file.name.partition("-")[2])
        send([pid], signal.SIGKILL)
        assert (await first.wait(20)).state == "failed"
        assert not alive(pid)
        here(slow, "go").touch()
        assert (await (await app.enqueue(task.request())).wait(20)).state == "succeeded"


# Settings.


def test_there_are_as_many_children_as_cores_by_default():
    settings = Settings.read({}, {})
    assert settings.process_workers == usable_cores() <= (os.cpu_count() or 1)
    assert settings.process_start == 30
    environment = {"TENURE_PROCESS_WORKERS": "3", "TENURE_PROCESS_START": "2m"}
    settings = Settings.read({}, environment)
    assert (settings.process_workers, settings.process_start) == (3, 120)
    with pytest.raises(ConfigError, match="process_workers must be a whole number from 1"):
        Tenure("memory://", process_workers=0)


def test_a_job_is_not_overdue_while_its_child_may_still_start():
    app = Tenure("memory://", process_start="40s", grace=10)
    assert recovery_grace(app._work_settings) == 10
    app.task(executor="process")(cpu_tasks.pid._handler.function)
    assert recovery_grace(app._work_settings) > 40


# Jobs that handlers enqueue.


async def test_a_handler_in_a_child_enqueues_jobs():
    async with working() as app:
        first = await (await app.enqueue(cpu_tasks.enqueue_two.request("a"))).wait(20)
        ids = await first.result()
        for id_ in ids:
            assert (await (await app.job(id_)).wait(20)).state == "succeeded"
        again = await (await app.enqueue(cpu_tasks.enqueue_unique.request("k", 1))).wait(20)
        assert await again.result() == await (await first_of(app, "k", 1)).result()
        other = await (await app.enqueue(cpu_tasks.enqueue_unique.request("k", 2))).wait(20)
        assert other.error.startswith(f"tenure.errors.{UniqueMismatch.__name__}")


async def first_of(app: Tenure, key: str, number: int) -> Job:
    return await (await app.enqueue(cpu_tasks.enqueue_unique.request(key, number))).wait(20)


async def test_a_job_left_behind_in_a_child_enqueues_nothing():
    async with working(process_workers=1) as app:
        first = await (await app.enqueue(cpu_tasks.leave_a_thread_to_enqueue.request())).wait(20)
        second = await (await app.enqueue(cpu_tasks.hear_the_late_thread.request())).wait(20)
        process, answers = await second.result(0)
        assert process == await first.result(0)
        assert answers == [f"StoreError: job {first.id} has ended, so it can enqueue nothing."]


async def test_a_plain_handler_in_a_thread_enqueues_jobs():
    async with working() as app:

        @app.task(retry=None)
        def double(number: int) -> int:
            return 2 * number

        @app.task(retry=None)
        def begin(number: int) -> str:
            return asyncio.run(double.enqueue(number)).id

        job = await (await app.enqueue(begin.request(21))).wait(20)
        assert await (await app.job(await job.result())).result(20) == 42


async def test_jobs_for_another_store_do_not_go_through_the_worker():
    other = Tenure("memory://", namespace="other")

    @other.task
    def far() -> None: ...

    async with working() as app:

        @app.task(retry=None)
        def begin() -> None:
            asyncio.run(far.enqueue())

        job = await (await app.enqueue(begin.request())).wait(20)
    assert "is not open" in job.error
