"""Event loops: closed before the app was, and with the user's own task factory."""

import asyncio
import gc
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from tenure import ConfigError, StoreError, Tenure
from tenure.testing import ManualClock
from tests.contract.worlds import World
from tests.rig.sizes import SIZE
from tests.rig.wait import wait_until_async

# That a loop was closed over open connections is true.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


@pytest.fixture(autouse=True)
def tidy() -> Iterator[None]:
    """Let go of the connections of closed loops here, where their warnings are expected."""
    yield
    gc.collect()


IS_EAGER = sys.version_info >= (3, 12)


def _in_a_thread(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run `work` on an event loop of its own, closed afterwards; a hang fails the test."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            asyncio.run(work())
        except BaseException as error:  # noqa: BLE001 - raised again below
            failures.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(SIZE.patience)
    assert not thread.is_alive(), "it hangs"
    if failures:
        raise failures[0]


def _forgotten(app: Tenure, *, ttl: float = 60) -> Callable[[], Coroutine[Any, Any, None]]:
    """Return what a test does that fails before it closes the app."""

    async def forget() -> None:
        await app.open()
        async with app.lock("released"):
            pass
        app.held = await app.lock("held", ttl=ttl).acquire()  # type: ignore[attr-defined]

    return forget


@pytest.mark.parametrize("first", ["open", "close"])
async def test_an_app_goes_on_after_its_loop_was_closed(real_world: World, first: str):
    app = Tenure(real_world.unopened())
    _in_a_thread(_forgotten(app))
    assert not app.is_open

    async def next_test() -> None:
        if first == "close":
            await app.close()
        await app.open()
        assert app.is_open
        async with app.lock("released", wait=0):
            pass
        assert await app.lock("held").try_acquire() is None
        await app.close()
        assert not app.is_open

    _in_a_thread(next_test)
    _in_a_thread(next_test)


async def test_a_lock_of_a_closed_loop_is_renewed_no_more(real_world: World):
    others = _threads("tenure-host")  # other tests may have dropped an app that was open
    app = Tenure(real_world.unopened())
    _in_a_thread(_forgotten(app, ttl=1))

    async def next_test() -> None:
        async with app:
            async with app.lock("held", wait=SIZE.patience):
                pass
            await wait_until_async(
                lambda: _threads("tenure-host") <= others + 1, SIZE.patience
            )  # that of the closed loop has ended

    _in_a_thread(next_test)


def _threads(name: str) -> int:
    return sum(thread.name == name for thread in threading.enumerate())


async def test_in_virtual_time_too(clock: ManualClock):
    app = Tenure("memory://", clock=clock)
    _in_a_thread(_forgotten(app))

    async def next_test() -> None:
        async with app:
            assert await app.lock("released").try_acquire() is not None

    _in_a_thread(next_test)


async def test_a_worker_runs_after_the_loop_of_another_was_closed(real_world: World):
    app = Tenure(real_world.unopened())

    @app.task
    async def double(number: int) -> int:
        return 2 * number

    @app.timer(every="1h")
    async def tick() -> None: ...

    async def forget() -> None:
        await app.open()
        worker = app.worker()
        await worker.__aenter__()  # and never leaves it
        await worker.ready()

    _in_a_thread(forget)

    async def next_test() -> None:
        async with app, app.worker():
            job = await double.enqueue(4)
            assert await job.result(SIZE.patience) == 8

    _in_a_thread(next_test)


async def test_an_app_is_closed_on_its_own_loop(real_world: World):
    """Anything else waited for ever on SQLite."""
    async with Tenure(real_world.unopened()) as app:

        async def elsewhere() -> None:
            with pytest.raises(StoreError, match="another event loop"):
                await app.close()
            with pytest.raises(ConfigError, match="open already"):
                await app.open()

        await asyncio.to_thread(_in_a_thread, elsewhere)
        async with app.lock("x", wait=0):
            pass


@pytest.mark.skipif(not IS_EAGER, reason="eager tasks came with Python 3.12")
def test_eager_tasks_hang_nothing(namespace: str):
    app = Tenure(f"memory://{namespace}")

    @app.task
    async def double(number: int) -> int:
        return 2 * number

    async def use() -> None:
        asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)  # type: ignore[attr-defined]
        async with app, app.worker():
            jobs = [await double.enqueue(number) for number in range(20)]
            assert [await job.result(SIZE.patience) for job in jobs] == list(range(0, 40, 2))
            async with app.lock("x"):
                pass

    _in_a_thread(use)
