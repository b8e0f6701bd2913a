"""Work costs what is recorded: the same statements, round trips, commands and bytes."""

import pytest

from tests.cost import table
from tests.cost.meters import METERS, Meter
from tests.cost.scenarios import SCENARIOS, Scenario
from tests.cost.stage import perform


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
async def test_work_costs_what_is_recorded(family: str, meter: Meter, scenario: Scenario):
    costs = await perform(meter, scenario)
    recorded = table.read().get(family, {})
    expected = {work: recorded[work] for work in SCENARIOS[scenario] if work in recorded}
    problems = table.differences(family, costs, expected)
    assert not problems, "\n" + "\n".join(problems)


def test_nothing_is_recorded_that_is_not_measured():
    measured = [work for works in SCENARIOS.values() for work in works]
    recorded = table.read()
    assert set(recorded) == set(METERS)
    for store, costs in recorded.items():
        assert list(costs) == measured, store
        assert all(tuple(cost) == METERS[store].measures for cost in costs.values())
