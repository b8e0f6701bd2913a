"""Measure jobs beside their peers and write docs/benchmarks.md; run by `make bench-jobs`.

All contestants run in turns, several rounds, one worker process each, against servers that this run
starts. BENCH_SHORT=1 runs everything with few jobs and does not change the document.
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
    """A worker process. It is killed at the end, because its store is thrown away."""

    def __init__(self, contestant: Contestant, role: str, url: str, *numbers: int) -> None:
        self._process = contestant.start(role, url, *numbers)
        self._alarm = threading.Timer(WITHIN, self._process.kill)
        self._name = contestant.label

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
        """Return the worker's next report; it comes after all jobs of a phase have started."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                return dict(json.loads(line))
        raise AssertionError(f"the worker of {self._name} ended, or took over {WITHIN:g} s")

    def megabytes(self, field_name: str) -> float:
        """Return the memory it has now (VmRSS) or had at its peak (VmHWM)."""
        status = Path(f"/proc/{self._process.pid}/status")
        if not status.exists():
            return 0.0
        match = re.search(rf"{field_name}:\s+(\d+) kB", status.read_text())
        return int(match[1]) / 1024 if match else 0.0


@dataclass
class Figures:
    """The values that all rounds measured for one contestant, by the name of the figure."""

    values: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def add(self, **figures: float | None) -> None:
        for name, value in figures.items():
            if value is not None:
                self.values[name].append(value)

    def median(self, name: str, form: str = ",.0f") -> str:
        values = self.values.get(name)
        return format(statistics.median(values), form) if values else "-"


def number_of(jobs: int) -> int:
    return jobs // 5 if SHORT else jobs


# Jobs that are enqueued before the worker starts.


def drain(contestant: Contestant, places: Places, figures: Figures) -> None:
    jobs = number_of(contestant.jobs)
    if contestant.store == "memory":
        drain_alone(contestant, jobs, figures)
        return
    place = places[contestant.store]
    url = place.fresh()
    rates = json.loads(
        finish(contestant.start("produce", url, jobs, number_of(contestant.singles)))
    )
    figures.add(one_by_one=rates["one by one"], in_bulk=rates.get("in bulk"))
    question = contestant.unsettled.format(jobs=jobs)
    there = place.ask(question)
    assert there == jobs, f"{there} of {jobs} jobs wait"
    place.reset()
    with Worker(contestant, "work", url, jobs) as worker:
        report = worker.report()
        while place.ask(question):
            time.sleep(0.002)
        settled = time.monotonic_ns()
        trips = place.traffic().round_trips
        add_drained(figures, jobs, {**report, "settled": settled})
        figures.add(trips=None if trips is None else trips / jobs, peak=worker.megabytes("VmHWM"))


def drain_alone(contestant: Contestant, jobs: int, figures: Figures) -> None:
    with Worker(contestant, "alone", "memory://", jobs) as worker:
        report = worker.report() | worker.report()
        add_drained(figures, jobs, report)


def add_drained(figures: Figures, jobs: int, report: dict[str, Any]) -> None:
    assert report["distinct"] == jobs, f"{jobs - report['distinct']} jobs ran twice"
    figures.add(
        started=jobs / (report["last"] - report["first"]) * 1e9,
        settled=jobs / (report["settled"] - report["first"]) * 1e9,
    )


# Jobs that a waiting worker picks up.


def pick_up(contestant: Contestant, places: Places, figures: Figures) -> None:
    if contestant.store == "memory":
        return
    url = places[contestant.store].fresh()
    with (
        first_job(contestant, url, PICKS) as producer,
        Worker(contestant, "work", url, 1, PICKS) as worker,
    ):
        worker.report()
        finish(producer, "go\n")
        waits = [wait / 1e6 for wait in worker.report()["waits"]]
    figures.add(p50=percentile(waits, 50), p99=percentile(waits, 99))


@contextmanager
def first_job(contestant: Contestant, url: str, more: int) -> Iterator[subprocess.Popen[str]]:
    """Enqueue a job, which creates the tables too; `more` jobs follow after a line on stdin."""
    producer = contestant.start("pick", url, more)
    try:
        assert producer.stdout is not None
        assert producer.stdout.readline() == "enqueued\n", "the producer failed"
        yield producer
    finally:
        producer.kill()
        producer.communicate()


def idle(all_figures: dict[Contestant, Figures]) -> None:
    """Let all contestants idle at the same time, each with a server of its own."""
    waiting: list[tuple[Figures, Place, Worker]] = []
    with ExitStack() as stack:
        for contestant, figures in all_figures.items():
            if contestant.store != "memory":
                place = stack.enter_context(open_place(contestant.store))
                with failures_noted("idle", contestant):
                    waiting.append((figures, place, stack.enter_context(rest(contestant, place))))
        note(f"idle: {len(waiting)} workers wait for {IDLE_SECONDS} s")
        time.sleep(QUIET_SECONDS)
        for _, place, _ in waiting:
            place.reset()
        time.sleep(IDLE_SECONDS)
        for figures, place, worker in waiting:
            add_idle(figures, place.traffic(), worker)


@contextmanager
def rest(contestant: Contestant, place: Place) -> Iterator[Worker]:
    """Start a worker, let it finish one job, and leave it idle."""
    url = place.fresh()
    with first_job(contestant, url, 0):
        worker = Worker(contestant, "work", url, 1)
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
    for contestant, figures in all_figures.items():
        table.append([
            contestant.name, contestant.store, contestant.handler,
            f"{number_of(contestant.jobs):,}", figures.median("started"), figures.median("settled"),
            "yes" if contestant.keeps_results else "no",
            figures.median("trips", ".3f"), figures.median("peak"),
        ])  # fmt: skip
    return table


def enqueue_table(all_figures: dict[Contestant, Figures]) -> Table:
    table = [["library", "store", "one by one, jobs/s", "in bulk, jobs/s"]]
    for contestant, figures in all_figures.items():
        if contestant.store != "memory":
            bulk = figures.median("in_bulk") if contestant.has_bulk else "no such call"
            table.append([contestant.name, contestant.store, figures.median("one_by_one"), bulk])
    return table


def wait_table(all_figures: dict[Contestant, Figures]) -> Table:
    table = [[
        "library", "store", "pick-up p50 ms", "p99 ms", "round trips a minute",
        "commands a minute", "RSS MiB",
    ]]  # fmt: skip
    for contestant, figures in all_figures.items():
        if contestant.store != "memory":
            table.append([
                contestant.name, contestant.store,
                figures.median("p50", ",.2f"), figures.median("p99", ",.2f"),
                figures.median("round_trips"), figures.median("commands"),
                figures.median("resting"),
            ])  # fmt: skip
    return table


@contextmanager
def failures_noted(what: str, contestant: Contestant) -> Iterator[None]:
    """Note a failed measurement and go on without it."""
    try:
        yield
    except (AssertionError, subprocess.TimeoutExpired) as error:
        note(f"FAILED: {what} of {contestant.label}: {error}")


def measure(contestants: list[Contestant]) -> dict[Contestant, Figures]:
    all_figures = {contestant: Figures() for contestant in contestants}
    with ExitStack() as stack:
        places = {
            store: stack.enter_context(open_place(store))
            for store in ("redis", "postgres", "sqlite")
        }
        for round_number in range(ROUNDS):
            for contestant, figures in all_figures.items():
                for measurement in (drain, pick_up):
                    with failures_noted(measurement.__name__, contestant):
                        measurement(contestant, places, figures)
                note(
                    f"round {round_number + 1} of {ROUNDS}: {contestant.label}: "
                    f"{figures.median('started')} started/s, {figures.median('settled')} "
                    f"settled/s, {figures.median('p50', ',.2f')} ms"
                )
    idle(all_figures)
    return all_figures


def main() -> None:
    begin = time.monotonic()
    names = sys.argv[1:]
    contestants = [
        contestant
        for contestant in install_older_redis(CONTESTANTS)
        if not names or contestant.name in names or contestant.store in names
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
    if SHORT or names:
        note("docs/benchmarks.md stays as it is: this was not the whole run")
    else:
        write({"jobs-machine": machine(f"medians of {ROUNDS} rounds."), **tables})


if __name__ == "__main__":
    main()
