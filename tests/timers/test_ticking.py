"""Decides which ticks run, are skipped or wait: pure decisions."""

from datetime import UTC, datetime

import msgspec
import pytest

from tenure.core.calendar.blackouts import Blackout, daily, window
from tenure.core.calendar.rules import Every
from tenure.core.schedules.definition import Definition, RunOptions
from tenure.core.schedules.steps import Step, next_due, next_step, preview

MINUTE = 60_000_000
HOUR = 60 * MINUTE
ZERO = int(datetime(2026, 11, 2, tzinfo=UTC).timestamp()) * 1_000_000  # a Monday, midnight


def definition(*blackouts: Blackout, **details) -> Definition:
    fields = {"kind": "timer", "rule": Every(MINUTE), "run": RunOptions(task="@work", queue="q")}
    return Definition(**{**fields, "blackouts": blackouts, **details})


def at(minutes: float) -> int:
    return ZERO + round(minutes * MINUTE)


def test_before_the_tick_it_waits_for_its_due_instant():
    assert next_step(definition(), at(0), at(0.5)) == at(1)
    assert next_step(definition(offset=5_000_000), at(0), at(1)) == at(1) + 5_000_000


def test_when_it_is_due_it_runs():
    assert next_step(definition(), at(0), at(1)) == Step(to=at(1), due=at(1), runs=True)


def test_with_an_offset_a_tick_is_due_later():
    step = next_step(definition(offset=5_000_000), at(0), at(1) + 5_000_000)
    assert step == Step(to=at(1), due=at(1) + 5_000_000, runs=True)


def test_a_blackout_skips_ticks_and_says_so():
    step = next_step(definition(daily("00:00-06:00")), at(0), at(1))
    assert isinstance(step, Step)
    assert not step.runs
    assert [(decision.outcome, decision.reason) for decision in step.passed] == [
        ("skipped", "blackout")
    ]
    assert next_due(definition(daily("00:00-06:00")), at(0)) == (at(360), at(360))


def test_a_blackout_may_defer_to_its_end():
    deferring = definition(daily("00:00-06:00", action="defer"))
    assert next_step(deferring, at(0), at(1)) == at(360)
    step = next_step(deferring, at(0), at(360) + 1)
    assert isinstance(step, Step)
    assert (step.to, step.due, step.runs) == (at(360), at(360), True)
    assert [(decision.reason, decision.ticks) for decision in step.passed] == [("late", 359)]


def test_a_rare_tick_that_was_deferred_runs_when_the_blackout_ends():
    rare = definition(daily("00:00-06:30", action="defer"), rule=Every(4 * HOUR))
    assert next_step(rare, at(0), at(241)) == at(390)
    step = next_step(rare, at(0), at(391))
    assert isinstance(step, Step)
    assert (step.to, step.due, step.runs) == (at(240), at(390), True)


def test_a_tick_deferred_into_a_blackout_is_skipped():
    both = definition(
        daily("04:00-05:00", action="defer"), daily("05:00-06:00"), rule=Every(4 * HOUR)
    )
    step = next_step(both, at(0), at(300))
    assert isinstance(step, Step)
    assert not step.runs


def test_a_long_blackout_is_not_walked_through():
    start, end = datetime(2026, 11, 2, tzinfo=UTC), datetime(2027, 11, 2, tzinfo=UTC)
    quiet = definition(window(start, end), rule=Every(1_000_000))
    assert preview(quiet, ZERO - 2_000_000, 3) == [
        (tick, tick)
        for tick in (
            ZERO - 1_000_000,
            ZERO + 365 * 24 * HOUR,
            ZERO + 365 * 24 * HOUR + 1_000_000,
        )
    ]


@pytest.mark.parametrize(("late", "runs"), [(9, True), (11, False)])
def test_none_still_runs_what_is_a_little_late(late: int, runs: bool):
    step = next_step(definition(catch_up="none"), at(0), at(1) + late * 1_000_000)
    assert isinstance(step, Step)
    assert step.runs == runs


def test_very_many_missed_ticks_are_counted_up_to_a_bound():
    step = next_step(definition(rule=Every(1_000_000)), at(0), at(60 * 24 * 30))
    assert isinstance(step, Step)
    assert [decision.ticks for decision in step.passed] == [1_000]


def test_a_definition_is_the_same_after_it_was_written_down():

    full = definition(daily("22:00-06:00", tz="Europe/Berlin"), limit=3, within=5.0, offset=7)
    assert msgspec.json.decode(full.encode(), type=Definition) == full
    assert full.digest == msgspec.json.decode(full.encode(), type=Definition).digest
    assert full.digest != definition().digest
