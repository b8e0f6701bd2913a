"""The shop of `make chaos`, for a few seconds: the same code, with one kill and a small flood."""

import random
from pathlib import Path

import pytest

from tests.chaos.places import missing, opened
from tests.chaos.shop.run import run_shop
from tests.chaos.tally import Tally
from tests.rig.sizes import SIZE

pytestmark = [
    pytest.mark.timeout(300 if SIZE.name == "short" else 3600),
    pytest.mark.skipif(bool(missing("redis")), reason=missing("redis")),
]


async def test_the_shop_loses_and_doubles_nothing(chaos_folder: Path):
    tally = Tally("redis shop")
    with opened("redis", chaos_folder) as place:
        await run_shop(place, tally, SIZE.storm, random.SystemRandom().randrange(1_000_000))
    print(tally.line())  # noqa: T201 - shown if it fails
    assert tally.violations == []
    assert tally.missed() == []
