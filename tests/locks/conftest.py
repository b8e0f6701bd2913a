"""Apps for lock tests: on memory in virtual time, and on every store with faults in between."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest

from tenure import Tenure
from tenure.app import engine_of
from tenure.stores.connect import connect
from tenure.testing import Faults, FaultyStore, ManualClock
from tests.contract.worlds import World


@pytest.fixture
def faults() -> Faults:
    """What goes wrong between the app and its store."""
    return Faults()


@pytest.fixture
async def app(clock: ManualClock, faults: Faults) -> AsyncIterator[Tenure]:
    """An app on the memory store, in virtual time."""
    store = connect("memory://", namespace="test", clock=clock)
    async with Tenure(FaultyStore(store, faults)) as app:
        yield app


@pytest.fixture
async def rival(app: Tenure) -> AsyncIterator[Tenure]:
    """Another replica on the same store, without faults."""
    async with Tenure(engine_of(app).store._store.clone()) as rival:
        yield rival


@pytest.fixture
async def real_app(real_world: World, faults: Faults) -> AsyncIterator[Tenure]:
    """An app on each store, in real time, with faults on demand."""
    async with Tenure(FaultyStore(real_world.unopened(), faults)) as app:
        yield app


@pytest.fixture
async def real_rival(real_world: World) -> AsyncIterator[Callable[[], Awaitable[Tenure]]]:
    """Make further replicas on the same store."""
    async with AsyncExitStack() as stack:

        async def make() -> Tenure:
            return await stack.enter_async_context(Tenure(real_world.unopened()))

        yield make


@pytest.fixture(autouse=True)
async def no_noise() -> AsyncIterator[None]:
    """Fail on anything asyncio complains about, such as an exception that was never retrieved."""
    complaints: list[str] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: complaints.append(str(context)))
    yield
    assert not complaints
