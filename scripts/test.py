"""Run the tests in one session: python scripts/test.py [--gate] [--record] [pytest arguments].

`--gate` leaves some of them to `make proof`, see tests/rig/draw.py. `--record` writes down which
tests are slow, so that later runs begin with them. The last two things printed are a table of what
the tests of each folder took and, alone on its line, the sum.
"""

import compileall
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree as ET

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests"
DURATIONS = TESTS / "rig" / "durations.json"
SLOW_SECONDS = 1.0
# Many tests mostly wait, for processes, servers and time to pass.
WORKERS = 3 * (os.cpu_count() or 2) + 1
MEMORY = Path("/dev/shm")  # noqa: S108 - each run makes a folder of its own there
MEMORY_NEEDED = 4 << 30
NOTHING_SELECTED = 5  # pytest's exit status


@dataclass
class Folder:
    """The tests of one folder: how long they took together, and how they ended."""

    seconds: float = 0.0
    outcomes: Counter[str] = field(default_factory=Counter)


def main() -> None:
    """Prepare a session, run it, print its table; exit with 1 unless all tests have passed."""
    arguments = sys.argv[1:]
    record = "--record" in arguments
    if record:
        arguments.remove("--record")

    # Once, for the hundreds of processes that tests start.
    for folder in (ROOT / "src", TESTS):
        compileall.compile_dir(folder, quiet=1)

    scratch = Path(tempfile.mkdtemp(prefix="tenure-test-", dir=scratch_base()))
    try:
        report = scratch / "junit.xml"
        started = time.monotonic()
        status = run(scratch, report, arguments)
        seconds = time.monotonic() - started
        cases = list(ET.parse(report).iter("testcase")) if report.exists() else []  # noqa: S314 - ours
    finally:
        shutil.rmtree(scratch, ignore_errors=True)

    folders = summarize(cases)
    total = sum((folder.outcomes for folder in folders.values()), Counter[str]())
    # A crash of pytest itself leaves no failed test behind, and must not look like success.
    if status and not total["failed"] and not (status == NOTHING_SELECTED and arguments):
        total["failed"] = 1
    if record:
        write_durations(cases)
    print_table(folders, seconds)
    print(f"\n{total['passed']} passed, {total['failed']} failed, {total['skipped']} skipped")
    # A run that tested nothing has shown nothing.
    sys.exit(1 if total["failed"] or not total["passed"] else 0)


def scratch_base() -> Path | None:
    """Return memory for the files of the tests, if there is enough; SQLite waits for no disk."""
    has_room = MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > MEMORY_NEEDED
    return MEMORY if has_room and "TMPDIR" not in os.environ else None


def run(scratch: Path, report: Path, arguments: list[str]) -> int:
    """Run pytest with its workers and return its exit status."""
    parallel = ["-n", str(WORKERS), "--dist", "worksteal"]
    command = [sys.executable, "-m", "pytest", "-q", *parallel, f"--junit-xml={report}"]
    command += [f"--basetemp={scratch / 'tests'}", "-o", "tmp_path_retention_policy=failed"]
    environment = dict(os.environ)
    # Workers import the same tests: those that pytest has compiled once serve for all.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return subprocess.run([*command, *arguments], check=False, cwd=ROOT, env=environment).returncode


def summarize(cases: list[ET.Element]) -> dict[str, Folder]:
    """Add up the tests of each folder; an error in a fixture counts as a failure."""
    folders: defaultdict[str, Folder] = defaultdict(Folder)
    for case in cases:
        folder = folders[folder_of(case)]
        folder.seconds += float(case.get("time", 0))
        if case.find("failure") is not None or case.find("error") is not None:
            folder.outcomes["failed"] += 1
        else:
            folder.outcomes["passed" if case.find("skipped") is None else "skipped"] += 1
    return dict(sorted(folders.items(), key=lambda pair: pair[1].seconds))


def folder_of(case: ET.Element) -> str:
    """Return the folder below `tests` that a test is in."""
    package, _, rest = case.get("classname", "").partition(".")
    return rest.partition(".")[0] if package == "tests" and "." in rest else "(other)"


def write_durations(cases: list[ET.Element]) -> None:
    """Write down the tests that took long, by their ids."""
    durations = {
        f"{file_of(case)}::{case.get('name')}": round(float(case.get("time", 0)), 1)
        for case in cases
        if float(case.get("time", 0)) >= SLOW_SECONDS
    }
    text = json.dumps(dict(sorted(durations.items())), indent=1)
    DURATIONS.write_text(f"{text}\n", encoding="utf-8")


def file_of(case: ET.Element) -> str:
    """Return the file that a test is in."""
    return f"{case.get('classname', '').replace('.', '/')}.py"


def print_table(folders: dict[str, Folder], seconds: float) -> None:
    """Print what each folder took. The seconds of tests overlap: several run at a time."""
    print(f"\n{'folder':<14}{'seconds':>9}{'passed':>9}{'failed':>9}{'skipped':>9}")
    for name, folder in folders.items():
        counts = "".join(f"{folder.outcomes[kind]:>9}" for kind in ("passed", "failed", "skipped"))
        print(f"{name:<14}{folder.seconds:>9.1f}{counts}")
    print(f"\n{seconds:.0f} s on {WORKERS} workers; the seconds above are those of single tests")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
