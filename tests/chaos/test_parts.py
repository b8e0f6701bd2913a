"""The other parts of `make chaos`, in short: on one store each in the gate, on all in a soak."""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos import clocks
from tests.chaos.busy import busy_file
from tests.chaos.full import fill_memory
from tests.chaos.memory import eat_memory
from tests.chaos.places import FAMILIES, Family, missing, opened
from tests.chaos.tally import Tally
from tests.rig.sizes import SIZE

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.timeout(300 if SIZE.name != "soak" else 3600)


def on(*stores: Family) -> pytest.MarkDecorator:
    """Run a test on these stores; in a soak, on all."""
    chosen = stores if SIZE.name != "soak" else FAMILIES
    there = [store for store in chosen if not missing(store)]
    return pytest.mark.parametrize("store", there)


def seed() -> int:
    return random.SystemRandom().randrange(1_000_000)


def check(tally: Tally) -> None:
    print(tally.line(), tally.skipped)  # noqa: T201 - shown if it fails
    assert tally.violations == []
    assert tally.missed() == []


async def test_eight_processes_share_a_file_and_none_sees_it_locked(
    chaos_folder: Path,
):
    tally = Tally("sqlite busy")
    with opened("sqlite", chaos_folder) as place:
        await busy_file(place, tally, SIZE.storm, seed())
    check(tally)


@on("redis")
async def test_jobs_that_eat_all_memory_fail_alone(store: Family, chaos_folder: Path):
    tally = Tally(f"{store} memory")
    with opened(store, chaos_folder) as place:
        await eat_memory(place, tally, SIZE.storm, seed())
    check(tally)


@pytest.mark.proof("a test of the floors")
@on("redis")
async def test_without_poison_floors_are_missed_and_nothing_is_violated(
    store: Family, chaos_folder: Path
):
    tally = Tally(f"{store} memory")
    with opened(store, chaos_folder) as place:
        await eat_memory(place, tally, SIZE.storm, seed(), faults=False)
    assert tally.violations == []
    assert any(" 0 memory kills" in line for line in tally.missed())


@pytest.mark.proof("tests/process/test_full_redis.py fills one in the gate")
async def test_a_full_redis_keeps_its_locks_and_loses_nothing(chaos_folder: Path):
    if reason := missing("redis"):
        pytest.skip(reason)
    tally = Tally("redis full")
    with opened("redis", chaos_folder) as place:
        await fill_memory(place, tally, SIZE.storm, seed())
    check(tally)


@pytest.mark.proof("the gate sets clocks in tests/sim, tests/jobs and tests/timers")
@pytest.mark.skipif(bool(clocks.impossible()), reason=clocks.impossible())
@on("redis", "postgres")
async def test_a_clock_that_is_set_makes_nothing_stale_or_double(store: Family, chaos_folder: Path):
    tally = Tally(f"{store} clock")
    await clocks.set_clocks(store, chaos_folder, tally, SIZE.storm, seed())
    check(tally)


def full_disk(store: Family, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run it as a command, because mounts of its own are for a process without threads."""
    scale = "0.1" if SIZE.name != "soak" else "1"
    command = [sys.executable, "-m", "tests.chaos", "--part", "disk", "--store", store]
    run = subprocess.run(
        [*command, "--scale", scale, "--keep", str(folder), *options],
        cwd=ROOT,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if "skipped: " in run.stdout:
        pytest.skip(run.stdout)
    return run


@on("sqlite")
def test_a_full_disk_loses_nothing(store: Family, chaos_folder: Path):
    run = full_disk(store, chaos_folder)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "no violation" in run.stdout


@pytest.mark.proof("a test of the floors")
@on("sqlite")
def test_a_disk_with_room_misses_floors_and_violates_nothing(store: Family, chaos_folder: Path):
    run = full_disk(store, chaos_folder, "--no-faults")
    assert run.returncode == 1, run.stdout + run.stderr
    assert "chaos: FAILED: 0 violations, " in run.stdout, run.stdout
    assert " 0 full disks, at least " in run.stdout
