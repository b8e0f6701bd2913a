"""Every planted bug must be caught: a test that cannot fail proves nothing.

`bug.py` says how a bug is written. Each is applied to a copy of `src`, and its test is run on that
copy, where it has to fail; an error around it shows nothing. For a bug in the simulator the tests
are copied too. `make mutants` plants all of them, and runs each test once without a bug, which it
has to pass, also in time: a bug may make it hang. The gate, which has to be quick, plants few of
them, `make proof` one in ten; neither plants one with a line `Slow: why`.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from zlib import crc32

import pytest

from tests.planted.bug import Bug, DoesNotApply
from tests.rig.sizes import SIZE

ROOT = Path(__file__).parents[2]
BUGS = [Bug.read(path) for path in sorted(Path(__file__).parent.glob("*.bug"))]
ALL = os.environ.get("TENURE_PLANTED") == "all"
TESTS_FAILED = 1  # pytest's exit status; 2 and more mean that nothing was tested


def chosen() -> list[Bug]:
    if ALL:
        return BUGS
    # By name, so that a new bug does not change the turn of the others.
    return [
        bug
        for bug in BUGS
        if not bug.is_slow and crc32(bug.path.stem.encode()) % SIZE.planted_share == 0
    ]


@pytest.mark.timeout(180)
@pytest.mark.parametrize("bug", chosen(), ids=lambda bug: bug.path.stem)
def test_the_bug_is_caught(
    bug: Bug, tmp_path: Path, record_property: Callable[[str, object], None]
):
    record_property("bug", bug.path.stem)
    test = bug.heading("Caught by")
    shutil.copytree(ROOT / "src", tmp_path / "src")  # with what is compiled: it saves a second each
    if bug.is_in_simulator:
        shutil.copytree(ROOT / "tests", tmp_path / "tests")
        shutil.copy(ROOT / "pyproject.toml", tmp_path)
    bug.apply(tmp_path)
    run = run_alone(test, tmp_path / "src", tmp_path if bug.is_in_simulator else ROOT)
    assert run.returncode == TESTS_FAILED, f"{test} did not fail:\n{run.stdout}\n{run.stderr}"
    failure = re.search(r"^FAILED (\S+)", run.stdout, re.MULTILINE)
    assert failure, f"{test} broke instead of failing:\n{run.stdout}"
    record_property("caught by", failure[1])


if ALL:

    @pytest.mark.timeout(180)
    @pytest.mark.parametrize("test", sorted({bug.heading("Caught by") for bug in BUGS}))
    def test_without_the_bug_it_passes(test: str):
        run = run_alone(test, ROOT / "src")
        assert run.returncode == 0, f"{run.stdout}\n{run.stderr}"


def run_alone(test: str, source: Path, checkout: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run the tests of a checkout against the package in `source`."""
    limit = [] if "tests/process" in test else ["--timeout=15"]  # a bug may also hang
    return subprocess.run(
        [sys.executable, "-m", "pytest", test, "-q", "-x", "-p", "no:cacheprovider", *limit],
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_each_bug_applies():
    stale = []
    for bug in BUGS:
        try:
            assert bug.edits(ROOT)
        except DoesNotApply as reason:
            stale.append(f"{bug.path.name}: {reason}")
    assert not stale, "\n".join(stale)


def test_each_bug_names_a_test_that_exists():
    missing = []
    for bug in BUGS:
        path, *names = re.sub(r"\[.*", "", bug.heading("Caught by")).split("::")
        text = (ROOT / path).read_text(encoding="utf-8") if (ROOT / path).is_file() else ""
        if not all(re.search(rf"\b(def|class) {name}\b", text) for name in names) or not text:
            missing.append(f"{bug.path.name}: {'::'.join([path, *names])}")
    assert not missing, "\n".join(missing)


def test_each_promise_has_its_own_bug():
    assert BUGS
    breaks = [bug.heading("Breaks") for bug in BUGS]
    assert len(breaks) == len(set(breaks))


@pytest.fixture
def moved(tmp_path: Path) -> Path:
    """Holds one function in a file that no bug names."""
    source = tmp_path / "src" / "elsewhere.py"
    source.parent.mkdir()
    source.write_text("class Line:\n    def first(self):\n        if self:\n            return 1\n")
    return tmp_path


def planted(folder: Path, place: str, *lines: str, file: str = "src/old.py") -> Bug:
    path = folder / "some.bug"
    path.write_text("\n".join(["Breaks: b", "Caught by: c", "", f"{file}: {place}", *lines]))
    return Bug.read(path)


def test_a_bug_follows_its_function_to_another_file_and_depth(moved: Path):
    planted(moved, "Line.first", "-return 1", "+x = 2", "+return x").apply(moved)
    text = (moved / "src" / "elsewhere.py").read_text()
    assert text.endswith("        if self:\n            x = 2\n            return x\n")


@pytest.mark.parametrize(
    ("place", "line"), [("Line.first", "-return 2"), ("Line.last", "-return 1")]
)
def test_a_bug_whose_lines_are_gone_does_not_apply(moved: Path, place: str, line: str):
    with pytest.raises(DoesNotApply, match="not found"):
        planted(moved, place, line).edits(moved)


def test_a_bug_stays_where_it_was_planted_in_the_source_or_the_simulator(moved: Path):
    simulator = moved / "tests" / "sim" / "elsewhere.py"
    simulator.parent.mkdir(parents=True)
    shutil.copy(moved / "src" / "elsewhere.py", simulator)
    change = ("Line.first", "-return 1", "+return 2")
    [in_source] = planted(moved, *change).edits(moved)
    bug = planted(moved, *change, file="tests/sim/old.py")
    assert bug.is_in_simulator
    [in_simulator] = bug.edits(moved)
    assert (in_source, in_simulator) == (moved / "src" / "elsewhere.py", simulator)
