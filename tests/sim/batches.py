"""Runs many seeds on all cores; sums up their counts, and checks that enough has happened."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context

from tests.sim.history import write_lines
from tests.sim.minimums import MINIMUMS, runs_for_minimums
from tests.sim.plan import FAULTS, rng_for
from tests.sim.runner import planned, run
from tests.sim.scenarios.catalog import SCENARIOS

__all__ = [
    "Batch",
    "Totals",
    "below_minimums",
    "is_compared",
    "run_batch",
    "run_many",
]

SHARES = {
    "locks": 0.2495,
    "leases": 0.2,
    "jobs": 0.15,
    "fleet": 0.1,
    "clocks": 0.1,
    "timers": 0.1,
    "http": 0.1,
    "shop": 0.0005,  # its hour takes as long as 300 histories of others
}
"""The share of each scenario among all runs."""

_BATCH = 25
# One of so many runs is repeated, and must give the same history to the byte.
_TWICE_IN = 100


@dataclass
class Batch:
    """The results of some runs of one scenario."""

    scenario: str
    runs: int = 0
    seconds: float = 0.0
    """CPU time."""
    counts: Counter[str] = field(default_factory=Counter)
    failed: list[tuple[int, list[str]]] = field(default_factory=list)

    def add(self, other: Batch) -> None:
        self.runs += other.runs
        self.seconds += other.seconds
        self.counts.update(other.counts)
        self.failed += other.failed


Totals = dict[str, Batch]


def run_batch(scenario: str, seeds: Iterable[int], faults: Collection[str] = FAULTS) -> Batch:
    """Run some seeds one after the other."""
    batch = Batch(scenario)
    began = time.process_time()
    for seed in seeds:
        outcome = run(planned(seed, scenario, faults))
        batch.runs += 1
        batch.counts.update(outcome.counts)
        if is_compared(scenario, seed):
            again = run(planned(seed, scenario, faults))
            batch.counts["compared to the byte"] += 1
            if write_lines(outcome.history) != write_lines(again.history):
                outcome.wrong.append("the same seed has given another history")
        if outcome.wrong:
            batch.failed.append((seed, outcome.wrong))
    batch.seconds = time.process_time() - began
    return batch


def is_compared(scenario: str, seed: int) -> bool:
    """Return whether a run is repeated: one of each hundred is, at a random place."""
    hundred, place = divmod(seed, _TWICE_IN)
    return place == rng_for("comparing", scenario, hundred).randrange(_TWICE_IN)


def run_many(
    count: int,
    *,
    scenarios: Collection[str] = tuple(SCENARIOS),
    first: int = 0,
    faults: Collection[str] = FAULTS,
    cores: int | None = None,
    on_progress: Callable[[Totals], None] = lambda _: None,
) -> Totals:
    """Run `count` seeds, distributed over scenarios and cores."""
    totals = {name: Batch(name) for name in SCENARIOS if name in scenarios}
    # Spawned, not forked: children must not inherit what the caller has open.
    with ProcessPoolExecutor(cores or os.cpu_count(), get_context("spawn")) as pool:
        batches = list(_batches(count, list(totals), first))
        for batch in pool.map(partial(_run_batch, faults=tuple(faults)), batches):
            totals[batch.scenario].add(batch)
            on_progress(totals)
    return totals


def _run_batch(batch: tuple[str, range], faults: Collection[str]) -> Batch:
    return run_batch(*batch, faults)


def _batches(count: int, scenarios: list[str], first: int) -> Iterator[tuple[str, range]]:
    """Yield batches of all scenarios in turn, so that each part of the run has all scenarios."""
    whole = sum(SHARES[name] for name in scenarios)
    batches = []
    for name in scenarios:
        each = round(count * SHARES[name] / whole)
        for start in range(0, each, _BATCH):
            seeds = range(first + start, first + min(each, start + _BATCH))
            batches.append((start / each, name, seeds))
    for _, name, seeds in sorted(batches, key=lambda batch: batch[0]):
        yield name, seeds


def below_minimums(totals: Totals) -> list[str]:
    """Return a line for each event that happened too rarely for the runs to prove anything."""
    return [
        f"{name}: only {batch.counts[what]} {what} in {batch.runs} runs; "
        f"at least {least:.0f} are expected"
        for name, batch in totals.items()
        for what, least in _minimums(batch).items()
        if batch.counts[what] < least
    ]


def _minimums(batch: Batch) -> dict[str, float]:
    """Return the minimums for so many runs, without those that demand less than one event."""
    if batch.runs < runs_for_minimums(batch.scenario):
        return {}
    minimums = {what: share * batch.runs for what, share in MINIMUMS[batch.scenario].items()}
    return {what: least for what, least in minimums.items() if least >= 1}
