"""What a failing seed leaves behind: a command that replays it, and a shorter one."""

import subprocess
import sys

import pytest

from tenure.testing.sim import __main__ as command
from tenure.testing.sim import running
from tenure.testing.sim.history import Entry, write_lines
from tenure.testing.sim.many import Batch, below_floors
from tenure.testing.sim.running import planned, run
from tenure.testing.sim.shorten import Cut, shorten


def with_events(*kinds: str) -> int:
    """Return a seed whose plan has several events, these among them."""
    for seed in range(1000):
        events = [event.what for event in planned(seed, "jobs").events]
        if len(events) > 5 and set(kinds) <= set(events):
            return seed
    raise AssertionError(kinds)


def test_a_plan_is_shortened_to_what_it_needs():
    seed = with_events("crash", "pause")

    def is_bad(cut: Cut) -> bool:
        kinds = {event.what for event in cut.plan.events}
        return {"crash", "pause"} <= kinds

    shortest = shorten(Cut(scenario="jobs", seed=seed), is_bad)
    assert sorted(event.what for event in shortest.plan.events) == ["crash", "pause"]
    assert not shortest.plan.weather


def test_a_shortened_command_means_the_shortened_plan(tmp_path, capsys, monkeypatch):
    seed = with_events("crash", "pause")
    cut = Cut(scenario="jobs", seed=seed, without=("pause",), dropped=(0,), until=4.0)
    words = cut.command.removeprefix("python -m tenure.testing.sim ").replace("'", "").split()
    monkeypatch.setattr(sys, "argv", ["sim", *words, "--history", str(tmp_path / "lines")])
    assert command.main() == 0
    assert str(cut.plan) in capsys.readouterr().out
    assert (tmp_path / "lines").read_bytes() == write_lines(run(cut.plan).history)


def test_a_failure_is_told_with_its_command(monkeypatch, capsys):
    def dislike(history: list[Entry]) -> list[str]:
        return [f"{entry.at} s: a crash" for entry in history if entry.what == "crash"]

    monkeypatch.setattr(running, "check_told", dislike)
    seed = next(seed for seed in range(100) if run(planned(seed, "locks")).wrong)
    wrong = run(planned(seed, "locks")).wrong
    command._print_failure(Cut(scenario="locks", seed=seed), wrong, is_shortened=True)
    said = capsys.readouterr().out
    assert f"replay:    python -m tenure.testing.sim --scenario locks --seed {seed}\n" in said
    shortened = next(line for line in said.splitlines() if line.startswith("shortened: "))
    assert "--without" in shortened or len(planned(seed, "locks").faults) == 1


@pytest.mark.parametrize("option", [(), ("--no-faults",)])
def test_many_runs_by_command(option):
    done = subprocess.run(
        [sys.executable, "-m", "tenure.testing.sim", "--scenario", "locks", "--count=120", *option],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "120 histories, 0 with violations" in done.stdout
    assert ("too little happened" in done.stdout) == bool(option)
    assert done.returncode == bool(option)


def test_no_runs_are_no_success(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["sim", "--count", "0"])
    assert command.main() == 1


def test_floors_need_enough_runs():
    assert not below_floors({"jobs": Batch("jobs", runs=99)})
    assert below_floors({"jobs": Batch("jobs", runs=100)})
