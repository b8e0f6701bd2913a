"""Put fleets of real processes through storms: python -m tests.chaos

Prints what it does while it runs, a table at the end, and every violation. It fails on a violation,
and if too little has happened to show anything.
"""

import argparse
import asyncio
import dataclasses
import logging
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from tests.chaos import clocks
from tests.chaos.busy import busy_file
from tests.chaos.disks import Mounts, fill_disks
from tests.chaos.failovers import fail_over
from tests.chaos.full import fill_memory
from tests.chaos.leftovers import check_threads
from tests.chaos.memory import eat_memory
from tests.chaos.places import FAMILIES, Family, missing, opened
from tests.chaos.shop.run import run_shop
from tests.chaos.storm import storm
from tests.chaos.tally import Tally, sum_of, table, write_summary
from tests.rig.sizes import FULL_STORM, Storm

FULL_SECONDS = 25 * 60
"""About how long all parts take in the full size."""

# What all parts together come to in the full size, at the least.
FLOORS = {"kills": 1000, "pauses": 200, "restarts": 30, "failovers": 10}


@dataclass(frozen=True)
class Run:
    """What was asked for."""

    size: Storm
    seed: int
    faults: bool
    fenced: bool
    folder: Path
    mounts: Mounts | str
    """What small disks are made with, or why there are none."""


Part = Callable[[Run, Family, Tally, Path], Awaitable[None]]


async def _storm(run: Run, family: Family, tally: Tally, folder: Path) -> None:
    with opened(family, folder) as place:
        await storm(place, tally, run.size, run.seed, faults=run.faults, fenced=run.fenced)


async def _busy(run: Run, family: Family, tally: Tally, folder: Path) -> None:
    with opened(family, folder) as place:
        await busy_file(place, tally, run.size, run.seed)


async def _memory(run: Run, family: Family, tally: Tally, folder: Path) -> None:
    with opened(family, folder) as place:
        await eat_memory(place, tally, run.size, run.seed, faults=run.faults)


async def _disk(run: Run, family: Family, tally: Tally, folder: Path) -> None:
    if isinstance(run.mounts, str):
        tally.skip(run.mounts)
        return
    await fill_disks(run.mounts, family, folder, tally, run.size, run.seed, faults=run.faults)


async def _full(run: Run, family: Family, tally: Tally, folder: Path) -> None:
    with opened(family, folder) as place:
        await fill_memory(place, tally, run.size, run.seed, faults=run.faults)


async def _clock(run: Run, family: Family, tally: Tally, folder: Path) -> None:
    if reason := clocks.impossible():
        tally.skip(reason)
        return
    await clocks.set_clocks(family, folder, tally, run.size, run.seed, faults=run.faults)


async def _failovers(run: Run, family: Family, tally: Tally, folder: Path) -> None:
    tally.demand("failovers", 2 * run.size.steps)
    if run.faults:
        await fail_over(tally, folder, run.size)


async def _shop(run: Run, family: Family, tally: Tally, folder: Path) -> None:
    with opened(family, folder) as place:
        await run_shop(place, tally, run.size, run.seed, faults=run.faults)


PARTS: dict[str, Part] = {
    "storm": _storm,
    "busy": _busy,
    "memory": _memory,
    "disk": _disk,
    "full": _full,
    "clock": _clock,
    "failovers": _failovers,
    "shop": _shop,
}
_ONLY_ON: dict[str, Family] = {
    "busy": "sqlite",
    "full": "redis",
    "failovers": "redis",
    "shop": "redis",
}
"""The others run once per store."""


def parsed() -> argparse.Namespace:
    """Return what was asked for on the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    stores = ["all", *FAMILIES]
    parts = ["all", *PARTS]
    parser.add_argument("--store", choices=stores, default="all")
    parser.add_argument("--part", choices=parts, action="append", help="may be given again")
    parser.add_argument("--seed", type=int, default=None, help="decides what strikes when")
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--minutes", type=_positive, help="about so long for all of it (25)")
    length.add_argument("--scale", type=_positive, default=1.0, help="so many times the full size")
    parser.add_argument("--summary", type=Path, metavar="FILE", help="write the figures as JSON")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep ledgers and logs there")
    parser.add_argument("--no-faults", action="store_true", help="must fail, on its floors")
    parser.add_argument("--unfenced", action="store_true", help="a sink without fences: must fail")
    options = parser.parse_args()
    options.selected = list(selected(options.store, options.part or ["all"]))
    if not options.selected:
        places = ", ".join(f"{part} on {_ONLY_ON[part]}" for part in options.part)
        parser.error(f"nothing of that runs on {options.store}, only {places}")
    if options.minutes is not None:
        is_shop = options.selected == [("redis", "shop")]
        options.scale = (
            options.minutes * 60 / (FULL_STORM.shop_seconds if is_shop else FULL_SECONDS)
        )
    return options


def _positive(text: str) -> float:
    number = float(text)
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError("it must be above 0")
    return number


def selected(store: str, parts: list[str]) -> Iterator[tuple[Family, str]]:
    """Yield what there is of these parts, store by store."""
    for family in FAMILIES:
        for name in PARTS:
            is_meant = store in ("all", family) and {"all", name} & set(parts)
            if is_meant and _ONLY_ON.get(name, family) == family:
                yield family, name


def main() -> None:
    """Run the parts, and say how it went."""
    options = parsed()
    seed = options.seed if options.seed is not None else time.time_ns() % 1_000_000
    scale = options.scale
    mounts = own_mounts()
    # The proxy writes to connections that it has just cut; asyncio would tell of each.
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    print(f"chaos: seed {seed}, {scale:g} times the full size")
    with ExitStack() as stack:
        folder = options.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        run = Run(
            size=scaled(FULL_STORM, scale),
            seed=seed,
            faults=not options.no_faults,
            fenced=not options.unfenced,
            folder=folder,
            mounts=mounts,
        )
        tallies = asyncio.run(run_all(run, options.selected))
    total = sum_of(tallies)
    if options.store == "all" and "all" in (options.part or ["all"]):
        for name, floor in FLOORS.items():
            total.demand(name, int(floor * scale))
    if options.summary:
        write_summary(options.summary, tallies)
    sys.exit(report(tallies, total))


def own_mounts() -> Mounts | str:
    """Have mounts of our own, before there is any thread that would stay without."""
    try:
        return Mounts()
    except OSError as error:
        return str(error)


def scaled(size: Storm, scale: float) -> Storm:
    """Return the size for a longer or shorter run."""
    return dataclasses.replace(
        size,
        seconds=size.seconds * scale,
        busy_seconds=size.busy_seconds * scale,
        rounds=max(1, round(size.rounds * scale)),
        steps=max(1, round(size.steps * scale)),
        shop_seconds=max(6.0, size.shop_seconds * scale),
        shop_flood=max(800, round(size.shop_flood * min(1.0, scale))),
        shop_kills=max(1, round(size.shop_kills * scale)),
    )


async def run_all(run: Run, parts: list[tuple[Family, str]]) -> list[Tally]:
    """Run one part after the other."""
    return [await run_part(run, name, PARTS[name], family) for family, name in parts]


async def run_part(run: Run, name: str, part: Part, family: Family) -> Tally:
    """Run one part on one store; whatever breaks in it is a violation as well."""
    tally = Tally(f"{family} {name}", tell=_tell)
    if reason := missing(family):
        tally.skip(reason)
        return tally
    folder = run.folder / f"{family}-{name}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    began = time.monotonic()
    threads = set(threading.enumerate())
    try:
        await part(run, family, tally, folder)
        check_threads(threads, tally)
    except Exception as error:  # noqa: BLE001 - the other parts are still worth running
        tally.violate(f"{type(error).__name__}: {error}")
    tally.seconds = time.monotonic() - began
    tally.progress(f"ended after {tally.seconds:.0f} s: {tally.line()}")
    return tally


def report(tallies: list[Tally], total: Tally) -> int:
    """Print the table and all that went wrong; return the exit code."""
    stores = groupby(tallies, key=lambda tally: tally.part.partition(" ")[0])
    tables = [table(list(parts)) for _, parts in stores]
    print("\n" + "\n\n".join([*tables, table([total])] if len(tables) > 1 else tables))
    for skipped in total.skipped:
        print(f"skipped: {skipped}")
    missed = [what for tally in [*tallies, total] for what in tally.missed()]
    for what in missed:
        print(f"TOO LITTLE: {what}")
    for violation in total.violations:
        print(f"VIOLATION: {violation}")
    if all(tally.skipped and not tally.counts for tally in tallies):
        verdict = "FAILED: nothing could be run"
    elif missed or total.violations:
        verdict = f"FAILED: {len(total.violations)} violations, {len(missed)} times too little"
    else:
        verdict = "no violation"
    print(f"\nchaos: {verdict}")
    return 0 if verdict == "no violation" else 1


def _tell(what: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {what}", flush=True)


if __name__ == "__main__":
    main()
