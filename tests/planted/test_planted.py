"""Every planted bug must be caught: a test that cannot fail proves nothing.

A patch in this folder is a `git diff` against the checkout, headed by two lines:

    Breaks: the promise, in a sentence
    Caught by: the test that must fail, as a pytest id

Each is applied to a copy of `src`, and its test is run there, where it has to fail; an error around
it shows nothing. `make mutants` plants all of them, and runs each test once without a bug, which it
has to pass, also in time: a bug may make it hang. The gate, which has to be quick, plants one in
40, and none with a line `Slow: why`.
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

ROOT = Path(__file__).parents[2]
PATCHES = sorted(Path(__file__).parent.glob("*.patch"))
ALL = os.environ.get("TENURE_PLANTED") == "all"
TESTS_FAILED = 1  # pytest's exit status; 2 and more mean that nothing was tested


def chosen() -> list[Path]:
    if ALL:
        return PATCHES
    quick = [one for one in PATCHES if not re.search(r"^Slow: ", one.read_text(), re.MULTILINE)]
    # By name, so that a new patch does not change the turn of the others.
    return [patch for patch in quick if crc32(patch.stem.encode()) % 40 == 0]


def heading(patch: Path, name: str) -> str:
    found = re.search(rf"^{name}: (.+)$", patch.read_text(encoding="utf-8"), re.MULTILINE)
    assert found, f"{patch.name} has no line '{name}: ...'"
    return found.group(1)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("patch", chosen(), ids=lambda patch: patch.stem)
def test_the_bug_is_caught(
    patch: Path, tmp_path: Path, record_property: Callable[[str, object], None]
):
    record_property("bug", patch.stem)
    test = heading(patch, "Caught by")
    shutil.copytree(ROOT / "src", tmp_path / "src")  # with what is compiled: it saves a second each
    subprocess.run(["git", "apply", str(patch)], cwd=tmp_path, check=True)
    run = run_alone(test, tmp_path / "src")
    assert run.returncode == TESTS_FAILED, f"{test} did not fail:\n{run.stdout}\n{run.stderr}"
    found = re.search(r"^FAILED (\S+)", run.stdout, re.MULTILINE)
    assert found, f"{test} broke instead of failing:\n{run.stdout}"
    record_property("caught by", found[1])


if ALL:

    @pytest.mark.timeout(180)
    @pytest.mark.parametrize("test", sorted({heading(patch, "Caught by") for patch in PATCHES}))
    def test_without_the_bug_it_passes(test: str):
        run = run_alone(test, ROOT / "src")
        assert run.returncode == 0, f"{run.stdout}\n{run.stderr}"


def run_alone(test: str, source: Path) -> subprocess.CompletedProcess[str]:
    limit = [] if "tests/process" in test else ["--timeout=15"]  # a bug may also hang
    return subprocess.run(
        [sys.executable, "-m", "pytest", test, "-q", "-x", "-p", "no:cacheprovider", *limit],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_each_promise_has_its_own_patch():
    assert PATCHES
    breaks = [heading(patch, "Breaks") for patch in PATCHES]
    assert len(breaks) == len(set(breaks))
