"""Compare the CPU time per job with an earlier commit; run by `make bench-cpu BEFORE=<commit>`.

Both trees take turns in pairs: what else runs on this machine slows both sides of a pair. The
figure of each phase is the median of the ratios of the pairs. CPU time is that of the client, all
threads of its process; the servers of Redis and PostgreSQL do not count.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from bench.job_stores import open_place
from bench.rig import ROOT, Table, as_markdown, machine, note, write

SHORT = bool(os.environ.get("BENCH_SHORT"))
CHILD = Path(__file__).with_name("cpu_child.py")
PAIRS = int(os.environ.get("BENCH_PAIRS", "3" if SHORT else "15"))
JOBS: Final = {"memory": 30_000, "sqlite": 12_000, "redis": 12_000, "postgres": 8_000}
"""About a second of CPU time for each measurement, so that one pair takes a few seconds."""
PHASES: Final = ("enqueue", "run", "both")


def run(tree: Path, url: str, jobs: int) -> dict[str, float]:
    """Measure with the source of a tree; return the CPU seconds of each phase."""
    command = [sys.executable, str(CHILD), url, str(jobs)]
    environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "PYTHONHASHSEED": "0"}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    report: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return {**report, "both": report["enqueue"] + report["run"]}


def rows_of(store: str, trees: dict[str, Path]) -> Table:
    """Measure all pairs on a store; return a row for each phase."""
    jobs = JOBS[store] // (4 if SHORT else 1)
    pairs: list[dict[str, dict[str, float]]] = []
    with ExitStack() as stack:
        place = None if store == "memory" else stack.enter_context(open_place(store))
        for number in range(PAIRS):
            note(f"{store}, pair {number + 1} of {PAIRS}")
            order = list(trees.items())
            pairs.append({
                name: run(tree, "memory://" if place is None else place.fresh(), jobs)
                for name, tree in (order if number % 2 else order[::-1])
            })  # fmt: skip
    return [row_of(store, phase, jobs, pairs) for phase in PHASES]


def row_of(
    store: str, phase: str, jobs: int, pairs: list[dict[str, dict[str, float]]]
) -> list[str]:
    micros = {
        name: statistics.median(1e6 * pair[name][phase] / jobs for pair in pairs)
        for name in ("before", "now")
    }
    ratios = [pair["now"][phase] / pair["before"][phase] for pair in pairs]
    return [
        store, phase, f"{micros['before']:.1f}", f"{micros['now']:.1f}",
        f"{statistics.median(ratios):.3f}", f"{min(ratios):.2f}..{max(ratios):.2f}",
    ]  # fmt: skip


def main() -> None:
    begin, commit = time.monotonic(), sys.argv[1]
    stores = sys.argv[2:] or list(JOBS)
    table = [["store", "phase", "µs before", "µs now", "ratio, median", "range of the ratio"]]
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        earlier = Path(folder) / "before"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--detach", "--quiet", str(earlier), commit], check=True)
        stack.callback(subprocess.run, [*git, "remove", "--force", str(earlier)], check=True)
        for store in stores:
            table += rows_of(store, {"before": earlier, "now": ROOT})
    print(f"\ncpu\n{as_markdown(table)}")
    note(f"took {time.monotonic() - begin:.0f} s")
    if not SHORT and stores == list(JOBS):
        pairs = f"{PAIRS} pairs, compared with {commit}."
        write({"cpu-machine": machine(pairs), "cpu": as_markdown(table)})


if __name__ == "__main__":
    main()
