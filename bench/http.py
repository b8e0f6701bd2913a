"""Measure the HTTP endpoints and write docs/benchmarks.md; run by `make bench-http`.

Each service runs in a process of its own, on servers that this run starts: ours; a bare FastAPI
route that stores one row in the same database; on Redis also FastAPI with SAQ and a status route
by hand. They take turns, so that a slow moment of the machine affects all of them.
BENCH_SHORT=1 runs everything for a moment and does not change the document.
"""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import ExitStack
from statistics import median
from typing import Any

from bench.job_peers import older_redis
from bench.job_stores import Place, open_place
from bench.rig import Table, as_markdown, finish, machine, note, percentile, start_child, write

SHORT = bool(os.environ.get("BENCH_SHORT"))
MODULE = "bench.http_child"
CONNECTIONS = 64
SECONDS = 1.0 if SHORT else 3.0
ROUNDS = 1 if SHORT else 3
KINDS = {
    "sqlite": ("tenure", "bare"),
    "redis": ("tenure", "bare", "saq"),
    "postgres": ("tenure", "bare"),
}
NAMES = {"tenure": "tenure", "bare": "bare route, one row", "saq": "SAQ and a route by hand"}


def run(kind: str, place: Place, python: str) -> Any:
    """Start a service, put load on it, stop it; return the report of the load."""
    server = start_child(MODULE, "serve", kind, place.fresh(), python=python)
    try:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        return json.loads(finish(start_child(MODULE, "load", port, CONNECTIONS, SECONDS)))
    finally:
        server.terminate()
        server.communicate(timeout=30)


def rows(store: str, seen: dict[str, list[Any]], what: str) -> Table:
    """Return a row for each kind, beside the bare route of the same store."""
    rates = {kind: median(report[what]["rate"] for report in all_) for kind, all_ in seen.items()}
    table = []
    for kind, all_ in seen.items():
        took = [1000 * each for report in all_ for each in report[what]["took"]]
        table.append([
            NAMES[kind], store, f"{rates[kind]:,.0f}", f"{rates[kind] / rates['bare']:.2f}",
            f"{percentile(took, 50):.1f}", f"{percentile(took, 99):.1f}",
        ])  # fmt: skip
    return table


def main() -> None:
    begin = time.monotonic()
    head = ["service", "store", "a second", "of the bare route", "p50 ms", "p99 ms"]
    submits, reads = [head], [head]
    pythons = {"tenure": sys.executable, "bare": sys.executable, "saq": older_redis()}
    with ExitStack() as stack:
        for store, names in KINDS.items():
            kinds = {kind: python for kind in names if (python := pythons[kind]) is not None}
            place = stack.enter_context(open_place(store))
            seen: dict[str, list[Any]] = {kind: [] for kind in kinds}
            for turn in range(ROUNDS):
                note(f"{store}, round {turn + 1} of {ROUNDS}")
                for kind, python in kinds.items():
                    seen[kind].append(run(kind, place, python))
            submits += rows(store, seen, "submits")
            reads += rows(store, seen, "reads")
    tables = {"http-submits": as_markdown(submits), "http-reads": as_markdown(reads)}
    for name, table in tables.items():
        print(f"\n{name}\n{table}")
    note(f"took {time.monotonic() - begin:.0f} s")
    if SHORT:
        note("docs/benchmarks.md stays as it is: this was not the whole run")
    else:
        ran = f"{CONNECTIONS} connections, median of {ROUNDS} rounds of {SECONDS:g} s."
        write({"http-machine": machine(ran), **tables})


if __name__ == "__main__":
    main()
