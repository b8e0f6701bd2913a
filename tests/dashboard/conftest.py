"""Apps on every store, and apps in virtual time whose store calls are counted."""

from collections.abc import AsyncIterator

import pytest

from tenure import Tenure
from tenure.testing import Faults, FaultyStore, ManualClock
from tests.jobs.conftest import no_noise

__all__ = ["no_noise"]

pytest.register_assert_rewrite("tests.dashboard.desk")


@pytest.fixture
async def app(world_url: str, namespace: str) -> AsyncIterator[Tenure]:
    """An open app on each store."""
    async with Tenure(world_url, namespace=namespace) as app:
        yield app


@pytest.fixture
def faults() -> Faults:
    return Faults()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def still(faults: Faults, clock: ManualClock) -> AsyncIterator[Tenure]:
    """An open app in memory, whose time stands still and whose store counts calls and can fail."""
    async with Tenure(FaultyStore("memory://", faults, clock=clock)) as app:
        yield app
