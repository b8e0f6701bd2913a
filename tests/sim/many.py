"""Many runs at once: their sum, their speed, and whether enough has happened in them."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context

from tests.sim.floors import FLOORS, floors_from
from tests.sim.history import write_lines
from tests.sim.plan import FAULTS, dice_for
from tests.sim.running import SCENARIOS, planned, run

__all__ = [
    "Batch",
    "Sum",
    "below_floors",
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
"""How many of all runs are of which scenario."""

_BATCH = 25
# One of so many runs is done twice, and must give the same history to the byte.
_TWICE_IN = 100


@dataclass
class Batch:
    """Some runs of one scenario."""

    scenario: str
    runs: int = 0
    seconds: float = 0.0
    """Of a core's time."""
    counts: Counter[str] = field(default_factory=Counter)
    failed: list[tuple[int, list[str]]] = field(default_factory=list)

    def add(self, other: Batch) -> None:
        self.runs += other.runs
        self.seconds += other.seconds
        self.counts.update(other.counts)
        self.failed += other.failed


Sum = dict[str, Batch]


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
    """Return whether a run is done twice: one in each hundred is, in no fixed place of it."""
    hundred, place = divmod(seed, _TWICE_IN)
    return place == dice_for("comparing", scenario, hundred).randrange(_TWICE_IN)


def run_many(
    count: int,
    *,
    scenarios: Collection[str] = tuple(SCENARIOS),
    first: int = 0,
    faults: Collection[str] = FAULTS,
    cores: int | None = None,
    on_progress: Callable[[Sum], None] = lambda _: None,
) -> Sum:
    """Run `count` seeds, shared out over scenarios and cores."""
    sums = {name: Batch(name) for name in SCENARIOS if name in scenarios}
    # A child of its own kind: whatever the caller has open stays with the caller.
    with ProcessPoolExecutor(cores or os.cpu_count(), get_context("spawn")) as pool:
        batches = list(_batches(count, list(sums), first))
        for batch in pool.map(partial(_run_batch, faults=tuple(faults)), batches):
            sums[batch.scenario].add(batch)
            on_progress(sums)
    return sums


def _run_batch(batch: tuple[str, range], faults: Collection[str]) -> Batch:
    return run_batch(*batch, faults)


def _batches(count: int, scenarios: list[str], first: int) -> Iterator[tuple[str, range]]:
    """Yield pieces of all scenarios in turn, so that any part of them is like the whole."""
    whole = sum(SHARES[name] for name in scenarios)
    batches = []
    for name in scenarios:
        each = round(count * SHARES[name] / whole)
        for start in range(0, each, _BATCH):
            seeds = range(first + start, first + min(each, start + _BATCH))
            batches.append((start / each, name, seeds))
    for _, name, seeds in sorted(batches, key=lambda batch: batch[0]):
        yield name, seeds


def below_floors(sums: Sum) -> list[str]:
    """Return what happened too rarely to prove anything."""
    return [
        f"{name}: only {batch.counts[what]} {what} in {batch.runs} runs; "
        f"at least {least:.0f} are expected"
        for name, batch in sums.items()
        for what, least in _floors(batch).items()
        if batch.counts[what] < least
    ]


def _floors(batch: Batch) -> dict[str, float]:
    """Return the least of each for so many runs; nothing of which less than one is expected."""
    if batch.runs < floors_from(batch.scenario):
        return {}
    floors = {what: share * batch.runs for what, share in FLOORS[batch.scenario].items()}
    return {what: least for what, least in floors.items() if least >= 1}
