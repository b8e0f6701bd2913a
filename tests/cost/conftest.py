"""A meter for each kind of store, shared by the tests of a run."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache

import pytest

from tests.cost.meters import METERS, Meter
from tests.rig.fixtures import require

_SERVERS = {"redis": "valkey", "postgres": "postgres"}


@pytest.fixture(scope="session")
def meters() -> Iterator[Callable[[str], Meter]]:
    """Return the meter of a store, which is made at the first need."""
    with ExitStack() as stack:

        @cache
        def make(family: str) -> Meter:
            if family in _SERVERS:
                require(_SERVERS[family])
            return stack.enter_context(METERS[family]())

        yield make


@pytest.fixture
def meter(family: str, meters: Callable[[str], Meter]) -> Meter:
    """The meter of each store in turn."""
    return meters(family)
