"""Every public context manager, entered in one task or thread and left in another.

Introspection finds the managers, so a new one that has no row fails the suite.
`test_left_elsewhere.py` combines all ways to enter a lock with all places to leave it.
"""

import asyncio
import importlib
import inspect
import pkgutil
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    ExitStack,
    asynccontextmanager,
    contextmanager,
)
from pathlib import Path
from typing import Any

import pytest

import tenure
from tenure import Tenure, blocking, current_job
from tenure.http import AsyncClient, Client
from tenure.runtime.timers.tick_batches import TickBatches

TTL = 600
_NOT_FOR_USERS = ("testing", "cli", "__main__")


def public_managers(enter: str) -> set[str]:
    """Return the public classes with a method to enter them, as "module.Class"."""
    classes: dict[str, type] = {}
    for module in pkgutil.walk_packages(tenure.__path__, "tenure."):
        if module.name.split(".")[1] not in _NOT_FOR_USERS:
            loaded = importlib.import_module(module.name)
            members = [getattr(loaded, name) for name in getattr(loaded, "__all__", ())]
            for member in filter(inspect.isclass, members):
                classes[f"{member.__module__}.{member.__name__}"] = member
    parts_of_the_app = set(Tenure.__mro__) - {Tenure}
    return {
        name
        for name, public in classes.items()
        if name.startswith("tenure.") and hasattr(public, enter) and public not in parts_of_the_app
    }


# Each row yields a manager, and checks afterwards that leaving it has done its work.

AsyncRow = Callable[[Path], AbstractAsyncContextManager[Any]]
Row = Callable[[Path], AbstractContextManager[Any]]


@asynccontextmanager
async def lock(_: Path) -> AsyncIterator[Any]:
    async with Tenure("memory://") as app:
        yield app.lock("x", ttl=TTL)
        assert await app.locks() == []


@asynccontextmanager
async def semaphore(_: Path) -> AsyncIterator[Any]:
    async with Tenure("memory://") as app:
        yield app.semaphore("x", 2, ttl=TTL)
        assert await app.locks() == []


@asynccontextmanager
async def hold(_: Path) -> AsyncIterator[Any]:
    async with Tenure("memory://") as app:
        yield await app.lock("x", ttl=TTL).acquire()
        assert await app.locks() == []


@asynccontextmanager
async def term(_: Path) -> AsyncIterator[Any]:
    async with Tenure("memory://") as app:
        terms = app.election("x", ttl=TTL).terms()
        yield await anext(terms)
        assert await app.locks() == []
        await terms.aclose()


@asynccontextmanager
async def app(_: Path) -> AsyncIterator[Any]:
    app = Tenure("memory://")
    yield app
    assert not app.is_open


@asynccontextmanager
async def worker(_: Path) -> AsyncIterator[Any]:
    async with Tenure("memory://") as app:
        worker = app.worker()
        yield worker
        assert worker._running.done()
        assert await app.replicas() == []


@asynccontextmanager
async def client(_: Path) -> AsyncIterator[Any]:
    client = AsyncClient("http://localhost")
    yield client
    assert client._http.is_closed


@asynccontextmanager
async def transaction(folder: Path) -> AsyncIterator[Any]:
    """Yield the transaction of a job on SQLite; the handler waits until it is left."""
    app = Tenure(f"sqlite:///{folder / 'tenure.db'}")
    made: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    left = asyncio.Event()

    @app.task
    async def write() -> None:
        db = sqlite3.connect(folder / "tenure.db")
        made.set_result(current_job().transaction(db))
        await left.wait()
        db.close()

    async with app, app.worker():
        job = await write.enqueue()
        yield await made
        assert (await job.refresh()).state == "succeeded"
        left.set()
        await job.result()


@asynccontextmanager
async def tick_batches(_: Path) -> AsyncIterator[Any]:
    batches = TickBatches()
    yield batches
    assert batches._present == 0


ASYNC_ROWS: dict[str, AsyncRow] = {
    "tenure.locks.lock.Lock": lock,
    "tenure.locks.lock.Semaphore": semaphore,
    "tenure.locks.hold.Hold": hold,
    "tenure.locks.election.Term": term,
    "tenure.app.Tenure": app,
    "tenure.jobs.worker.EmbeddedWorker": worker,
    "tenure.runtime.attempts.transaction.JobTransaction": transaction,
    "tenure.runtime.timers.tick_batches.TickBatches": tick_batches,
    "tenure.http.client.client.AsyncClient": client,
}


@contextmanager
def blocking_lock(_: Path) -> Iterator[Any]:
    with blocking.Tenure("memory://") as app:
        yield app.lock("x", ttl=TTL)
        assert app.locks() == []


@contextmanager
def blocking_semaphore(_: Path) -> Iterator[Any]:
    with blocking.Tenure("memory://") as app:
        yield app.semaphore("x", 2, ttl=TTL)
        assert app.locks() == []


@contextmanager
def blocking_hold(_: Path) -> Iterator[Any]:
    with blocking.Tenure("memory://") as app:
        yield app.lock("x", ttl=TTL).acquire()
        assert app.locks() == []


@contextmanager
def blocking_app(_: Path) -> Iterator[Any]:
    app = blocking.Tenure("memory://")
    yield app
    assert not app._app.is_open


@contextmanager
def blocking_client(_: Path) -> Iterator[Any]:
    client = Client("http://localhost")
    yield client
    assert client._http.is_closed


@contextmanager
def blocking_transaction(folder: Path) -> Iterator[Any]:
    """Yield the transaction of a job whose handler waits in a thread until it is left."""
    described = Tenure(f"sqlite:///{folder / 'tenure.db'}")
    made: list[Any] = []
    has_made, left = threading.Event(), threading.Event()

    @described.task
    def write() -> None:
        db = sqlite3.connect(folder / "tenure.db", check_same_thread=False)
        made.append(current_job().transaction(db))
        has_made.set()
        assert left.wait(30)
        db.close()

    async def work(stop: asyncio.Event) -> None:
        async with described, described.worker():
            await stop.wait()

    with blocking.Tenure(described) as app, asyncio.Runner() as runner:
        stop, loop = asyncio.Event(), runner.get_loop()
        working = threading.Thread(target=runner.run, args=[work(stop)])
        working.start()
        job = app.enqueue(write.request())
        assert has_made.wait(30)
        yield made[0]
        assert job.refresh().state == "succeeded"
        left.set()
        job.result()
        loop.call_soon_threadsafe(stop.set)
        working.join(30)


ROWS: dict[str, Row] = {
    "tenure.blocking.locks.Lock": blocking_lock,
    "tenure.blocking.locks.Semaphore": blocking_semaphore,
    "tenure.blocking.locks.Hold": blocking_hold,
    "tenure.blocking.app.Tenure": blocking_app,
    "tenure.http.client.client.Client": blocking_client,
    "tenure.runtime.attempts.transaction.JobTransaction": blocking_transaction,
}
REFUSED: dict[str, Callable[[Tenure], Any]] = {
    "tenure.app.Tenure": lambda app: app,
    "tenure.locks.lock.Lock": lambda app: app.lock("x"),
    "tenure.locks.lock.Semaphore": lambda app: app.semaphore("x", 2),
}
"""Managers that must be entered with `async with`."""


def test_every_public_context_manager_has_a_row():
    assert ASYNC_ROWS.keys() == public_managers("__aenter__")
    assert ROWS.keys() | REFUSED.keys() == public_managers("__enter__")


@pytest.mark.parametrize("name", ASYNC_ROWS)
async def test_a_manager_may_be_left_in_another_task(name: str, tmp_path: Path):
    async with ASYNC_ROWS[name](tmp_path) as manager:
        stack = AsyncExitStack()
        await asyncio.create_task(stack.enter_async_context(manager))
        await asyncio.create_task(stack.aclose())


@pytest.mark.parametrize("name", ROWS)
def test_a_manager_may_be_left_in_another_thread(name: str, tmp_path: Path):
    with ROWS[name](tmp_path) as manager, ExitStack() as stack:
        for act in (lambda: stack.enter_context(manager), stack.close):
            with ThreadPoolExecutor(1) as thread:
                thread.submit(act).result(30)


@pytest.mark.parametrize("name", REFUSED)
def test_an_asynchronous_manager_refuses_a_plain_with(name: str):
    with pytest.raises(TypeError, match="async with"), REFUSED[name](Tenure("memory://")):
        pass
