"""What `why` says about prepared situations: the same on every store, in virtual time."""

import pytest

from tenure import Why
from tests.why import jobs, locks, timers
from tests.why.scene import Scene, Situation

SITUATIONS = [*jobs.SITUATIONS, *timers.SITUATIONS, *locks.SITUATIONS]


def name_of(situation: Situation) -> str:
    subject = situation.stage.__module__.rpartition(".")[2]
    return f"{subject}-{situation.stage.__name__}"


@pytest.mark.parametrize("situation", SITUATIONS, ids=name_of)
async def test_what_is_said(scene: Scene, situation: Situation):
    why = await situation.stage(scene)
    assert why == Why(situation.text, situation.next, situation.code)
