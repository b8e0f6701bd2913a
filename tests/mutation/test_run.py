"""`make mutate` itself: its verdicts about mutants are right."""

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from tests.mutation.equivalents import Equivalents
from tests.mutation.mutant import Edit, Mutant, Source
from tests.mutation.python import edits
from tests.mutation.reach import Reach
from tests.mutation.session import Order, TestResult
from tests.mutation.trial import Limits, Trial
from tests.mutation.verdicts import Ledger, Verdict, rate, report, table
from tests.mutation.workbench import Report, Workbench, _read

ROOT = Path(__file__).parents[2]

SOURCE = '''\
"""Sums."""


def larger(a, b):
    return a if a > b else b


def is_small(a):
    return a < 10


def never_called(a):
    return a + 1
'''
TESTS = """\
import subprocess
import sys

from tenure.core.sums import is_small, larger


def test_larger():
    assert larger(1, 2) == 2
    assert larger(2, 1) == 2


def test_is_small_in_another_process():
    code = "from tenure.core.sums import is_small; print(is_small(3))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout == "True\\n"


def test_that_fails_anyway():
    assert is_small(20)
"""
EQUIVALENT = """\
With equal numbers it is the same which one is returned.
src/tenure/core/sums.py: larger
-    return a if a > b else b
+    return a if a >= b else b
"""
STALE = """\
It is gone.
src/tenure/core/sums.py: smaller
-    return a if a < b else b
+    return a if a <= b else b
"""


OPERATORS = ("--operator", "boundary", "--operator", "comparison", "--operator", "arithmetic")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A source of a few lines, with tests that have gaps."""
    root = tmp_path_factory.mktemp("project")
    package = root / "src" / "tenure" / "core"
    package.mkdir(parents=True)
    for folder in (package, package.parent):
        (folder / "__init__.py").touch()
    (package / "sums.py").write_text(SOURCE)
    (root / "tests" / "mutation").mkdir(parents=True)
    (root / "tests" / "test_sums.py").write_text(TESTS)
    (root / "tests" / "mutation" / "equivalents.txt").write_text(f"{EQUIVALENT}\n{STALE}")
    return root


def mutate(project: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.mutation", "--root", str(project), "--workers", "1"]
    return subprocess.run(
        [*command, *options],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def run(project: Path) -> subprocess.CompletedProcess[str]:
    """A run over all mutants of the project."""
    return mutate(project, *OPERATORS)


def ledger_of(project: Path) -> Path:
    return project / ".cache" / "mutation" / "seed-1.jsonl"


def verdicts(project: Path) -> dict[str, dict[str, Any]]:
    """Return what is known of each mutant, by the line it writes."""
    entries = [json.loads(line) for line in ledger_of(project).read_text().splitlines()]
    assert len({verdict["id"] for verdict in entries}) == len(entries)
    return {verdict["hunk"][-1][1:].strip(): verdict for verdict in entries}


@pytest.mark.timeout(180)
def test_a_run_tells_what_is_caught_from_what_survives(
    project: Path, run: subprocess.CompletedProcess[str]
):
    assert run.returncode == 1, run.stdout + run.stderr
    by_line = verdicts(project)
    outcomes = {line: verdict["outcome"] for line, verdict in by_line.items()}
    assert outcomes == {
        "return a if a <= b else b": "caught",
        "return a >= 10": "caught",
        "return a <= 10": "survived",
        "return a - 1": "survived",
    }
    assert by_line["return a if a <= b else b"]["by"] == "tests/test_sums.py::test_larger"
    assert by_line["return a >= 10"]["by"].endswith("test_is_small_in_another_process")
    # The one test that fails also fails without a mutant, so it catches nothing.
    assert "1 tests fail without a mutant and are left out" in run.stdout
    assert by_line["return a <= 10"]["ran"] == 1
    assert (
        "src/tenure/core/sums.py: is_small\n-    return a < 10\n+    return a <= 10" in run.stdout
    )
    assert by_line["return a - 1"]["why"] == "no test runs this line"
    # The equivalent one is not tried, and counted by itself.
    [total] = [line for line in run.stdout.splitlines() if line.startswith("all ")]
    assert total.split() == ["all", "5", "2", "0", "2", "1", "0", "50", "%"]
    assert (
        "STALE: no mutant fits this entry of equivalents.txt any more:\nIt is gone." in run.stdout
    )


@pytest.mark.proof("a tool of our own, which takes long")
@pytest.mark.timeout(180)
def test_a_run_that_was_cut_off_goes_on(project: Path, run: subprocess.CompletedProcess[str]):
    before = verdicts(project)
    path = ledger_of(project)
    *lines, last = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines, last[:30]]))
    again = mutate(project, *OPERATORS, "--resume")
    assert again.returncode == 1, again.stdout + again.stderr
    assert verdicts(project).keys() == before.keys()
    tried = [line for line in again.stdout.splitlines() if " % caught, " in line]
    assert json.loads(last)["id"] in tried[0]
    assert len(tried) == 2, again.stdout  # that verdict, and the last line of the run


@pytest.mark.proof("a tool of our own, which takes long")
@pytest.mark.timeout(180)
def test_one_mutant_can_be_replayed(project: Path, run: subprocess.CompletedProcess[str]):
    mutant = verdicts(project)["return a <= 10"]["id"]
    replay = mutate(project, "--mutant", mutant)
    assert replay.returncode == 1, replay.stdout + replay.stderr
    assert f"survived {mutant} src/tenure/core/sums.py:9 is_small" in replay.stdout


def test_every_entry_is_about_a_file_of_the_source():
    """Whether it still fits a mutant is for `make mutate` to say: code may move in between."""
    entries = Equivalents.read(ROOT / "tests" / "mutation" / "equivalents.txt").entries
    assert [entry.file for entry in entries if not (ROOT / entry.file).is_file()] == []


def test_an_entry_fits_its_mutant_wherever_that_is(tmp_path: Path):
    (tmp_path / "equivalents.txt").write_text(f"# A comment.\n\n{EQUIVALENT}\n{STALE}")
    equivalents = Equivalents.read(tmp_path / "equivalents.txt")
    moved = "class A:\n    pass\n\n\n" + SOURCE
    mutants = [Source("src/other.py", moved).mutant(edit) for edit in edits(moved)]
    reasons = [reason for mutant in mutants if (reason := equivalents.reason(mutant))]
    assert reasons == ["With equal numbers it is the same which one is returned."]
    assert [entry.key[0] for entry in equivalents.stale(mutants)] == ["smaller"]


@pytest.mark.parametrize("text", ["Only a reason.\n", "src/a.py: f\n-a\n+b\n"])
def test_an_entry_without_a_reason_or_a_place_is_refused(text: str, tmp_path: Path):
    (tmp_path / "equivalents.txt").write_text(text)
    with pytest.raises(ValueError, match="it needs a reason"):
        Equivalents.read(tmp_path / "equivalents.txt")


# What a failure has to be to count, with sessions that were made up.


@dataclass
class Sessions:
    """Stands for a workbench: each session ends as told, in this order."""

    root: Path
    results: list[TestResult | str]
    baseline_is_green: bool = True
    orders: list[Any] = field(default_factory=list)

    def text_of(self, file: str) -> str:
        return (self.root / file).read_text()

    @contextmanager
    def planted(self, mutant: Mutant) -> Iterator[str]:
        yield ""

    def order(self, **details: Any) -> dict[str, Any]:
        return details

    def run(self, order: dict[str, Any]) -> Report:
        self.orders.append(order)
        end = self.results.pop(0)
        if isinstance(end, str):
            return Report((), end, None)
        return Report((end,), "", None)

    def passes(self, test: str, limit: float) -> bool:
        return self.baseline_is_green


class KnownTests:
    """Stands for what is known of the tests."""

    def tests_for(self, mutant: Mutant) -> list[str]:
        return ["tests/a.py::x", "tests/a.py::y"]

    def seconds(self, test: str) -> float:
        return 0.1

    def is_reached(self, mutant: Mutant) -> bool:
        return True


def judged(
    tmp_path: Path, results: Iterable[TestResult | str], *, baseline_is_green: bool = True
) -> Verdict:
    path = tmp_path / "src" / "a.py"
    path.parent.mkdir(exist_ok=True)
    path.write_text("def f(a):\n    return a < 1\n")
    edit = Edit(23, 24, "<=", "boundary")
    mutant = Source("src/a.py", path.read_text()).mutant(edit)
    assert mutant.hunk[-1] == "+    return a <= 1"
    sessions = Sessions(tmp_path, list(results), baseline_is_green)
    trial = Trial(cast("Workbench", sessions), cast("Reach", KnownTests()), Limits())
    return trial.judge(mutant)


def red(test: str = "x", outcome: Any = "failed") -> TestResult:
    return TestResult(f"tests/a.py::{test}", outcome, 0.1, "E: wrong")


def green(test: str = "x") -> TestResult:
    return TestResult(f"tests/a.py::{test}", "passed", 0.1)


def test_a_failure_that_comes_again_is_a_catch(tmp_path: Path):
    verdict = judged(tmp_path, [red(), red()])
    assert (verdict.outcome, verdict.by) == ("caught", "tests/a.py::x")


def test_a_time_out_that_comes_again_is_told_by_itself(tmp_path: Path):
    late = red(outcome="timed out")
    assert judged(tmp_path, [late, late]).outcome == "timed out"


def test_a_failure_that_does_not_come_again_is_unsteady_and_no_catch(tmp_path: Path):
    verdict = judged(tmp_path, [red(), green(), green(), green("y")])
    assert (verdict.outcome, verdict.unsteady) == ("survived", ["tests/a.py::x"])
    assert verdict.ran == 1
    verdict = judged(tmp_path, [red(), green(), red()])
    assert verdict.outcome == "caught"


def test_a_test_that_fails_without_the_mutant_is_no_catch(tmp_path: Path):
    results = [red(), red(), green("y")]
    verdict = judged(tmp_path, results, baseline_is_green=False)
    assert (verdict.outcome, verdict.by) == ("survived", "")


def test_a_source_that_does_not_load_is_invalid(tmp_path: Path):
    verdict = judged(tmp_path, ["NameError: a"])
    assert (verdict.outcome, verdict.why) == ("invalid", "NameError: a")


def test_a_report_that_was_cut_off_in_a_line_can_be_read(tmp_path: Path):
    order = Order(root=tmp_path, source=tmp_path, folder=tmp_path, files=("tests/a.py",))
    line = '{"test": "tests/a.py::x", "outcome": "passed", "seconds": 0.1, "why": "", "hits": ""}'
    order.report.write_text(f'{line}\n{{"start": "tests/a.py::y"}}\n{line[:30]}')
    report = _read(order, False)
    assert [result.test for result in report.results] == ["tests/a.py::x"]
    assert report.cut is not None
    assert report.cut.test == "tests/a.py::y"


# The report.


def verdict(outcome: Any, key: str = "1", **facts: Any) -> Verdict:
    return Verdict(
        id=key,
        file="src/tenure/core/a.py",
        place="f",
        line=3,
        operator="boundary",
        hunk=("-a < b", "+a <= b"),
        outcome=outcome,
        **facts,
    )


def test_the_rate_leaves_out_what_was_not_tried():
    tried = [verdict("caught")] * 2 + [verdict("timed out"), verdict("survived")]
    assert rate([*tried, verdict("invalid"), verdict("equivalent")]) == 75.0
    assert "75 %" in table(tried)
    assert rate([]) == 100.0


def test_a_survivor_is_shown_in_the_words_of_equivalents(tmp_path: Path):
    lines = list(report([verdict("survived", files={"tests/a.py": 2}, ran=2)]))
    assert "src/tenure/core/a.py: f" in lines
    assert lines[-3:] == ["-a < b", "+a <= b", "  2 tests passed: tests/a.py (2)"]


def test_a_ledger_that_was_cut_off_in_a_line_can_be_read(tmp_path: Path):
    path = tmp_path / "a.jsonl"
    ledger = Ledger(path, resume=False)
    ledger.add(verdict("caught", "1"))
    ledger.add(verdict("survived", "2"))
    path.write_bytes(path.read_bytes()[:-20])
    again = Ledger(path, resume=True)
    assert list(again.verdicts) == ["1"]
    again.add(verdict("survived", "2"))
    again = Ledger(path, resume=True)
    assert list(again.verdicts) == ["1", "2"]
    again.forget_survivors()
    assert list(again.verdicts) == ["1"]
    assert Ledger(path, resume=False).verdicts == {}
