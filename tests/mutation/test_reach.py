"""Which tests reach a mutant, also after the code changed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutation.mutant import Mutant
from tests.mutation.probes import HITS_VARIABLE, hits_in_log, instrument, probes_of
from tests.mutation.reach import Reach
from tests.mutation.sample import Filter, all_mutants
from tests.mutation.session import TestResult

SOURCE = '''\
"""A module."""

from __future__ import annotations

LIMIT = len('ab') + 1
DUE = "SELECT id FROM job WHERE due <= :now "


def first(a):
    """Have a docstring."""
    if a > LIMIT:
        return "large"
    return "small"


def second(run):
    return run(DUE)
'''
TESTS = {
    "tests/test_a.py::test_large": {"if a > LIMIT:", 'return "large"'},
    "tests/test_a.py::test_small": {"if a > LIMIT:", 'return "small"'},
    "tests/test_a.py::test_due": {"return run(DUE)"},
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    package = tmp_path / "src" / "tenure" / "core"
    package.mkdir(parents=True)
    for folder in (package, package.parent):
        (folder / "__init__.py").touch()
    (package / "a.py").write_text(SOURCE)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_a.py").write_text("# Whatever it is.\n")
    reach = Reach(tmp_path, tmp_path / "cache")
    assert reach.stale_files() == ["tests/test_a.py"]
    probes = probes_of(tmp_path)
    results = []
    for test, texts in TESTS.items():
        bits = sum(1 << number for number, probe in enumerate(probes) if probe.text in texts)
        results.append(TestResult(test, "passed", 0.1, hits=bits.to_bytes(2, "little")))
    reach.add("tests/test_a.py", results, probes)
    reach.save()
    return tmp_path


def mutant(project: Path, new: str) -> Mutant:
    """Return the mutant that writes this line."""
    mutants = all_mutants(project, Filter(paths=("src",)))
    [mutant] = [mutant for mutant in mutants if mutant.hunk[-1].strip("+ ") == new]
    return mutant


def reaching(project: Path, new: str) -> list[str]:
    tests = Reach(project, project / "cache").tests_for(mutant(project, new))
    return sorted(test.partition("::test_")[2] for test in tests)


def rewrite(project: Path, old: str, new: str) -> None:
    path = project / "src" / "tenure" / "core" / "a.py"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


def test_a_statement_is_reached_by_the_tests_that_ran_it(project: Path):
    assert reaching(project, "if a >= LIMIT:") == ["large", "small"]
    assert reaching(project, "return None") == ["due"]


def test_a_constant_is_reached_by_the_tests_that_use_it(project: Path):
    assert reaching(project, "LIMIT = len('ab') - 1") == ["large", "small"]
    assert reaching(project, 'DUE = "SELECT id FROM job WHERE due < :now "') == ["due"]


def test_a_function_that_moved_is_still_known(project: Path):
    rewrite(project, "LIMIT = ", "import os\n\nLIMIT = ")
    assert reaching(project, "if a >= LIMIT:") == ["large", "small"]
    assert Reach(project, project / "cache").stale_files() == []


def test_a_statement_that_changed_is_looked_up_by_its_function(project: Path):
    rewrite(project, "if a > LIMIT:", "if a > 2 * LIMIT:")
    assert reaching(project, "if a >= 2 * LIMIT:") == ["large", "small"]


def test_a_statement_that_no_test_runs_is_reported(project: Path):
    rewrite(project, "def second", "def third(a):\n    return a + 1\n\n\ndef second")
    reach = Reach(project, project / "cache")
    reach.add("tests/test_a.py", [], probes_of(project))
    reach.save()
    new = mutant(project, "return a - 1")
    assert not Reach(project, project / "cache").is_reached(new)
    assert Reach(project, project / "cache").is_reached(mutant(project, "if a >= LIMIT:"))


def test_a_test_file_that_changed_is_measured_again(project: Path):
    (project / "tests" / "test_a.py").write_text("# Something else.\n")
    reach = Reach(project, project / "cache")
    assert reach.stale_files() == ["tests/test_a.py"]
    assert reach.tests_for(mutant(project, "if a >= LIMIT:")) == []


def test_when_most_statements_changed_all_is_measured_again(project: Path):
    (project / "src" / "tenure" / "core" / "a.py").write_text("def other():\n    return 1 + 1\n")
    assert Reach(project, project / "cache").stale_files() == ["tests/test_a.py"]


def test_a_test_that_fails_without_a_mutant_is_not_chosen(project: Path):
    reach = Reach(project, project / "cache")
    reach.mark("tests/test_a.py::test_small", is_green=False)
    reach.save()
    assert reaching(project, "if a >= LIMIT:") == ["large"]


def test_probes_leave_marks_from_any_process_and_change_nothing_else(project: Path, tmp_path: Path):
    probes = instrument(project, tmp_path / "probed")
    hits = tmp_path / "hits"
    hits.write_bytes(bytes(len(probes)))
    code = (
        "import inspect, json, os, signal, tenure.core.a as a\n"
        "said = [a.first(1), inspect.getsourcelines(a.second)[1], a.first.__doc__]\n"
        "print(json.dumps(said), flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(tmp_path / "probed"), HITS_VARIABLE: str(hits)},
        capture_output=True,
        check=False,
    )
    assert json.loads(run.stdout) == ["small", 16, "Have a docstring."]
    marks = hits.read_bytes()
    reached = [probe.text for number, probe in enumerate(probes) if marks[number]]
    assert reached == ["if a > LIMIT:", 'return "small"']


def test_probes_of_scripts_write_to_the_log_of_their_server(project: Path, tmp_path: Path):
    folder = project / "src" / "tenure" / "core"
    (folder / "a.lua").write_text(
        "local function f(a)\n  return a\nend\nif f(1) then\n  f(2)\nend\n"
    )
    (folder / "a.sql").write_text(
        "CREATE FUNCTION f() RETURNS void LANGUAGE plpgsql AS $$\nBEGIN\n    NULL;\nEND\n$$;\n"
    )
    probes = instrument(project, tmp_path / "probed")
    scripts = [probe for probe in probes if not probe.file.endswith(".py")]
    assert [(probe.file[-3:], probe.line) for probe in scripts] == [
        ("lua", 1),
        ("lua", 4),
        ("sql", 2),
    ]
    number = probes.index(scripts[-1])
    text = (tmp_path / "probed" / "tenure" / "core" / "a.sql").read_text()
    assert f"BEGIN RAISE LOG 'tenure-hit {number}';" in text
    assert hits_in_log(f"LOG:  tenure-hit {number}\n".encode()) == {number}
