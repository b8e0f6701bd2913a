"""The judges of the storms: each of them must be able to find a violation."""

import pytest

from tests.process.history import (
    check_counted,
    check_fences_rise,
    check_one_at_a_time,
    most_at_once,
)
from tests.process.ledger import Count, Section

NO_WRITE = Count(0, 0)


def section(fence: int, start: float, end: float | None, saw: Count = NO_WRITE, **more) -> Section:
    return Section("somebody", "storm", fence, start, saw, end, **more)


def test_sections_that_overlap_are_found():
    check_one_at_a_time([section(2, 1.0, 2.0), section(1, 0.0, 1.0)])
    with pytest.raises(AssertionError):
        check_one_at_a_time([section(1, 0.0, 1.1), section(2, 1.0, 2.0)])


def test_a_killed_section_lasts_until_the_kill():
    check_one_at_a_time([section(1, 0.0, None, killed=1.0), section(2, 1.0, 2.0)])
    with pytest.raises(AssertionError):
        check_one_at_a_time([section(1, 0.0, None, killed=1.1), section(2, 1.0, 2.0)])


def test_a_lost_section_may_overlap_and_an_unexplained_one_may_not():
    check_one_at_a_time([section(1, 0.0, None, lost=True), section(2, 1.0, 2.0)])
    with pytest.raises(AssertionError):
        check_one_at_a_time([section(1, 0.0, None), section(2, 1.0, 2.0)])


@pytest.mark.parametrize("second", [1, 2])
def test_fences_that_fall_or_repeat_are_found(second: int):
    check_fences_rise([section(3, 1.0, 2.0), section(2, 0.0, 1.0)])
    with pytest.raises(AssertionError):
        check_fences_rise([section(2, 0.0, 1.0), section(second, 1.0, 2.0)])


def test_a_lost_count_is_found():
    first, second = section(5, 0.0, 1.0), section(6, 1.0, 2.0, Count(1, 5))
    check_counted([second, first], Count(2, 6))
    with pytest.raises(AssertionError):
        check_counted([first, section(6, 0.5, 2.0)], Count(1, 6))
    with pytest.raises(AssertionError):
        check_counted([first, second], Count(1, 5))


@pytest.mark.parametrize("saw", [Count(1, 5), Count(2, 6)])
def test_one_who_was_killed_inside_counts_if_the_next_one_saw_it(saw: Count):
    killed = section(6, 1.0, None, Count(1, 5), killed=2.0)
    others = [section(5, 0.0, 1.0), section(7, 3.0, 4.0, saw)]
    check_counted([*others, killed], Count(saw.value + 1, 7))


def test_the_crowd_inside_is_counted():
    sections = [section(1, 0.0, 2.0), section(2, 1.0, 3.0), section(3, 2.0, None, killed=2.5)]
    assert most_at_once(sections) == 2
    assert most_at_once([*sections, section(4, 1.5, 2.1)]) == 3
    assert most_at_once([*sections, section(4, 1.5, 2.1, lost=True)]) == 2
