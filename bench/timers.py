"""Measure timers and write docs/benchmarks.md; run by `make bench-timers`.

Each replica is a process, on servers that this run starts. APScheduler 3 runs beside
them where it does the same: in one process, without a store. BENCH_SHORT=1 tries everything for a
moment and does not change the document.
"""

from __future__ import annotations

import importlib.util
import json
import os
import time
from collections import Counter
from contextlib import ExitStack
from typing import Any

from bench.job_stores import Place, open_place
from bench.rig import (
    Table,
    as_markdown,
    finish,
    finish_all,
    machine,
    note,
    percentile,
    start_child,
    write,
)

SHORT = bool(os.environ.get("BENCH_SHORT"))
MODULE = "bench.timer_child"
STORES = ("redis", "postgres", "sqlite")
REPLICAS = 3
TIMERS = 20  # of one second each, at instants that are spread
TICKING_SECONDS = 4 if SHORT else 30
IDLE_TIMERS = 1000
IDLE_SECONDS = 5 if SHORT else 30
HAS_PEER = importlib.util.find_spec("apscheduler") is not None

Reports = list[dict[str, Any]]


def tick_together(role: str, url: str, replicas: int) -> Reports:
    """Let `replicas` processes tick for a while; all of them count over the same time."""
    children = [start_child(MODULE, role, url, TIMERS, TICKING_SECONDS) for _ in range(replicas)]
    for process in children:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    return [json.loads(output) for output in finish_all(children, f"{time.time() + 0.2}\n")]


# What a tick costs.


def trips_row(store: str, alone: Reports, together: Reports) -> list[str]:
    """Return round trips per tick. Only the replica that runs a tick pays for the run."""
    [calls], [ran] = calls_of(alone), ticks_of(alone)
    runner = (calls["commit"] + calls["settle"]) / ran
    commits = sum(calls["commit"] for calls in calls_of(together))
    ticks = sum(ticks_of(together))
    others = (commits - calls["commit"] / ran * ticks) / (ticks * (REPLICAS - 1))
    rest = sum(calls.values()) - calls["commit"] - calls["settle"]
    a_minute = rest * 60 / TICKING_SECONDS
    return [store, f"{ran:,}", f"{runner:.2f}", f"{ticks:,}", f"{others:.2f}", f"{a_minute:.0f}"]


def calls_of(reports: Reports) -> list[Counter[str]]:
    return [Counter(report["calls"]) for report in reports]


def ticks_of(reports: Reports) -> list[int]:
    return [len(report["lateness"]) for report in reports]


# How late ticks are.


def lateness_row(name: str, store: str, reports: Reports) -> list[str]:
    ran = Counter(tick for report in reports for tick in report["lateness"])
    assert max(ran.values()) == 1, f"{name} on {store} ran a tick twice"
    late = [1000 * lateness for report in reports for lateness in report["lateness"].values()]
    return [
        name, store, f"{len(reports)}", f"{len(ran):,}",
        f"{percentile(late, 50):.1f}", f"{percentile(late, 99):.1f}", f"{max(late):.1f}",
    ]  # fmt: skip


def ticking(places: dict[str, Place]) -> tuple[Table, Table]:
    trips = [[
        "store", "ticks of one replica", "round trips per tick where it runs",
        f"ticks of {REPLICAS} replicas", "round trips per tick elsewhere", "others a minute",
    ]]  # fmt: skip
    lateness = [["library", "store", "replicas", "ticks", "p50 ms", "p99 ms", "most ms"]]
    for store, place in places.items():
        note(f"ticks on {store}, {2 * TICKING_SECONDS} s")
        alone = tick_together("tick", place.fresh(), 1)
        together = tick_together("tick", place.fresh(), REPLICAS)
        trips.append(trips_row(store, alone, together))
        lateness.append(lateness_row("tenure", store, alone))
        lateness.append(lateness_row("tenure", store, together))
    if HAS_PEER:
        note(f"ticks of APScheduler, {TICKING_SECONDS} s")
        reports = tick_together("tick-apscheduler", "", 1)
        lateness.append(lateness_row("apscheduler", "none", reports))
    return trips, lateness


# The cost of timers that are not due.


def idle(places: dict[str, Place]) -> Table:
    """Let all of them idle at the same time: together they use less than one core."""
    note(f"idle timers, {IDLE_SECONDS} s")
    resting = [
        ("tenure", store, timers, start_child(MODULE, "rest", url, timers, IDLE_SECONDS))
        for store, url in [(store, place.fresh()) for store, place in places.items()]
        for timers in (1, IDLE_TIMERS)
    ]
    if HAS_PEER:
        peer = start_child(MODULE, "rest-apscheduler", "", IDLE_TIMERS, IDLE_SECONDS)
        resting.append(("apscheduler", "none", IDLE_TIMERS, peer))
    table = [["library", "store", "timers", "share of a core", "peak RSS MiB"]]
    for name, store, timers, process in resting:
        table.append(idle_row(name, store, timers, json.loads(finish(process))))
    return table


def idle_row(name: str, store: str, timers: int, usage: dict[str, float]) -> list[str]:
    return [name, store, f"{timers:,}", f"{usage['share']:.2%}", f"{usage['peak']:.0f}"]


def main() -> None:
    begin = time.monotonic()
    with ExitStack() as stack:
        places = {store: stack.enter_context(open_place(store)) for store in STORES}
        trips, lateness = ticking(places)
        resting = idle(places)
    tables = {
        "timers-trips": as_markdown(trips),
        "timers-lateness": as_markdown(lateness),
        "timers-idle": as_markdown(resting),
    }
    for name, table in tables.items():
        print(f"\n{name}\n{table}")
    note(f"took {time.monotonic() - begin:.0f} s")
    if SHORT or not HAS_PEER:
        note("docs/benchmarks.md stays as it is: this was not the whole run")
    else:
        ran = f"{TICKING_SECONDS} s of ticks, {IDLE_SECONDS} s of rest."
        write({"timers-machine": machine(ran), **tables})


if __name__ == "__main__":
    main()
