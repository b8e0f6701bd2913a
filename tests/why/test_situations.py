"""What `why` says about prepared situations: the same on every store, in virtual time."""

from collections.abc import AsyncIterator

import pytest

from tenure import Tenure, Why
from tenure.testing import ManualClock
from tests.contract.worlds import World
from tests.why import jobs
from tests.why.scene import Scene, Situation

SITUATIONS = [*jobs.SITUATIONS]


@pytest.fixture
async def scene(world: World, clock: ManualClock) -> AsyncIterator[Scene]:
    """An app on an empty store."""
    async with Tenure(world.unopened(), grace=0) as app:
        yield Scene(app, await world.store(), clock)


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda situation: situation.name)
async def test_what_is_said(scene: Scene, situation: Situation):
    why = await situation.stage(scene)
    assert why == Why(situation.text, situation.next, situation.code)
