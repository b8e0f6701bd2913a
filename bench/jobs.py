"""Measure jobs beside their peers and write docs/benchmarks.md; run by `make bench-jobs`.

All contestants run in turns, several rounds, one worker process each, against servers that this run
starts. BENCH_SHORT=1 tries everything with few jobs, and leaves the document as it is.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bench.job_peers import CONTESTANTS, Contestant, install_older_redis
from bench.job_stores import Place, Traffic, open_place
from bench.rig import Table, as_markdown, finish, machine, note, percentile, write

SHORT = bool(os.environ.get("BENCH_SHORT"))
ROUNDS = 1 if SHORT else 3
PICKS = 100 if SHORT else 400
QUIET_SECONDS = 2 if SHORT else 5
IDLE_SECONDS = 15 if SHORT else 60
WITHIN = 300.0

Places = dict[str, Place]


class Worker:
    """A worker process; it is killed in the end, as its store is thrown away."""

    def __init__(self, one: Contestant, role: str, url: str, *numbers: int) -> None:
        self._process = one.start(role, url, *numbers)
        self._alarm = threading.Timer(WITHIN, self._process.kill)
        self._name = f"{one.name} on {one.store}"

    def __enter__(self) -> Self:
        self._alarm.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._alarm.cancel()
        self._process.kill()
        self._process.communicate()

    def report(self) -> dict[str, Any]:
        """Return its next report, which comes once it has started all jobs of a phase."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                return dict(json.loads(line))
        raise AssertionError(f"the worker of {self._name} ended, or took over {WITHIN:g} s")

    def megabytes(self, field_name: str) -> float:
        """Return VmRSS, what it has now, or VmHWM, the most it ever had."""
        status = Path(f"/proc/{self._process.pid}/status")
        if not status.exists():
            return 0.0
        found = re.search(rf"{field_name}:\s+(\d+) kB", status.read_text())
        return int(found[1]) / 1024 if found else 0.0


@dataclass
class Figures:
    """What all rounds have found about one contestant, by the name of the figure."""

    found: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def add(self, **figures: float | None) -> None:
        for name, value in figures.items():
            if value is not None:
                self.found[name].append(value)

    def median(self, name: str, form: str = ",.0f") -> str:
        values = self.found.get(name)
        return format(statistics.median(values), form) if values else "-"


def number_of(jobs: int) -> int:
    return jobs // 5 if SHORT else jobs


# Jobs are there before the worker starts.


def drain(one: Contestant, places: Places, figures: Figures) -> None:
    jobs = number_of(one.jobs)
    if one.store == "memory":
        drain_alone(one, jobs, figures)
        return
    place = places[one.store]
    url = place.fresh()
    rates = json.loads(finish(one.start("produce", url, jobs, number_of(one.singles))))
    figures.add(one_by_one=rates["one by one"], in_bulk=rates.get("in bulk"))
    question = one.unsettled.format(jobs=jobs)
    there = place.ask(question)
    assert there == jobs, f"{there} of {jobs} jobs wait"
    place.reset()
    with Worker(one, "work", url, jobs) as worker:
        report = worker.report()
        while place.ask(question):
            time.sleep(0.002)
        settled = time.monotonic_ns()
        trips = place.traffic().round_trips
        add_drained(figures, jobs, {**report, "settled": settled})
        figures.add(trips=None if trips is None else trips / jobs, peak=worker.megabytes("VmHWM"))


def drain_alone(one: Contestant, jobs: int, figures: Figures) -> None:
    with Worker(one, "alone", "memory://", jobs) as worker:
        report = worker.report() | worker.report()
        add_drained(figures, jobs, report)


def add_drained(figures: Figures, jobs: int, report: dict[str, Any]) -> None:
    assert report["distinct"] == jobs, f"{jobs - report['distinct']} jobs ran twice"
    figures.add(
        started=jobs / (report["last"] - report["first"]) * 1e9,
        settled=jobs / (report["settled"] - report["first"]) * 1e9,
    )


# The worker waits for jobs.


def pick_up(one: Contestant, places: Places, figures: Figures) -> None:
    if one.store == "memory":
        return
    url = places[one.store].fresh()
    with first_job(one, url, PICKS) as producer, Worker(one, "work", url, 1, PICKS) as worker:
        worker.report()
        finish(producer, "go\n")
        waits = [wait / 1e6 for wait in worker.report()["waits"]]
    figures.add(p50=percentile(waits, 50), p99=percentile(waits, 99))


@contextmanager
def first_job(one: Contestant, url: str, more: int) -> Iterator[subprocess.Popen[str]]:
    """Enqueue a job, which makes the tables as well; more of them follow when told so."""
    producer = one.start("pick", url, more)
    try:
        assert producer.stdout is not None
        assert producer.stdout.readline() == "enqueued\n", "the producer failed"
        yield producer
    finally:
        producer.kill()
        producer.communicate()


def idle(all_figures: dict[Contestant, Figures]) -> None:
    """Let all of them wait at the same time, each with a server of its own."""
    waiting: list[tuple[Figures, Place, Worker]] = []
    with ExitStack() as stack:
        for one, figures in all_figures.items():
            if one.store != "memory":
                place = stack.enter_context(open_place(one.store))
                with failures_noted("idle", one):
                    waiting.append((figures, place, stack.enter_context(rest(one, place))))
        note(f"idle: {len(waiting)} workers wait for {IDLE_SECONDS} s")
        time.sleep(QUIET_SECONDS)
        for _, place, _ in waiting:
            place.reset()
        time.sleep(IDLE_SECONDS)
        for figures, place, worker in waiting:
            add_idle(figures, place.traffic(), worker)


@contextmanager
def rest(one: Contestant, place: Place) -> Iterator[Worker]:
    """Start a worker that has done a job and has no more."""
    url = place.fresh()
    with first_job(one, url, 0):
        worker = Worker(one, "work", url, 1)
    with worker:
        worker.report()
        yield worker


def add_idle(figures: Figures, traffic: Traffic, worker: Worker) -> None:
    figures.add(
        **{
            name: None if value is None else value * 60 / IDLE_SECONDS
            for name, value in traffic._asdict().items()
        },
        resting=worker.megabytes("VmRSS"),
    )


# Tables.


def drain_table(all_figures: dict[Contestant, Figures]) -> Table:
    table = [[
        "library", "store", "handler", "jobs", "started/s", "settled/s", "result stored",
        "round trips per job", "peak RSS MiB",
    ]]  # fmt: skip
    for one, figures in all_figures.items():
        table.append([
            one.name, one.store, one.handler, f"{number_of(one.jobs):,}", figures.median("started"),
            figures.median("settled"), "yes" if one.keeps_results else "no",
            figures.median("trips", ".3f"), figures.median("peak"),
        ])  # fmt: skip
    return table


def enqueue_table(all_figures: dict[Contestant, Figures]) -> Table:
    table = [["library", "store", "one by one, jobs/s", "in bulk, jobs/s"]]
    for one, figures in all_figures.items():
        if one.store != "memory":
            bulk = figures.median("in_bulk") if one.has_bulk else "no such call"
            table.append([one.name, one.store, figures.median("one_by_one"), bulk])
    return table


def wait_table(all_figures: dict[Contestant, Figures]) -> Table:
    table = [[
        "library", "store", "pick-up p50 ms", "p99 ms", "round trips a minute",
        "commands a minute", "RSS MiB",
    ]]  # fmt: skip
    for one, figures in all_figures.items():
        if one.store != "memory":
            table.append([
                one.name, one.store, figures.median("p50", ",.2f"), figures.median("p99", ",.2f"),
                figures.median("round_trips"), figures.median("commands"),
                figures.median("resting"),
            ])  # fmt: skip
    return table


@contextmanager
def failures_noted(what: str, one: Contestant) -> Iterator[None]:
    """Go on without a figure that could not be had."""
    try:
        yield
    except (AssertionError, subprocess.TimeoutExpired) as error:
        note(f"FAILED: {what} of {one.name} on {one.store}: {error}")


def measure(contestants: list[Contestant]) -> dict[Contestant, Figures]:
    all_figures = {one: Figures() for one in contestants}
    with ExitStack() as stack:
        places = {
            store: stack.enter_context(open_place(store))
            for store in ("redis", "postgres", "sqlite")
        }
        for round_number in range(ROUNDS):
            for one, figures in all_figures.items():
                for measurement in (drain, pick_up):
                    with failures_noted(measurement.__name__, one):
                        measurement(one, places, figures)
                note(
                    f"round {round_number + 1} of {ROUNDS}: {one.name} on {one.store}: "
                    f"{figures.median('started')} started/s, {figures.median('settled')} "
                    f"settled/s, {figures.median('p50', ',.2f')} ms"
                )
    idle(all_figures)
    return all_figures


def main() -> None:
    begin = time.monotonic()
    wanted = sys.argv[1:]
    contestants = [
        one
        for one in install_older_redis(CONTESTANTS)
        if not wanted or one.name in wanted or one.store in wanted
    ]
    figures = measure(contestants)
    tables = {
        "jobs-drain": as_markdown(drain_table(figures)),
        "jobs-enqueue": as_markdown(enqueue_table(figures)),
        "jobs-wait": as_markdown(wait_table(figures)),
    }
    for name, table in tables.items():
        print(f"\n{name}\n{table}")
    note(f"took {time.monotonic() - begin:.0f} s")
    if SHORT or wanted:
        note("docs/benchmarks.md stays as it is: this was not the whole run")
    else:
        write({"jobs-machine": machine(f"medians of {ROUNDS} rounds."), **tables})


if __name__ == "__main__":
    main()
