"""Whether a tick still runs when its answer comes, and the rest of a line of history."""

from typing import Any

import pytest

from tenure.core.calendar.rules import Every
from tenure.core.schedules.definition import Definition, RunOptions
from tenure.core.schedules.documents import Decision
from tenure.core.schedules.steps import left_of, still_runs
from tests.unit.schedule_texts import NOW, SECOND

TICK = NOW


def timer(**options: Any) -> Definition:
    """Return a timer of ten seconds."""
    run = RunOptions(task="@t", queue="@timers")
    return Definition(kind="timer", rule=Every(10 * SECOND), run=run, **options)


def runs(seconds: float, *, only_newest: bool = True, **options: Any) -> bool:
    """Return whether a tick still runs so many seconds later."""
    now = TICK + round(seconds * SECOND)
    cursor = TICK - 10 * SECOND
    return still_runs(timer(**options), TICK, cursor=cursor, now=now, only_newest=only_newest)


@pytest.mark.parametrize(
    ("options", "until"),
    [
        ({}, 10),
        ({"catch_up": "none"}, 5.000001),
        ({"catch_up": "all"}, 100),
        ({"within": 3.0}, 3.000001),
        ({"within": 3.0, "catch_up": "all"}, 3.000001),
        ({"offset": 2 * SECOND, "catch_up": "none"}, 7.000001),
        ({"offset": 2 * SECOND}, 12),
    ],
)
def test_a_tick_runs_until_it_is_too_late_for_it(options: dict[str, Any], until: float):
    assert runs(until - 0.000001, **options)
    assert not runs(until, **options)


@pytest.mark.parametrize(
    ("options", "until"), [({}, 10.000001), ({"within": 3.0}, 3.000001), ({"catch_up": "none"}, 6)]
)
def test_after_a_withdrawn_run_a_newer_tick_is_no_reason(options: dict[str, Any], until: float):
    is_none = options.get("catch_up") == "none"
    assert runs(until - 0.000001, only_newest=False, **options) is not is_none
    assert not runs(until, only_newest=False, **options)


def test_a_pause_after_the_last_run_has_no_newer_tick():
    assert runs(3600, rests=True)


def test_a_clock_that_was_set_back_makes_no_tick_late():
    assert runs(-5)


def left(cursor: int, first: int, last: int, ticks: int) -> tuple[int, int, int] | None:
    """Return what is left of a line; instants are numbers of ticks."""
    line = Decision(
        outcome="missed",
        reason="late",
        first=TICK + first * 10 * SECOND,
        last=TICK + last * 10 * SECOND,
        ticks=ticks,
    )
    rest = left_of(timer(), line, TICK + cursor * 10 * SECOND)
    if rest is None:
        return None
    numbers = [(instant - TICK) // (10 * SECOND) for instant in (rest.first, rest.last)]
    return numbers[0], numbers[1], rest.ticks


@pytest.mark.parametrize(
    ("cursor", "expected"), [(0, (1, 4, 4)), (1, (2, 4, 3)), (3, (4, 4, 1)), (4, None), (9, None)]
)
def test_a_line_keeps_the_ticks_after_the_cursor(
    cursor: int, expected: tuple[int, int, int] | None
):
    assert left(cursor, 1, 4, 4) == expected


def test_a_line_with_gaps_loses_no_more_ticks_than_it_has():
    assert left(1, 1, 9, 3) == (2, 9, 2)
    assert left(5, 1, 9, 3) is None
