"""The command: `python -m tests.interleavings --store postgres --seeds 2000`.

Or `--store postgres --kind jobs --seed 7`, which replays one schedule.
"""

# ruff: noqa: T201 - a command prints its results

import argparse
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from tests.interleavings.batches import (
    COLUMNS,
    FAMILIES,
    Sum,
    replay_command,
    run_many,
    running,
    shortened,
    violation,
)
from tests.interleavings.programs import KINDS, drawn

_SHOWN = 3
_PIECE = 25  # seeds that one process takes at a time


def main() -> int:
    """Replay one seed, or run many and print what happened in them."""
    options = _arguments()
    if options.seed is not None:
        return _replay(options)
    families = [options.store] if options.store else list(FAMILIES)
    kinds = [options.kind] if options.kind else list(KINDS)
    how = {"cuts": not options.no_cuts, "windows": not options.one_at_a_time}
    sums = {family: _run(family, kinds, options, how) for family in families}
    _print_counts(sums, options.processes)
    for family, total in sums.items():
        for schedule, why in total.failed[:_SHOWN]:
            print(f"\n{family}, seed {schedule.seed} of {schedule.kind}: {why}")
            print(f"replay, and shorten: {replay_command(family, schedule)}")
    missing = [f"{name}: {line}" for name, total in sums.items() for line in total.missing(name)]
    for line in missing:
        print(f"too little happened: {line}")
    failed = sum(len(total.failed) for total in sums.values())
    ran = sum(total.counts["schedules"] for total in sums.values())
    verdict = "FAILED" if failed or missing else "passed"
    print(f"\nschedules: {verdict}: {ran} of them, {failed} differ from the specification")
    return 1 if failed or missing else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.interleavings", description=__doc__)
    parser.add_argument("--store", choices=FAMILIES, help="only this store")
    parser.add_argument("--kind", choices=KINDS, help="only calls of this kind")
    parser.add_argument("--seeds", type=int, default=200, help="how many for each store (200)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (0)")
    parser.add_argument("--processes", type=int, default=2, help="number of processes (2)")
    parser.add_argument("--seed", type=int, help="replay this seed, and shorten it if it fails")
    parser.add_argument("--no-cuts", action="store_true", help="cut no calls")
    parser.add_argument("--one-at-a-time", action="store_true", help="let no calls overlap")
    options = parser.parse_args()
    if options.seed is not None and (options.store is None or options.kind is None):
        parser.error("--seed needs a --store and a --kind: it means something else in each")
    if options.seed is None and options.seeds < (least := 1 if options.kind else len(KINDS)):
        parser.error(f"--seeds must be at least {least}, one for each kind of calls")
    return options


def _run(family: str, kinds: list[str], options: argparse.Namespace, how: dict[str, bool]) -> Sum:
    each = options.seeds // len(kinds)
    pieces = [
        (kind, range(first, min(first + _PIECE, options.first + each)))
        for kind in kinds
        for first in range(options.first, options.first + each, _PIECE)
    ]
    total = Sum()
    # Spawned, not forked: the parent may have threads.
    with ProcessPoolExecutor(options.processes, mp_context=get_context("spawn")) as pool:
        sums = [pool.submit(run_many, family, kind, seeds, **how) for kind, seeds in pieces]
        for future in sums:
            total.add(future.result())
            _tell(f"{family}: {total.counts['schedules']} of {each * len(kinds)} schedules")
    return total


def _tell(progress: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {progress}", file=sys.stderr, flush=True)


def _replay(options: argparse.Namespace) -> int:
    schedule = drawn(options.kind, options.seed)
    with running(options.store) as rig:
        why = violation(schedule, rig)
        if why is None:
            print(f"{len(schedule.steps)} steps, and the store does as the specification says")
            return 0
        print(f"{why}\n\nthe shortest schedule that shows it:")
        short = shortened(schedule, rig)
        for step in short.steps:
            print(f"  {step}")
        print(violation(short, rig))
    return 1


def _print_counts(sums: dict[str, Sum], processes: int) -> None:
    print(f"{'':<28}" + "".join(f"{name:>12}" for name in sums))
    for what in COLUMNS:
        print(f"{what:<28}" + "".join(f"{total.counts[what]:>12,}" for total in sums.values()))
    rates = (total.counts["schedules"] / max(total.seconds, 1e-9) for total in sums.values())
    print(f"{'schedules/s of a process':<28}" + "".join(f"{rate:>12,.1f}" for rate in rates))
    print(f"({processes} processes)")


if __name__ == "__main__":
    sys.exit(main())
