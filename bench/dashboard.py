"""Measure the dashboard and write docs/benchmarks.md; run by `make bench-dashboard`.

A dashboard is a process of its own, on servers and files that this run makes. BENCH_SHORT=1 tries
everything on a small store and does not change the document.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import psycopg

from bench.dashboard_child import cpu_of
from bench.dashboard_data import fill
from bench.job_stores import Place, open_place
from bench.rig import Table, as_markdown, child, machine, note, start_child, write

SHORT = bool(os.environ.get("BENCH_SHORT"))
MODULE = "bench.dashboard_child"
STORES = ("sqlite", "postgres")
FINISHED, WAITING = (20_000, 2_000) if SHORT else (1_000_000, 100_000)
ROUNDS = 3 if SHORT else 9
SECONDS = 6 if SHORT else 30
AUDIENCES = ((0, 1), (2, 2), (20, 2), (20, 10))
"""How many viewers look at how many different pages."""


class Store:
    """A filled store, and the CPU time of its server."""

    def __init__(self, place: Place, name: str) -> None:
        self.name, self.url = name, place.fresh()
        note(f"filling {name} with {FINISHED:,} finished and {WAITING:,} waiting jobs")
        self.data = msgspec.json.encode(asyncio.run(fill(self.url, FINISHED, WAITING))).decode()

    @property
    def server(self) -> str:
        """The main process of the server; none on SQLite."""
        if self.name == "sqlite":
            return ""
        with psycopg.connect(self.url) as db:
            writer = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'"
            [[pid]] = db.execute(writer).fetchall()
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]

    def sessions(self) -> set[int]:
        """Return the processes of the server that serve clients now; none on SQLite."""
        if self.name == "sqlite":
            return set()
        with psycopg.connect(self.url, autocommit=True) as db:
            rows = db.execute(
                "SELECT pid FROM pg_stat_activity WHERE application_name = 'tenure'"
            ).fetchall()
        return {int(pid) for (pid,) in rows}


# Pages.


def page_rows(measured: dict[str, dict[str, Any]]) -> Table:
    head = ["page"]
    for store in STORES:
        head += [f"{store}: median ms", "worst", "CPU"]
    table = [[*head, "CPU of the server"]]
    for page in measured[STORES[0]]:
        row = [page]
        for store in STORES:
            took, *cpu = measured[store][page]
            row += [f"{1000 * value:.0f}" for value in (statistics.median(took), max(took))]
            row += [f"{1000 * statistics.median(spent):.1f}" for spent in cpu]
        del row[4]  # SQLite has no server
        table.append(row)
    return table


# Viewers.


@contextmanager
def working(store: Store) -> Iterator[None]:
    """Let a worker run a job every second, so that pages change."""
    process = start_child(MODULE, "work", store.url)
    time.sleep(3)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def audience_row(store: Store, viewers: int, views: int) -> list[str]:
    note(f"{viewers} viewers on {store.name}, {SECONDS} s")
    others = store.sessions()
    process = start_child(MODULE, "watch", store.url, store.data, viewers, views, SECONDS)
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    backends = store.sessions() - others
    before = cpu_of(backends)
    _go_on(process)
    report = json.loads(process.stdout.readline())
    server = (cpu_of(backends) - before) / SECONDS
    _go_on(process)
    process.communicate(timeout=60)
    return [
        store.name, f"{viewers}", f"{views if viewers else 0}", f"{report['calls']:.1f}",
        f"{report['share']:.1%}", f"{server:.1%}" if backends else "-",
    ]  # fmt: skip


def _go_on(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


# Counters.


def counter_row(name: str, url: str) -> list[str]:
    note(f"counters of attempts on {name}")
    report = child(MODULE, "counters", url)
    ratios = report["ratios"]
    return [
        name, f"{1e6 * report['without']:.1f}", f"{1e6 * report['with']:.1f}",
        f"{statistics.median(ratios):.3f}", f"{min(ratios):.2f}..{max(ratios):.2f}",
    ]  # fmt: skip


def main() -> None:
    begin = time.monotonic()
    viewing = [["store", "viewers", "pages", "calls a second", "CPU of a core", "of the server"]]
    counting = [["store", "µs without", "µs with", "ratio, median", "range of the ratio"]]
    measured: dict[str, dict[str, Any]] = {}
    with ExitStack() as stack:
        for name in STORES:
            store = Store(stack.enter_context(open_place(name)), name)
            note(f"pages on {name}")
            arguments = (store.url, store.data, ROUNDS, store.server)
            measured[name] = child(MODULE, "pages", *arguments)
            with working(store):
                viewing += [audience_row(store, *audience) for audience in AUDIENCES]
        counting.append(counter_row("memory", "memory://"))
        places = {name: stack.enter_context(open_place(name)) for name in STORES}
        counting += [counter_row(name, place.fresh()) for name, place in places.items()]
    tables = {
        "dashboard-pages": as_markdown(page_rows(measured)),
        "dashboard-viewers": as_markdown(viewing),
        "dashboard-counters": as_markdown(counting),
    }
    for name, table in tables.items():
        print(f"\n{name}\n{table}")
    note(f"took {time.monotonic() - begin:.0f} s")
    if SHORT:
        note("docs/benchmarks.md stays as it is: this was not the whole run")
    else:
        ran = f"{FINISHED:,} finished and {WAITING:,} waiting jobs, {ROUNDS} rounds, {SECONDS} s."
        write({"dashboard-machine": machine(ran), **tables})


if __name__ == "__main__":
    main()
