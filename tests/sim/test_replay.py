"""A failing seed prints a command that replays it, and a shorter one."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.sim import __main__ as command
from tests.sim import verdict
from tests.sim.batches import SHARES, Batch, _batches, below_minimums
from tests.sim.history import Entry, write_lines
from tests.sim.minimums import RUNS_FOR_MINIMUMS
from tests.sim.runner import planned, run
from tests.sim.scenarios.catalog import SCENARIOS
from tests.sim.shorten import Replay, interpreter, shorten

ROOT = Path(__file__).parents[2]


def with_events(*kinds: str) -> int:
    """Return a seed whose plan has several events, these among them."""
    for seed in range(1000):
        events = [event.what for event in planned(seed, "jobs").events]
        if len(events) > 5 and set(kinds) <= set(events):
            return seed
    raise AssertionError(kinds)


def test_a_plan_is_shortened_to_what_it_needs():
    seed = with_events("crash", "pause")

    def is_bad(cut: Replay) -> bool:
        kinds = {event.what for event in cut.plan.events}
        return {"crash", "pause"} <= kinds

    shortest = shorten(Replay(scenario="jobs", seed=seed), is_bad)
    assert sorted(event.what for event in shortest.plan.events) == ["crash", "pause"]
    assert not shortest.plan.call_faults


def test_a_shortened_command_means_the_shortened_plan(tmp_path, capsys, monkeypatch):
    seed = with_events("crash", "pause")
    cut = Replay(scenario="jobs", seed=seed, without=("pause",), dropped=(0,), until=4.0)
    words = cut.command.partition(" -m tests.sim ")[2].replace("'", "").split()
    monkeypatch.setattr(sys, "argv", ["sim", *words, "--history", str(tmp_path / "lines")])
    assert command.main() == 0
    assert str(cut.plan) in capsys.readouterr().out
    assert (tmp_path / "lines").read_bytes() == write_lines(run(cut.plan).history)


def test_a_failure_is_printed_with_the_command_that_replays_it(monkeypatch, capsys):
    def dislike(history: list[Entry]) -> list[str]:
        return [f"{entry.at} s: a crash" for entry in history if entry.what == "crash"]

    monkeypatch.setattr(verdict, "check_unexpected_errors", dislike)
    seed = next(seed for seed in range(100) if run(planned(seed, "locks")).wrong)
    wrong = run(planned(seed, "locks")).wrong
    command._print_failure(Replay(scenario="locks", seed=seed), wrong, is_shortened=True)
    output = capsys.readouterr().out
    replay = f"{interpreter()} -m tests.sim --scenario locks --seed {seed}"
    assert f"replay:    {replay}\n" in output
    shortened = next(line for line in output.splitlines() if line.startswith("shortened: "))
    assert "--without" in shortened or len(planned(seed, "locks").faults) == 1


@pytest.mark.draw(1)
@pytest.mark.parametrize("option", [(), ("--no-faults",)])
def test_many_runs_by_command(option):
    done = subprocess.run(
        [sys.executable, "-m", "tests.sim", "--scenario", "locks", "--count=120", *option],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    verdict = "FAILED" if option else "passed"
    assert f"\nsim: {verdict}: 120 histories, 0 with violations" in done.stdout
    assert ("too little happened" in done.stdout) == bool(option)
    assert done.returncode == bool(option)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--count 9", "--count must be at least 10"),
        ("--count 0 --scenario jobs", "--count must be at least 1"),
        ("--seed 3", "--seed needs a --scenario"),
        ("--seed 3 --scenario jobs --without delys", "no fault is called 'delys'"),
        ("--seed 3 --scenario jobs --drop 99", "there is no event '99', only 0"),
        ("--seed 3 --scenario jobs --drop x", "there is no event 'x'"),
        ("--seed 3 --scenario jobs --history no/where", "there is no folder no"),
    ],
)
def test_meaningless_arguments_are_refused(words: str, message: str, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["sim", *words.split()])
    with pytest.raises(SystemExit, match="2"):
        command.main()
    assert message in capsys.readouterr().err


def test_the_command_is_for_whoever_stands_here(tmp_path, monkeypatch):
    python = tmp_path / "bin" / "python"
    monkeypatch.setattr(sys, "executable", str(python))
    assert interpreter() == "python"
    monkeypatch.chdir(tmp_path)
    assert interpreter() == "bin/python"


def test_a_part_of_all_runs_is_like_the_whole():
    batches = list(_batches(2000, list(SCENARIOS), 5))
    half = Counter(dict.fromkeys(SCENARIOS, 0))
    for name, seeds in batches[: len(batches) // 2]:
        half[name] += len(seeds)
    whole = {name: round(2000 * share) for name, share in SHARES.items()}
    assert all(abs(half[name] - runs / 2) <= 25 for name, runs in whole.items())
    every = {
        name: [seed for scenario, seeds in batches if scenario == name for seed in seeds]
        for name in whole
    }
    assert every == {name: list(range(5, 5 + runs)) for name, runs in whole.items()}


def test_floors_need_enough_runs():
    few = {"jobs": Batch("jobs", runs=RUNS_FOR_MINIMUMS - 1)}
    assert not below_minimums(few)
    assert "too few of jobs to say whether enough went wrong" in command._verdict(few, 0, 0)
    assert below_minimums({"jobs": Batch("jobs", runs=RUNS_FOR_MINIMUMS)})
