"""Compare this tree with an earlier commit of it; run by `make bench-releases BEFORE=<commit>`.

Two things that grow with the fleet: the recovery of 10,000 jobs of one dead replica, and 500 timers
on many replicas that are due at one instant. Both trees take turns on the same servers.
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
from typing import Any

from bench.job_stores import Place, open_place
from bench.rig import ROOT, Table, as_markdown, machine, note, percentile, write

SHORT = bool(os.environ.get("BENCH_SHORT"))
CHILD = Path(__file__).with_name("release_child.py")
ROUNDS = 1 if SHORT else 5
JOBS = 1_000 if SHORT else 10_000
TIMERS = 50 if SHORT else 500
REPLICAS = {"redis": 10 if SHORT else 100, "postgres": 5 if SHORT else 20}

Pairs = dict[str, list[dict[str, Any]]]


def run(tree: Path, role: str, url: str, *arguments: int) -> dict[str, Any]:
    """Run a scenario with the source of a tree; return its report."""
    command = [sys.executable, str(CHILD), role, url, *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return report


def take_turns(trees: dict[str, Path], place: Place, role: str, *arguments: int) -> Pairs:
    reports: Pairs = {name: [] for name in trees}
    for number in range(ROUNDS):
        order = list(trees.items())
        for name, tree in order if number % 2 else order[::-1]:
            note(f"{role}, round {number + 1} of {ROUNDS}, {name}")
            reports[name].append(run(tree, role, place.fresh(), *arguments))
    return reports


def recovery_row(store: str, reports: Pairs) -> list[str]:
    before, now = reports["before"], reports["now"]
    ratio = statistics.median(b["seconds"] / a["seconds"] for a, b in zip(before, now, strict=True))
    calls = [
        statistics.median(report["calls"] for report in reports_of_tree)
        for reports_of_tree in (before, now)
    ]
    seconds = [
        statistics.median(report["seconds"] for report in reports_of_tree)
        for reports_of_tree in (before, now)
    ]
    return [
        store, f"{calls[0]:.0f}", f"{calls[1]:.0f}", f"{calls[1] / calls[0]:.2f}",
        f"{seconds[0]:.2f}", f"{seconds[1]:.2f}", f"{ratio:.2f}",
    ]  # fmt: skip


def burst_rows(store: str, reports: Pairs) -> Table:
    rows = []
    for name, reports_of_tree in reports.items():
        late = [1000 * value for report in reports_of_tree for value in report["late"]]
        calls = max(report["calls"] for report in reports_of_tree)
        refusals = max(report["refused"] for report in reports_of_tree)
        rows.append([
            store, f"{REPLICAS[store]}", name, f"{calls}", f"{refusals}",
            f"{percentile(late, 50):.0f}", f"{percentile(late, 99):.0f}", f"{max(late):.0f}",
        ])  # fmt: skip
    return rows


def main() -> None:
    begin, commit = time.monotonic(), sys.argv[1]
    recoveries = [[
        "store", "calls before", "calls now", "ratio", "s before", "s now", "ratio of time",
    ]]  # fmt: skip
    bursts = [[
        "store", "replicas", "tree", "calls per replica, most", "refusals per replica, most",
        "p50 ms", "p99 ms", "most ms",
    ]]  # fmt: skip
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        earlier = Path(folder) / "before"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--detach", "--quiet", str(earlier), commit], check=True)
        stack.callback(subprocess.run, [*git, "remove", "--force", str(earlier)], check=True)
        trees = {"before": earlier, "now": ROOT}
        for store in ("sqlite", "redis", "postgres"):
            place = stack.enter_context(open_place(store))
            recoveries.append(recovery_row(store, take_turns(trees, place, "recover", JOBS)))
            if store in REPLICAS:
                sizes = (TIMERS, REPLICAS[store])
                bursts += burst_rows(store, take_turns(trees, place, "burst", *sizes))
    tables = {
        "releases-recovery": as_markdown(recoveries),
        "releases-burst": as_markdown(bursts),
    }
    for name, table in tables.items():
        print(f"\n{name}\n{table}")
    note(f"took {time.monotonic() - begin:.0f} s")
    if not SHORT:
        write({"releases-machine": machine(f"{ROUNDS} rounds, compared with {commit}."), **tables})


if __name__ == "__main__":
    main()
