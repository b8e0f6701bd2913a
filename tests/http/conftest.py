"""Replicas of one service: on memory to test the routes, on every store for the rest."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import httpx2
import pytest

from tenure import Tenure
from tenure.core.clock import SystemClock
from tenure.stores.connect import connect
from tenure.testing import Faults, FaultyStore, ManualClock
from tests.contract.worlds import World
from tests.http.scene import Scene
from tests.http.service import FACES, Face, Service, Stage
from tests.http.wire import client_of
from tests.jobs.conftest import no_noise

__all__ = ["no_noise"]

Replica = Callable[..., Awaitable[Service]]


@pytest.fixture(params=FACES)
def face(request: pytest.FixtureRequest) -> Face:
    """The framework that serves the routes."""
    return request.param


@pytest.fixture
def faults() -> Faults:
    """The faults between the replicas and their store."""
    return Faults()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def scene(clock: ManualClock, faults: Faults) -> Scene:
    """A router in virtual time."""
    return Scene(clock, faults, max_wait=300)


@pytest.fixture
async def stage() -> Stage:
    return Stage()


@pytest.fixture
async def replica(namespace: str, faults: Faults, stage: Stage) -> AsyncIterator[Replica]:
    """Open replicas of the service on memory, all on the same store."""
    store = connect(f"memory://{namespace}", namespace=namespace, clock=SystemClock())
    await store.open()
    async with AsyncExitStack() as stack:
        yield _opener(store.clone, faults, stage, stack)
    await store.close()


@pytest.fixture
async def real_replica(real_world: World, faults: Faults, stage: Stage) -> AsyncIterator[Replica]:
    """Open replicas of the service on each store."""
    async with AsyncExitStack() as stack:
        yield _opener(real_world.unopened, faults, stage, stack)


def _opener(
    make_store: Callable[[], Any], faults: Faults, stage: Stage, stack: AsyncExitStack
) -> Replica:
    async def make(
        *, works: bool = True, settings: dict[str, Any] | None = None, **options: Any
    ) -> Service:
        own = FaultyStore(make_store(), faults)
        app = Tenure(own, **{"grace": 0, **(settings or {})})
        service = Service(app, stage, **options)
        await stack.enter_async_context(app)
        if works:
            await stack.enter_async_context(app.worker())
        return service

    return make


@pytest.fixture
async def service(replica: Replica) -> Service:
    """A replica on memory with a worker."""
    return await replica()


@pytest.fixture
async def ann(service: Service, face: Face) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of `service`, through either framework."""
    async with client_of(service.face(face), timeout=20) as client:
        yield client
