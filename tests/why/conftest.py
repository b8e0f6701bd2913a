"""A scene on each store, and a hand that damages its records."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tenure import Tenure
from tenure.observe import Event, StoreCalled
from tenure.testing import ManualClock
from tests.contract.worlds import World
from tests.security.hands import Hand, hand_of
from tests.why.scene import Scene


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out memory where another process is to write to the store."""
    items[:] = [item for item in items if _fits(item)]


def _fits(item: pytest.Item) -> bool:
    if item.path.parent != Path(__file__).parent or "hand" not in getattr(item, "fixturenames", ()):
        return True
    callspec = getattr(item, "callspec", None)
    return callspec is None or callspec.params.get("family") != "memory"


@pytest.fixture
def calls() -> list[str]:
    """The calls of the app of `scene`, by name."""
    return []


@pytest.fixture
async def scene(world: World, clock: ManualClock, calls: list[str]) -> AsyncIterator[Scene]:
    """An app on an empty store."""
    app = Tenure(world.unopened(), grace=0)
    app.on_event(_recorder(calls))
    async with app:
        yield Scene(app, await world.store(), clock)


def _recorder(calls: list[str]) -> Callable[[Event], None]:
    def record(event: Event) -> None:
        if isinstance(event, StoreCalled):
            calls.append(event.call)

    return record


@pytest.fixture
def hand(request: pytest.FixtureRequest, world: World) -> Hand:
    """A hand in the store of this test, past all of its checks."""
    return hand_of(request, world)
