"""Apps for job tests: on memory in virtual time, and on every store in real time."""

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from importlib import import_module
from pathlib import Path
from textwrap import dedent
from types import ModuleType

import pytest

from tenure import Tenure
from tenure.observe import Event
from tenure.stores.connect import connect
from tenure.stores.contract import Store
from tenure.testing import Faults, FaultyStore, ManualClock
from tests.contract.worlds import World
from tests.jobs.replicas import Make


@pytest.fixture
def faults() -> Faults:
    """The faults between `app` and its store."""
    return Faults()


@pytest.fixture
async def store(clock: ManualClock) -> AsyncIterator[Store]:
    """The memory store of `app` without faults, to read and change what is stored."""
    store = connect("memory://", namespace="test", clock=clock)
    await store.open()
    yield store
    await store.close()


@pytest.fixture
async def make(store: Store, faults: Faults) -> AsyncIterator[Make]:
    """Open apps with given settings, each a replica of the same service."""
    async with AsyncExitStack() as stack:

        async def make(*, faulty: bool = False, **settings: object) -> Tenure:
            own = FaultyStore(store.clone(), faults if faulty else None)
            # At the end of a failing test no one advances the clock through a grace period.
            return await stack.enter_async_context(Tenure(own, **{"grace": 0, **settings}))

        yield make


@pytest.fixture
async def app(make: Make) -> Tenure:
    """An app on the memory store, in virtual time, with faults on demand."""
    return await make(faulty=True)


@pytest.fixture
def seen(app: Tenure) -> list[Event]:
    """The events of `app`."""
    seen: list[Event] = []
    app.on_event(seen.append)
    return seen


@pytest.fixture
async def real_make(
    real_world: World, faults: Faults
) -> AsyncIterator[Callable[..., Awaitable[Tenure]]]:
    """Open apps on each store, in real time."""
    async with AsyncExitStack() as stack:

        async def make(*, faulty: bool = False, **settings: object) -> Tenure:
            own = FaultyStore(real_world.unopened(), faults if faulty else None)
            return await stack.enter_async_context(Tenure(own, **settings))

        yield make


@pytest.fixture
async def real_app(real_make: Make) -> Tenure:
    """An app on each store, in real time, with faults on demand and a short ttl."""
    return await real_make(faulty=True, replica_ttl=1)


@pytest.fixture
def make_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str], ModuleType]]:
    """Create a module that only this process can import."""
    name = f"made_by_{tmp_path.name}"
    monkeypatch.syspath_prepend(tmp_path)

    def make(text: str) -> ModuleType:
        (tmp_path / f"{name}.py").write_text(dedent(text))
        return import_module(name)

    yield make
    sys.modules.pop(name, None)


@pytest.fixture(autouse=True)
async def no_noise() -> AsyncIterator[None]:
    """Fail on errors that asyncio reports, such as an exception that was never retrieved."""
    complaints: list[str] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: complaints.append(str(context)))
    yield
    assert not complaints
