"""The short form of `make chaos`: a storm on each store, and storms that must fail."""

import random
from pathlib import Path

import pytest

from tests.chaos.places import FAMILIES, Family, missing, opened
from tests.chaos.storm import storm
from tests.chaos.tally import Tally
from tests.rig.sizes import SIZE

pytestmark = pytest.mark.timeout(300 if SIZE.name == "short" else 3600)


async def weathered(store: Family, folder: Path, **options: bool) -> Tally:
    """Return what a storm came to: another one each time, by a seed that is shown."""
    if reason := missing(store):
        pytest.skip(reason)
    seed = random.SystemRandom().randrange(1_000_000)
    tally = Tally(f"{store}, seed {seed}")
    with opened(store, folder) as place:
        await storm(place, tally, SIZE.storm, seed, **options)
    print(tally.line())  # noqa: T201 - shown if it fails
    return tally


@pytest.mark.draw(1)
@pytest.mark.parametrize("store", FAMILIES)
async def test_nothing_is_lost_doubled_or_stale_in_a_storm(store: Family, chaos_folder: Path):
    tally = await weathered(store, chaos_folder)
    assert tally.violations == []
    assert tally.missed() == []


@pytest.mark.proof("a test of the floors")
async def test_fair_weather_is_no_success(chaos_folder: Path):
    tally = await weathered("sqlite", chaos_folder, faults=False)
    assert tally.violations == []
    missed = " ".join(tally.missed())
    for name in ("kills", "pauses", "expiries while held", "stale writes refused", "recovered"):
        assert f" 0 {name}" in missed
    assert tally.failed


@pytest.mark.proof("a test of the judge")
async def test_a_sink_without_fences_is_found_out(chaos_folder: Path):
    tally = await weathered("redis", chaos_folder, fenced=False)
    assert tally.counts["stale effects accepted"] > 0
    assert tally.counts["doubled"] > 0
    assert tally.failed
