"""Seeds of every scenario: nothing is violated, and enough goes wrong on the way."""

import os
import subprocess
import sys
from hashlib import sha256

import pytest

from tenure.testing.sim.history import read_lines, write_lines
from tenure.testing.sim.many import FLOORS_FROM, Batch, below_floors, run_batch
from tenure.testing.sim.plan import FAULTS
from tenure.testing.sim.running import SCENARIOS, planned, run
from tenure.testing.sim.shorten import Cut
from tests.rig.sizes import SIZE

RUNS = {"locks": 240, "leases": 180, "jobs": 130, "fleet": 100, "timers": 150, "http": 100}
PARTS = range(1 if SIZE.name == "short" else 50)

# They have failed once, for bugs of the simulation or of what it simulates.
ONCE_FAILED = [
    ("jobs", 28),
    ("jobs", 55),
    ("jobs", 59),
    ("jobs", 133),
    ("jobs", 404),
    ("jobs", 1052),
    ("jobs", 1625),
    ("fleet", 2104),
    ("jobs", 100363),
    ("leases", 501080),
    ("locks", 700909),
    ("fleet", 1351),
    ("locks", 219),
    ("locks", 25502),
    ("jobs", 2019),
    ("jobs", 5654),
    ("leases", 257),
]


@pytest.mark.timeout(180)
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("scenario", RUNS)
def test_nothing_is_violated_and_enough_goes_wrong(scenario: str, part: int):
    everything, first = Batch(scenario), part * RUNS[scenario]
    for start in range(first, first + RUNS[scenario], 10):
        batch = run_batch(scenario, range(start, start + 10))
        assert not batch.failed, [
            (Cut(scenario=scenario, seed=seed).command, *wrong[:3]) for seed, wrong in batch.failed
        ]
        everything.add(batch)
    assert not below_floors({scenario: everything})


@pytest.mark.parametrize("scenario", RUNS)
def test_without_faults_it_fails_on_its_floors(scenario: str):
    batch = run_batch(scenario, range(FLOORS_FROM), faults=())
    assert not batch.failed
    assert below_floors({scenario: batch})


@pytest.mark.parametrize(("scenario", "seed"), ONCE_FAILED)
def test_seeds_that_failed_once(scenario: str, seed: int):
    assert not run(planned(seed, scenario)).wrong


def test_every_fault_is_drawn_and_may_be_off():
    drawn = [planned(seed, "jobs").faults for seed in range(200)]
    for fault in FAULTS:
        on = sum(fault in faults for faults in drawn)
        assert 10 < on < 180, fault


HASHES = """
import sys
from hashlib import sha256
from tenure.testing.sim.history import write_lines
from tenure.testing.sim.running import planned, run
runs = {"locks": 30, "leases": 20, "jobs": 12, "fleet": 6, "timers": 6, "http": 6}
for scenario, seeds in runs.items():
    for seed in range(seeds):
        lines = write_lines(run(planned(seed, scenario)).history)
        print(scenario, seed, sha256(lines).hexdigest())
assert not {"starlette", "fastapi", "httpx2"} & set(sys.modules)  # the routes need none of them
"""


def test_the_same_seed_gives_the_same_history_in_every_process():
    said = [
        subprocess.run(
            [sys.executable, "-c", HASHES],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert said[0] == said[1]
    assert len(set(said[0].split()[2::3])) == said[0].count("\n")  # and other seeds others
    lines = write_lines(run(planned(0, "jobs")).history)
    assert f"jobs 0 {sha256(lines).hexdigest()}" in said[0]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_histories_survive_being_written_down(scenario: str):
    history = run(planned(3, scenario)).history
    assert read_lines(write_lines(history)) == history
