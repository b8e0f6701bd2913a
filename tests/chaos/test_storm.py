"""The short form of `make chaos`: a storm on each store, and what must make it fail."""

import random
from pathlib import Path

import pytest

from tests.chaos.places import FAMILIES, Family, missing, opened
from tests.chaos.storm import storm
from tests.chaos.tally import Tally
from tests.rig.sizes import SIZE


@pytest.fixture
def seed() -> int:
    """Another storm each time; it is printed with a failure."""
    return random.SystemRandom().randrange(1_000_000)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("store", FAMILIES)
async def test_nothing_is_lost_doubled_or_stale_in_a_storm(
    store: Family, seed: int, chaos_folder: Path
):
    if reason := missing(store):
        pytest.skip(reason)
    tally = Tally(f"{store}, seed {seed}")
    with opened(store, chaos_folder) as place:
        await storm(place, tally, SIZE.storm, seed)
    print(tally.line())  # noqa: T201 - shown if it fails
    assert tally.violations == []
    assert tally.missed() == []
