"""Spoils stored records, for the tests of this folder."""

from pathlib import Path

import pytest

from tests.contract.worlds import World
from tests.security.hands import Hand, hand_of


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out memory where another process is to write to the store."""
    items[:] = [item for item in items if _fits(item)]


def _fits(item: pytest.Item) -> bool:
    if item.path.parent != Path(__file__).parent or "hand" not in getattr(item, "fixturenames", ()):
        return True
    callspec = getattr(item, "callspec", None)
    return callspec is None or callspec.params.get("family") != "memory"


@pytest.fixture
def hand(request: pytest.FixtureRequest, world: World) -> Hand:
    """A hand in the store of this test, past all of its checks."""
    return hand_of(request, world)
