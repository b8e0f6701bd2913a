"""The command: `python -m tests.sim --count 2000`, or `--scenario jobs --seed 7`."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from tests.sim.batches import Totals, below_minimums, run_many
from tests.sim.history import write_lines
from tests.sim.minimums import RUNS_FOR_MINIMUMS, runs_for_minimums
from tests.sim.plan import FAULTS
from tests.sim.runner import planned, run
from tests.sim.scenarios.catalog import SCENARIOS
from tests.sim.shorten import Replay, shorten

_SHOWN = 5
_SHORTENED = 3
_REPORT_EVERY = 10.0  # seconds
_SHORTLY = 120.0
# So that there is one for each scenario; the shop comes in from 1,000 on.
_COUNT_MIN = 10
_COLUMNS = (
    "grants",
    "expired leases",
    "claims",
    "settlements",
    "retries",
    "ticks",
    "ticks won by others",
    "skipped ticks",
    "paused ticks",
    "triggered runs",
    "deploys",
    "renames",
    "redefinitions",
    "forgotten timers",
    "resets",
    "submissions",
    "lost answers",
    "replays",
    "refused requests",
    "streams",
    "resumed streams",
    "denied",
    "second attempts",
    "recoveries",
    "jobs beside a backlog",
    "refused stale calls",
    "refused stale effects",
    *FAULTS,
    "edges met",
    "mild plans",
    "lost writes",
    "lost jobs",
    "compared to the byte",
)


def main() -> int:
    """Replay one seed, or run many and print what happened in them."""
    options = _arguments()
    if options.seed is not None:
        return _replay(options)
    faults = () if options.no_faults else FAULTS
    scenarios = [options.scenario] if options.scenario else list(SCENARIOS)
    totals = run_many(
        options.count,
        scenarios=scenarios,
        first=options.first,
        faults=faults,
        on_progress=_Progress(options.count),
    )
    _print_counts(totals)
    failed = [(name, seed, why) for name, total in totals.items() for seed, why in total.failed]
    for number, (name, seed, why) in enumerate(failed[:_SHOWN]):
        _print_failure(Replay(scenario=name, seed=seed), why, is_shortened=number < _SHORTENED)
    missing = below_minimums(totals)
    for line in missing:
        print(f"too little happened: {line}")
    if options.summary is not None:
        _write_summary(options.summary, totals)
    print(f"\nsim: {_verdict(totals, len(failed), len(missing))}")
    return 1 if failed or missing else 0


def _verdict(totals: Totals, failed: int, missing: int) -> str:
    runs = sum(batch.runs for batch in totals.values())
    summary = f"{runs:,} histories, {failed} with violations"
    if failed or missing:
        return f"FAILED: {summary}" + (f"; {missing} times too little happened" if missing else "")
    few = [name for name, batch in totals.items() if batch.runs < runs_for_minimums(name)]
    if few:
        names = ", ".join(few)
        summary += f" (too few of {names} to say whether enough went wrong: {RUNS_FOR_MINIMUMS} do)"
    return f"passed: {summary}"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--count", type=int, default=3000, help="how many seeds to run (3000)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (0)")
    parser.add_argument("--scenario", choices=list(SCENARIOS), help="only this one")
    parser.add_argument("--no-faults", action="store_true", help="let nothing go wrong")
    parser.add_argument("--seed", type=int, help="replay this one")
    parser.add_argument("--without", default="", help="leave these kinds of faults out")
    parser.add_argument("--drop", default="", help="leave these events out, by their numbers")
    parser.add_argument("--until", type=float, help="let everything go well from this second on")
    parser.add_argument("--history", type=Path, help="write the history of a replay to this file")
    parser.add_argument("--summary", type=Path, help="write the sums to this file, as JSON")
    options = parser.parse_args()
    if options.seed is not None:
        options.cut = _cut(options, parser)
    elif options.count < (least := 1 if options.scenario else _COUNT_MIN):
        parser.error(f"--count must be at least {least}, one for each scenario or more")
    return options


def _cut(options: argparse.Namespace, parser: argparse.ArgumentParser) -> Replay:
    if options.scenario is None:
        parser.error("--seed needs a --scenario: a seed means something else in each")
    without = [kind for kind in options.without.split(",") if kind]
    if strange := set(without).difference(FAULTS):
        parser.error(f"--without: no fault is called {strange.pop()!r}; these are: {_list(FAULTS)}")
    numbers = [str(event.number) for event in planned(options.seed, options.scenario).events]
    dropped = [number for number in options.drop.split(",") if number]
    if strange := set(dropped).difference(numbers):
        parser.error(f"--drop: there is no event {strange.pop()!r}, only {_list(numbers)}")
    if options.history is not None and not options.history.parent.is_dir():
        parser.error(f"--history: there is no folder {options.history.parent}")
    return Replay(
        scenario=options.scenario,
        seed=options.seed,
        without=tuple(without),
        dropped=tuple(map(int, dropped)),
        until=options.until,
    )


def _list(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"


def _replay(options: argparse.Namespace) -> int:
    plan = options.cut.plan
    outcome = run(plan)
    print(plan)
    if options.history is not None:
        options.history.write_bytes(write_lines(outcome.history))
    print(f"\n{len(outcome.history)} entries in its history, {len(outcome.wrong)} violations")
    for line in outcome.wrong:
        print(f"  {line}")
    return 1 if outcome.wrong else 0


class _Progress:
    """Prints each violation as soon as it is found, and the progress now and then."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._began = self._reported = time.monotonic()
        self._shown: set[tuple[str, int]] = set()

    def __call__(self, totals: Totals) -> None:
        self._show_violations(totals)
        now = time.monotonic()
        if now - self._reported < _REPORT_EVERY:
            return
        self._reported = now
        runs = sum(total.runs for total in totals.values())
        failed = sum(len(total.failed) for total in totals.values())
        left = (self._count - runs) * (now - self._began) / runs
        minutes = f"{left / 60:.0f} min" if left > _SHORTLY else f"{left:.0f} s"
        print(
            f"{now - self._began:5.0f} s: {runs:,} of {self._count:,} histories, "
            f"{failed} with violations; at this rate {minutes} more",
            file=sys.stderr,
            flush=True,
        )

    def _show_violations(self, totals: Totals) -> None:
        for name, total in totals.items():
            for seed, why in total.failed:
                if (name, seed) not in self._shown:
                    self._shown.add((name, seed))
                    command = Replay(scenario=name, seed=seed).command
                    print(f"violation: {why[0][:400]}\n  {command}", file=sys.stderr, flush=True)


def _write_summary(path: Path, totals: Totals) -> None:
    summary = {
        "histories": sum(total.runs for total in totals.values()),
        "violations": sum(len(total.failed) for total in totals.values()),
        "counts": sum((total.counts for total in totals.values()), Counter()),
    }
    path.write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")


def _print_counts(totals: Totals) -> None:
    print(f"{'':<28}" + "".join(f"{name:>12}" for name in totals))
    print(f"{'histories':<28}" + "".join(f"{total.runs:>12,}" for total in totals.values()))
    for what in _COLUMNS:
        print(f"{what:<28}" + "".join(f"{total.counts[what]:>12,}" for total in totals.values()))
    rates = (total.runs / max(total.seconds, 1e-9) for total in totals.values())
    print(f"{'histories/s of one core':<28}" + "".join(f"{rate:>12,.0f}" for rate in rates))
    rates = (total.counts["steps"] / max(total.seconds, 1e-9) for total in totals.values())
    print(f"{'steps/s of one core':<28}" + "".join(f"{rate:>12,.0f}" for rate in rates))
    print("(lost writes and jobs: what 'empty' and 'failover' took from the store itself)")


def _print_failure(cut: Replay, why: list[str], *, is_shortened: bool) -> None:
    print(f"\nseed {cut.seed} of {cut.scenario}: {len(why)} violations")
    for line in why[:_SHOWN]:
        print(f"  {line[:400]}")
    print(f"replay:    {cut.command}")
    if is_shortened:
        shortest = shorten(cut)
        print(f"shortened: {shortest.command}")
        for line in str(shortest.plan).splitlines():
            print(f"  {line}")


if __name__ == "__main__":
    sys.exit(main())
