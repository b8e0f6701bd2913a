"""Run the whole proof and put its numbers into the README.

All tests come first: each of them on all of its stores, and those that depend on chance in a larger
size than in the gate. Then the simulation, the chaos, and the pages of the dashboard in a browser.
Takes about an hour and a half on two cores. Each number comes from a command that anybody can
repeat; the README says which. With --from FOLDER the summaries of an earlier run are taken as they
are.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from browser import chromium

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "proof"
BEGIN, END = "<!-- proof -->", "<!-- /proof -->"
TAIL = "forgotten with the tail"


def main() -> None:
    """Run both parts, whatever the first one comes to; write only what was without violations."""
    parser = argparse.ArgumentParser(prog="python scripts/proof.py", description=__doc__)
    parser.add_argument("--count", type=int, default=200_000, help="histories to simulate")
    parser.add_argument("--minutes", type=float, default=20, help="of chaos, about")
    parser.add_argument("--from", dest="folder", type=Path, help="use the summaries there")
    options = parser.parse_args()
    folder = options.folder or BUILD
    if options.folder is None:
        folder.mkdir(parents=True, exist_ok=True)
        if not test_at_length():
            sys.exit("proof: tests have failed, see above; the README stays as it was")
        simulated = run("tests.sim", "--count", options.count, summary=folder / "sim.json")
        stormed = run("tests.chaos", "--minutes", options.minutes, summary=folder / "chaos.json")
        if not (simulated and stormed):
            sys.exit("proof: something is wrong, see above; the README stays as it was")
        if not test_in_browser():
            sys.exit("proof: pages of the dashboard have failed; the README stays as it was")
    write(block(read(folder / "sim.json"), read(folder / "chaos.json")))


def run(module: str, *arguments: object, summary: Path) -> bool:
    """Run one part to its end; say whether it found nothing wrong."""
    command = [sys.executable, "-m", module, *map(str, arguments), "--summary", str(summary)]
    print(f"proof: {' '.join(command[1:])}", flush=True)
    return subprocess.run(command, cwd=ROOT, check=False).returncode == 0


def test_at_length() -> bool:
    """Run all tests, and those that depend on chance in a larger size than in the gate."""
    command = [sys.executable, "scripts/test.py"]
    print(f"proof: TENURE_TEST_SIZE=proof {' '.join(command[1:])}", flush=True)
    environment = {**os.environ, "TENURE_TEST_SIZE": "proof"}
    return subprocess.run(command, cwd=ROOT, check=False, env=environment).returncode == 0


def test_in_browser() -> bool:
    """Test the pages of the dashboard if Chromium is there; say so if it is not."""
    if chromium() is None:
        print("proof: no Chromium here, so the pages of the dashboard are not tested", flush=True)
        return True
    for command in (["scripts/setup.py", "browser"], ["scripts/browser.py"]):
        print(f"proof: {' '.join(command)}", flush=True)
        if subprocess.run([sys.executable, *command], cwd=ROOT, check=False).returncode:
            return False
    return True


def read(file: Path) -> Any:
    return json.loads(file.read_text(encoding="utf-8"))


def block(simulated: Any, stormed: Any) -> str:
    """Return the three numbers, each with what was lost and doubled."""
    parts = [part["counts"] for part in stormed["parts"]]
    failing = [counts for counts in parts if "failovers" in counts]
    storms = [counts for counts in parts if "failovers" not in counts]
    kills, pauses = total(storms, "kills"), total(storms, "pauses")
    wrong = f"{simulated['violations']}"
    rows = [
        ("", "how many", "lost", "doubled"),
        ("---", "---", "---", "---"),
        ("histories simulated from seeds", f"{simulated['histories']:,}", wrong, wrong),
        (
            "processes killed, or paused past their lease",
            f"{kills:,} + {pauses:,}",
            f"{total(storms, 'lost'):,}",
            f"{total(storms, 'doubled'):,}",
        ),
        (
            "fail-overs of Redis Sentinel and Cluster",
            f"{total(failing, 'failovers'):,}",
            lost_with_the_tail(failing),
            f"{total(failing, 'doubled'):,}",
        ),
    ]
    lines = [f"| {' | '.join(cells)} |" for cells in rows]
    day = time.strftime("%Y-%m-%d")
    repeats = f"From `make sim` and `make chaos` on {day}; `make proof` repeats them."
    lines += ["", f"{repeats} What a simulated"]
    lines += ["store lost itself, as one of a low grade may, is not counted here."]
    if forgotten := total(failing, TAIL):
        lines += [
            "",
            f"\\* New primaries did not know {forgotten:,} of {total(failing, 'accepted'):,} jobs,",
            "which old ones had acknowledged before a replica had them. Lost is what never ran.",
        ]
    return "\n".join(lines)


def lost_with_the_tail(failing: list[Any]) -> str:
    """Say how many jobs never ran; a mark leads to what became of the other records."""
    mark = r" \*" if total(failing, TAIL) else ""
    return f"{total(failing, 'lost'):,}{mark}"


def total(parts: list[Any], name: str) -> int:
    """Return the sum of one counter over some parts of the chaos."""
    return sum(counts.get(name, 0) for counts in parts)


def write(text: str) -> None:
    """Put the block between its marks; the words around it stay."""
    readme = ROOT / "README.md"
    before, _, rest = readme.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    readme.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
