"""The command `make cost`: print what work costs on each store, beside what is recorded.

python -m tests.cost [--store redis] [--record]
"""

# ruff: noqa: T201 - a command talks by print

import argparse
import asyncio
import sys

from tests.cost import table
from tests.cost.meters import METERS
from tests.cost.scenarios import SCENARIOS
from tests.cost.stage import Costs, perform


def main() -> int:
    """Measure, print, and record or compare."""
    parser = argparse.ArgumentParser(prog="python -m tests.cost", description=__doc__)
    parser.add_argument("--store", choices=METERS, help="only this one")
    parser.add_argument("--record", action="store_true", help="write down what was measured")
    options = parser.parse_args()
    recorded = table.read()
    problems: list[str] = []
    for store in [options.store] if options.store else METERS:
        costs = _measure(store)
        _print(store, costs, recorded.get(store, {}))
        problems += table.differences(store, costs, recorded.get(store, {}))
        recorded[store] = costs
    if options.record:
        table.write({store: recorded[store] for store in METERS if store in recorded})
        print(f"recorded in {table.PATH.name}; changed: {len(problems)}")
        return 0
    print("\n".join(problems) or "all as recorded")
    return 1 if problems else 0


def _measure(store: str) -> Costs:
    costs: Costs = {}
    with METERS[store]() as meter:
        for scenario in SCENARIOS:
            costs |= asyncio.run(perform(meter, scenario))
    return costs


def _print(store: str, costs: Costs, recorded: Costs) -> None:
    measures = METERS[store].measures
    print(f"{store:<28}" + "".join(f"{measure:>26}" for measure in measures))
    for work, cost in costs.items():
        cells = [_cell(cost[name], recorded.get(work, {}).get(name)) for name in measures]
        print(f"  {work:<26}" + "".join(f"{cell:>26}" for cell in cells))
    print()


def _cell(now: float, before: float | None) -> str:
    return f"{now:g}" if before in (None, now) else f"{now:g} (was {before:g})"


if __name__ == "__main__":
    sys.exit(main())
