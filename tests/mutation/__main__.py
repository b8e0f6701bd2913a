"""Mutate the source and see whether the tests notice: python -m tests.mutation --seed 1 --count 300

Prints a line for each mutant, a table by folder, and each survivor with its change. Ends with 1 if
fewer mutants were caught than demanded, or if an entry of equivalents.txt is stale.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from tests.mutation.equivalents import Equivalents
from tests.mutation.mutant import LANGUAGES, Mutant
from tests.mutation.run import CACHE, Run
from tests.mutation.sample import Filter, all_mutants, drawn
from tests.mutation.trial import Limits
from tests.mutation.verdicts import Ledger, rate, report

ROOT = Path(__file__).parents[2]


def main() -> None:
    """Draw, try, report."""
    options = parsed()
    root = options.root.resolve()
    if options.list:
        everything = all_mutants(root, Filter(paths=("src",)))
        _list(_chosen(everything, options)[: options.count], len(everything))
        return
    name = "replay" if options.mutant else f"seed-{options.seed}"
    ledger = Ledger(root / CACHE / f"{name}.jsonl", resume=options.resume or options.survivors)
    if options.survivors:
        ledger.forget_survivors()
    with Run(root, options.workers, Limits(options.seconds), _say) as run:
        everything = all_mutants(run.root, Filter(paths=("src",)))
        chosen = _chosen(everything, options)
        equivalents = Equivalents.read(run.root / "tests" / "mutation" / "equivalents.txt")
        stale = equivalents.stale(everything)
        run.measure(everything=options.measure)
        verdicts = run.try_all(chosen, options.count, equivalents, ledger)
    for entry in stale:
        print(f"STALE: no mutant fits this entry of equivalents.txt any more:\n{entry.text}")
    for line in report(verdicts):
        print(line)
    percent = rate(verdicts)
    print(f"\nmutation: {percent:.1f} % caught, {options.min:g} % demanded", end="")
    print(f", {len(stale)} stale entries in equivalents.txt" if stale else "")
    sys.exit(0 if percent >= options.min and not stale else 1)


def parsed(words: list[str] | None = None) -> argparse.Namespace:
    """Return what was asked for on the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="decides which mutants are drawn")
    parser.add_argument("--count", type=int, default=300, help="how many are tried (300)")
    parser.add_argument("--min", type=float, default=95.0, help="percentage to catch (95)")
    repeatable: dict[str, Any] = {"action": "append", "default": []}
    parser.add_argument(
        "--path", **repeatable, help="a file, a folder or a pattern; may be repeated"
    )
    parser.add_argument("--place", **repeatable, help="a function or a pattern, such as 'Keeper.*'")
    parser.add_argument("--language", **repeatable, choices=sorted(LANGUAGES.values()))
    parser.add_argument("--operator", **repeatable, help="such as 'removed lock'")
    parser.add_argument("--mutant", **repeatable, metavar="ID", help="this one, and no sample")
    parser.add_argument("--list", action="store_true", help="show the mutants, try none")
    parser.add_argument("--resume", action="store_true", help="go on where a run was cut off")
    parser.add_argument("--survivors", action="store_true", help="try again what has survived")
    parser.add_argument("--measure", action="store_true", help="measure anew what tests reach")
    parser.add_argument("--workers", type=int, default=2, help="mutants at a time (2)")
    parser.add_argument("--seconds", type=float, default=60.0, help="of tests for each mutant (60)")
    parser.add_argument("--root", type=Path, default=ROOT, help=argparse.SUPPRESS)
    return parser.parse_args(words)


def _chosen(everything: list[Mutant], options: argparse.Namespace) -> list[Mutant]:
    if options.mutant:
        chosen = [mutant for mutant in everything if mutant.id in options.mutant]
        if missing := set(options.mutant) - {mutant.id for mutant in chosen}:
            sys.exit(f"mutation: the source has no such mutant now: {', '.join(missing)}")
        return chosen
    selection = Filter(
        tuple(options.path), tuple(options.place), tuple(options.language), tuple(options.operator)
    )
    fitting = [
        mutant
        for mutant in everything
        if selection.takes_file(mutant.file) and selection.takes(mutant)
    ]
    return drawn(fitting, options.seed)


def _list(mutants: list[Mutant], of: int) -> None:
    for mutant in mutants:
        print("\n".join([mutant.title, *mutant.hunk, ""]))
    print(f"{len(mutants)} of {of:,} mutants")


def _say(what: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {what}", flush=True)


if __name__ == "__main__":
    main()
