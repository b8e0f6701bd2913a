"""Makes one pytest session of all tests quick: what it collects, in which order, and where.

Invariant: the order depends only on the collected tests, the recorded durations and the number of
workers, because all workers of pytest-xdist have to agree on it. Loaded by `tests/conftest.py`.
"""

import gc
import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

__all__ = ["DURATIONS", "SLOW_SECONDS", "spread"]

DURATIONS = Path(__file__).with_name("durations.json")
"""The seconds that each slow test took when `scripts/test.py --record` ran."""
SLOW_SECONDS = 1.0
_TESTS_PER_FREEZE = 20
_ended = count(1)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Iterator[None]:
    """Collect without garbage collections, and leave what was collected out of later ones.

    17,000 tests are millions of objects that live until the end. Walking through them took half
    of the time of collecting, and most of each `gc.collect()` in a test.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_runtest_logfinish() -> None:
    """Leave what pytest keeps of each test, 45 objects and more, out of later collections.

    After 3,000 tests a `gc.collect()` in a test took up to a second. What a test has left behind is
    collected first, as nothing that is frozen ever is.
    """
    if next(_ended) % _TESTS_PER_FREEZE == 0:
        gc.collect()
        gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Order the tests for the workers of pytest-xdist; a run without workers keeps its order."""
    workerinput: dict[str, Any] | None = getattr(config, "workerinput", None)
    if workerinput is not None:
        items[:] = spread(items, workerinput["workercount"], _recorded())


def spread(
    items: list[pytest.Item], workers: int, durations: dict[str, float]
) -> list[pytest.Item]:
    """Return the tests in an order whose equal parts each begin with some slow ones.

    `--dist worksteal` gives each worker one part, and lets idle workers take the ends of others'.
    So the slowest tests begin first. They mostly wait, while quick tests keep the cores busy.
    """
    slow = sorted(
        (item for item in items if item.nodeid in durations),
        key=lambda item: (-durations[item.nodeid], item.nodeid),
    )
    quick = [item for item in items if item.nodeid not in durations]
    spread: list[pytest.Item] = []
    taken = 0
    for worker in range(workers):
        own = slow[worker::workers]
        # The same number for each worker, as pytest-xdist cuts the list.
        size = (len(items) - len(spread)) // (workers - worker)
        rest = max(0, size - len(own))
        spread += own + quick[taken : taken + rest]
        taken += rest
    return spread + quick[taken:]


def _recorded() -> dict[str, float]:
    if not DURATIONS.exists():
        return {}
    durations: dict[str, float] = json.loads(DURATIONS.read_text(encoding="utf-8"))
    return durations
