"""Compare this tree with an earlier commit of it; run by `make bench-releases BEFORE=<commit>`.

Two things that grow with the fleet: the recovery of 10,000 jobs of one dead replica, and 500 timers
on many replicas that are due at one instant. Both trees take turns on the same servers, each with
an empty database. BENCH_STORES and BENCH_ROLES choose a part, such as `redis` and `burst`. Each
replica of a burst is a process: in one process, the replicas would only wait for each other.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from bench.job_stores import Place, open_place
from bench.rig import ROOT, Table, as_markdown, machine, note, percentile, write

SHORT = bool(os.environ.get("BENCH_SHORT"))
CHILD = Path(__file__).with_name("release_child.py")
ROUNDS = 1 if SHORT else 9
JOBS = 1_000 if SHORT else 10_000
TIMERS = 50 if SHORT else 500
FLEETS = {"redis": (4, 2) if SHORT else (100, 1), "postgres": (2, 2) if SHORT else (20, 1)}
"""Processes, and replicas in each."""
BURSTS = 1 if SHORT else 3
START = 15 if SHORT else 40
"""Seconds in which a fleet starts; if they do not suffice, it is tried again with more."""
STORES = os.environ.get("BENCH_STORES", "sqlite redis postgres").split()
ROLES = os.environ.get("BENCH_ROLES", "recover burst").split()
# Over a minute, before this run adds to it.
_LOAD = os.getloadavg()[0]

Pairs = dict[str, list[dict[str, Any]]]


def run(tree: Path, role: str, url: str, *arguments: int) -> dict[str, Any]:
    """Run a scenario with the source of a tree; return its report."""
    command = [sys.executable, str(CHILD), role, url, *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return report


def recover(tree: Path, place: Place) -> dict[str, Any]:
    return run(tree, "recover", place.fresh(), JOBS)


def burst(tree: Path, place: Place, fleet: tuple[int, int]) -> dict[str, Any]:
    for start in (START, 2 * START, 4 * START):
        report = run(tree, "burst", place.fresh(), TIMERS, *fleet, start)
        if "errors" not in report:
            return report
        note(f"{len(report['errors'])} processes failed: {report['errors'][0]}")
    message = "the fleet did not start in time, or took too long"
    raise RuntimeError(message)


def take_turns(
    trees: dict[str, Path], rounds: int, measure: Callable[[Path], dict[str, Any]]
) -> Pairs:
    reports: Pairs = {name: [] for name in trees}
    for number in range(rounds):
        order = list(trees.items())
        for name, tree in order if number % 2 else order[::-1]:
            note(f"round {number + 1} of {rounds}, {name}")
            reports[name].append(measure(tree))
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
    processes, replicas = FLEETS[store]
    rows = []
    for name, reports_of_tree in reports.items():
        calls = max(report["calls"] for report in reports_of_tree)
        refusals = max(report["refusals"] for report in reports_of_tree)
        late = [statistics.median(lateness(name, reports, part)) for part in (50, 99, 100)]
        rows.append([
            store, f"{processes} x {replicas}", name, f"{calls}", f"{refusals}",
            *(f"{1000 * seconds:.0f}" for seconds in late),
        ])  # fmt: skip
    ratios = [
        statistics.median(
            now / before
            for before, now in zip(
                lateness("before", reports, part), lateness("now", reports, part), strict=True
            )
        )
        for part in (50, 99, 100)
    ]
    rows.append([store, "", "ratio", "", "", *(f"{ratio:.2f}" for ratio in ratios)])
    return rows


def lateness(name: str, reports: Pairs, part: float) -> list[float]:
    """Return a percentile of the ticks of each round."""
    return [percentile(report["late"], part) for report in reports[name]]


def main() -> None:
    begin, commit = time.monotonic(), sys.argv[1]
    recoveries = [[
        "store", "calls before", "calls now", "ratio", "s before", "s now", "ratio of time",
    ]]  # fmt: skip
    bursts = [[
        "store", "processes x replicas", "tree",
        "calls per replica, most", "refusals per replica, most", "p50 ms", "p99 ms", "most ms",
    ]]  # fmt: skip
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        earlier = Path(folder) / "before"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--detach", "--quiet", str(earlier), commit], check=True)
        stack.callback(subprocess.run, [*git, "remove", "--force", str(earlier)], check=True)
        trees = {"before": earlier, "now": ROOT}
        for store in STORES:
            place = stack.enter_context(open_place(store))
            note(store)
            if "recover" in ROLES:
                pairs = take_turns(trees, ROUNDS, partial(recover, place=place))
                recoveries.append(recovery_row(store, pairs))
            if "burst" in ROLES and store in FLEETS:
                measure = partial(burst, place=place, fleet=FLEETS[store])
                bursts += burst_rows(store, take_turns(trees, BURSTS, measure))
    tables = {
        name: as_markdown(table)
        for name, table in {"releases-recovery": recoveries, "releases-burst": bursts}.items()
        if len(table) > 1
    }
    for name, text in tables.items():
        print(f"\n{name}\n{text}")
    note(f"took {time.monotonic() - begin:.0f} s")
    if not SHORT and len(STORES) == 3:
        write({**conditions(commit, tables), **tables})


def conditions(commit: str, tables: dict[str, str]) -> dict[str, str]:
    """Return where and when these tables were measured, and how busy the machine was besides."""
    rounds = {"releases-recovery": ROUNDS, "releases-burst": BURSTS}
    others = f"load {_LOAD:.0f} before the start"
    return {
        f"{name}-machine": machine(f"{rounds[name]} rounds, compared with {commit}; {others}.")
        for name in tables
    }


if __name__ == "__main__":
    main()
