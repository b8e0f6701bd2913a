"""Run the tests folder by folder, cheapest first: python scripts/test.py [pytest arguments].

A failing folder does not stop the next one. The last two things printed are a table of what each
folder took and, alone on its line, the sum.
"""

import compileall
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree as ET

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests"
FOLDERS = (
    "unit",
    "stores",
    "typing",
    "contract",
    "cost",
    "locks",
    "jobs",
    "timers",
    "model",
    "interleavings",
    "cli",
    "security",
    "process",
    "chaos",
    "http",
    "browser",
    "sim",
    "planted",
)
# How many run at a time. Many tests mostly wait; what is not here uses all cores itself.
WORKERS = {
    "unit": 3,
    "stores": 3,
    "contract": 3,
    "locks": 3,
    "jobs": 3,
    "timers": 3,
    "cli": 2,
    "security": 2,
    "model": 2,
    "interleavings": 3,
    "process": 3,
    "chaos": 4,
    "http": 3,
    "sim": 2,
    "planted": 2,
}
NOTHING_SELECTED = 5  # pytest's exit status


class Outcome(NamedTuple):
    """What one folder came to."""

    seconds: float
    passed: int
    failed: int
    skipped: int


def main() -> None:
    arguments = sys.argv[1:]
    files = [path.relative_to(TESTS) for path in TESTS.rglob("test_*.py")]
    strays = [str(path) for path in files if path.parts[0] not in FOLDERS]
    if strays:
        sys.exit(f"test: in no folder that is run: {', '.join(strays)} (scripts/test.py, FOLDERS)")

    # Once, for the hundreds of processes that tests start: where Python is told not to write down
    # what it has compiled, each of them would do it anew.
    for folder in (ROOT / "src", TESTS):
        compileall.compile_dir(folder, quiet=1)

    filled = {path.parts[0] for path in files}
    outcomes = {name: run(name, arguments) for name in FOLDERS if name in filled}
    print(f"\n{'folder':<10}{'seconds':>9}{'passed':>9}{'failed':>9}{'skipped':>9}")
    for name, one in outcomes.items():
        print(f"{name:<10}{one.seconds:>9.1f}{one.passed:>9}{one.failed:>9}{one.skipped:>9}")

    passed = sum(one.passed for one in outcomes.values())
    failed = sum(one.failed for one in outcomes.values())
    skipped = sum(one.skipped for one in outcomes.values())
    print(f"\n{passed} passed, {failed} failed, {skipped} skipped")
    # A run that tested nothing has shown nothing.
    sys.exit(1 if failed or not passed else 0)


def run(folder: str, arguments: list[str]) -> Outcome:
    print(f"\ntests/{folder}", flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "junit.xml"
        command = [sys.executable, "-m", "pytest", f"tests/{folder}", f"--junit-xml={report}", "-q"]
        if folder in WORKERS:
            # Whoever is done takes over from those with long tests.
            command += ["-n", str(WORKERS[folder]), "--dist", "worksteal"]
        started = time.monotonic()
        status = subprocess.run([*command, *arguments], check=False, cwd=ROOT).returncode
        seconds = time.monotonic() - started
        passed, failed, skipped = read(report) if report.exists() else (0, 0, 0)

    # A crash of pytest itself leaves no failed test behind, and must not look like success.
    if status and not failed and not (status == NOTHING_SELECTED and arguments):
        failed = 1
    return Outcome(seconds, passed, failed, skipped)


def read(report: Path) -> tuple[int, int, int]:
    """Count from pytest's own report; an error in a fixture counts as a failure."""
    passed = failed = skipped = 0
    for suite in ET.parse(report).iter("testsuite"):  # noqa: S314 - we wrote it a moment ago
        bad = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
        left_out = int(suite.get("skipped", 0))
        passed += int(suite.get("tests", 0)) - bad - left_out
        failed += bad
        skipped += left_out
    return passed, failed, skipped


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
