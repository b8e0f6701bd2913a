"""The order of tests that pytest-xdist cuts into one part for each worker."""

from dataclasses import dataclass

import pytest

from tests.rig.session import spread


@dataclass(frozen=True)
class Item:
    nodeid: str


def items(*names: str) -> list[Item]:
    return [Item(name) for name in names]


@pytest.mark.parametrize("workers", [1, 2, 3, 5])
@pytest.mark.parametrize("count", [0, 1, 7, 40])
def test_every_test_is_kept_once(workers: int, count: int):
    tests = items(*(f"t{number}" for number in range(count)))
    durations = {f"t{number}": float(number) for number in range(0, count, 3)}
    ordered = spread(tests, workers, durations)
    assert sorted(test.nodeid for test in ordered) == sorted(test.nodeid for test in tests)


def test_the_part_of_each_worker_begins_with_its_slowest_test():
    tests = items("a", "slow", "b", "c", "slower", "d")
    ordered = spread(tests, 2, {"slow": 5, "slower": 9})
    assert [test.nodeid for test in ordered] == ["slower", "a", "b", "slow", "c", "d"]


def test_a_recorded_test_that_is_gone_changes_nothing():
    tests = items("a", "b")
    assert spread(tests, 2, {"gone": 7}) == tests
