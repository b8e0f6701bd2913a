"""Seeds of every scenario: nothing is violated, and enough goes wrong on the way."""

import asyncio
import gc
import os
import subprocess
import sys
from hashlib import sha256
from math import prod
from pathlib import Path

import pytest

from tests.rig.sizes import SIZE
from tests.sim.batches import Batch, below_minimums, is_compared, run_batch
from tests.sim.fleet import Fleet
from tests.sim.history import read_lines, write_lines
from tests.sim.minimums import MINIMUMS, RUNS_FOR_MINIMUMS
from tests.sim.plan import FAULTS
from tests.sim.runner import Outcome, planned, run
from tests.sim.scenarios import jobs
from tests.sim.scenarios.catalog import SCENARIOS
from tests.sim.shorten import Replay

ROOT = Path(__file__).parents[2]
RUNS = {
    "locks": 120,
    "leases": 80,
    "jobs": 60,
    "fleet": 60,
    "clocks": 60,
    "timers": 60,
    "http": 60,
}
"""All scenarios but the shop, whose hour takes seconds; see `test_shop`."""
PARTS = range({"short": 1, "proof": 4, "soak": 50}[SIZE.name])


@pytest.mark.timeout(180)
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("scenario", RUNS)
def test_nothing_is_violated_and_enough_goes_wrong(scenario: str, part: int):
    everything, first = Batch(scenario), part * RUNS[scenario]
    for start in range(first, first + RUNS[scenario], 10):
        batch = run_batch(scenario, range(start, start + 10))
        assert not batch.failed, [
            (Replay(scenario=scenario, seed=seed).command, *wrong[:3])
            for seed, wrong in batch.failed
        ]
        everything.add(batch)
    assert not below_minimums({scenario: everything})


@pytest.mark.timeout(180)
@pytest.mark.proof("a test of the floors")
@pytest.mark.parametrize("scenario", RUNS)
def test_without_faults_it_fails_on_its_floors(scenario: str):
    batch = run_batch(scenario, range(RUNS_FOR_MINIMUMS), faults=())
    assert not batch.failed
    assert below_minimums({scenario: batch})


def open_loops() -> list[asyncio.AbstractEventLoop]:
    gc.collect()
    loops = [obj for obj in gc.get_objects() if isinstance(obj, asyncio.AbstractEventLoop)]
    return [loop for loop in loops if not loop.is_closed()]


def test_taking_a_run_apart_makes_no_event_loop():
    before = open_loops()
    for seed in range(20):
        run(planned(seed, "fleet"))
    assert open_loops() == before


@pytest.fixture(scope="module")
def some_locks() -> list[Outcome]:
    return [run(planned(seed, "locks")) for seed in range(200)]


@pytest.mark.proof("a test of the floors")
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_that_does_not_come_true_is_missed(fault: str, some_locks: list[Outcome]):
    rest = [kind for kind in FAULTS if kind != fault]
    without = [
        outcome
        for outcome in some_locks
        if outcome.plan == planned(outcome.plan.seed, "locks", rest)
    ]
    many = Batch("locks", runs=1000)  # they stand for as many as rare faults need
    for outcome in 10 * without[:RUNS_FOR_MINIMUMS]:
        many.counts.update(outcome.counts)
    assert len(without) > RUNS_FOR_MINIMUMS
    assert [line for line in below_minimums({"locks": many}) if f" runs with {fault} " in line]


@pytest.mark.parametrize(("direction", "sign"), [("ahead", 1), ("back", -1)])
def test_a_clock_that_is_never_set_in_one_direction_is_missed(direction: str, sign: int):
    few = Batch("clocks", runs=RUNS_FOR_MINIMUMS)  # they stand for that many
    for plan in (planned(seed, "clocks") for seed in range(8)):
        other = plan.only([event.number for event in plan.events if sign * event.amount <= 0])
        few.counts.update(run(other).counts)
    missed = "\n".join(below_minimums({"clocks": few}))
    for what in ("steps", "claims after a step", "ticks after a step"):
        assert f" {what} {direction} in " in missed


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_fault_has_a_floor(scenario: str):
    assert {f"runs with {fault}" for fault in FAULTS} <= MINIMUMS[scenario].keys()


@pytest.mark.parametrize("scenario", sorted(RUNS.keys() - {"locks", "leases"}))
def test_steps_of_the_stores_clock_have_floors_in_both_directions(scenario: str):
    assert {"steps ahead", "steps back"} <= MINIMUMS[scenario].keys()


def test_every_fault_is_drawn_and_may_be_off():
    drawn = [planned(seed, "jobs").faults for seed in range(200)]
    for fault in FAULTS:
        on = sum(fault in faults for faults in drawn)
        assert 10 < on < 180, fault


def shape_of(scenario: str, seed: int) -> tuple[int, bool, int, bool]:
    """Return what a run is like, whatever goes wrong in it."""
    plan = planned(seed, scenario)
    fleet = Fleet(plan, SCENARIOS[scenario].program)
    SCENARIOS[scenario].begin(fleet)
    fleet.loop.close()
    has_operator = "operator" in fleet.machines[0].disk
    return plan.machines, plan.is_mild, jobs.loss_budget(plan), has_operator


@pytest.mark.parametrize(("scenario", "shapes"), [("leases", 12), ("jobs", 12), ("timers", 24)])
def test_everything_is_met_by_everything_else(scenario: str, shapes: int):
    met = {shape_of(scenario, seed) for seed in range(500)}
    assert len(met) == shapes == prod(len(set(kinds)) for kinds in zip(*met, strict=True))


def test_runs_of_every_shape_are_compared():
    compared = [seed for seed in range(10_000) if is_compared("jobs", seed)]
    assert [seed // 100 for seed in compared] == list(range(100))
    assert len({shape_of("jobs", seed) for seed in compared}) > 8


HASHES = """
import sys
from hashlib import sha256
from tests.sim.history import write_lines
from tests.sim.runner import planned, run
runs = {"locks": 30, "leases": 20, "jobs": 12, "fleet": 6, "clocks": 3, "timers": 6, "http": 6}
for scenario, seeds in runs.items():
    for seed in range(seeds):
        lines = write_lines(run(planned(seed, scenario)).history)
        print(scenario, seed, sha256(lines).hexdigest())
assert not {"starlette", "fastapi", "httpx2"} & set(sys.modules)  # the routes need none of them
"""


def test_the_same_seed_gives_the_same_history_in_every_process():
    histories = [
        subprocess.run(
            [sys.executable, "-c", HASHES],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert histories[0] == histories[1]
    assert len(set(histories[0].split()[2::3])) == histories[0].count(
        "\n"
    )  # and other seeds others
    lines = write_lines(run(planned(0, "jobs")).history)
    assert f"jobs 0 {sha256(lines).hexdigest()}" in histories[0]


@pytest.mark.parametrize("scenario", RUNS)
def test_histories_survive_being_written_down(scenario: str):
    history = run(planned(3, scenario)).history
    assert read_lines(write_lines(history)) == history
