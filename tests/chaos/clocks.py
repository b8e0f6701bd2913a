"""Somebody sets the clock of the store, ahead and back: fences rise, no effect is stale or double.

On SQLite the clock of the store is that of every process. Leases may end early when a clock is set
ahead, so holders may overlap there until their next renewal; that is not held against them.
"""

import asyncio
import os
import random
import shutil
import struct
from pathlib import Path

from tenure.testing.sim.history import Entry
from tests.chaos.brood import Member
from tests.chaos.diary import read_diary
from tests.chaos.places import Family, opened
from tests.chaos.storm import Scene, scene
from tests.chaos.tally import Tally
from tests.rig.sizes import SIZE, Storm
from tests.rig.spawn import run
from tests.rig.waiting import wait_until_async

_SOURCE = Path(__file__).with_name("clock_shift.c")
_CREW = {"worker": 3, "producer": 1, "holder": 5}
_PHASE = 2.5
_AHEAD, _BACK = 60.0, -3600.0


class ClockSetter:
    """A clock that the programs given `env` read, and that can be set while they run."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "clock"
        self._library = folder / "clock_shift.so"
        self.shift = self.furthest = 0.0
        self.set(0.0)
        compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
        assert compiler is not None
        run([compiler, "-shared", "-fPIC", "-O2", _SOURCE, "-o", self._library, "-ldl"])

    @property
    def env(self) -> dict[str, str]:
        return {"LD_PRELOAD": str(self._library), "TENURE_CLOCK_FILE": str(self._file)}

    def set(self, seconds: float) -> None:
        """Set the clock to so many seconds beside the true time."""
        self.shift = seconds
        self.furthest = max(self.furthest, seconds)
        file = os.open(self._file, os.O_RDWR | os.O_CREAT, 0o644)
        os.pwrite(file, struct.pack("=q", int(seconds * 1e6)), 0)
        os.close(file)


def impossible() -> str:
    """Say why clocks cannot be set here; empty if they can."""
    if os.uname().sysname != "Linux":
        return "clocks are set by a preload that is made for Linux"
    names = ("cc", "gcc", "clang")
    return "" if any(map(shutil.which, names)) else f"no C compiler: none of {', '.join(names)}"


async def set_clocks(
    family: Family, folder: Path, tally: Tally, size: Storm, seed: int, *, faults: bool = True
) -> None:
    """Set the clock ahead and back several times under load."""
    steps = 2 * size.rounds
    tally.demand("clock steps", steps)
    tally.demand("accepted", steps)
    tally.demand("grants", steps)
    tally.demand("granted again after a step back", size.rounds)
    if family != "sqlite":  # there leases end by a clock that nobody can set
        tally.demand("expiries while held", 1)
    clock = ClockSetter(folder)
    chance = random.Random(seed)
    inside = {} if family != "sqlite" else clock.env
    with opened(family, folder, env=clock.env) as place:
        async with scene(place, tally, seed, env=inside, orders={"holder": {"pace": 0.02}}) as here:
            for role, number in _CREW.items():
                for _ in range(number):
                    here.start(role)
            await asyncio.sleep(_PHASE)
            for _ in range(size.rounds if faults else 0):
                await _set(clock, clock.shift + _AHEAD * chance.uniform(0.1, 2), tally)
                await _step_back(here, clock, tally, chance)
                # What was put off while it was ahead would wait for hours: late, and not lost.
                await _set(clock, clock.furthest, tally)
            await here.settle_down()
            await here.account(clock_was_set=True)


async def _set(clock: ClockSetter, seconds: float, tally: Tally) -> None:
    clock.set(seconds)
    tally.add("clock steps")
    await asyncio.sleep(_PHASE)


async def _step_back(here: Scene, clock: ClockSetter, tally: Tally, chance: random.Random) -> None:
    """Set the clock back behind a holder that was killed: nobody waits an hour for its end."""
    victim = await _killed_inside(here, chance)
    tally.add("kills")
    await _set(clock, _BACK * chance.uniform(0.5, 2), tally)
    last = _last_of(victim)

    def granted_again() -> bool:
        stays = [one for one in here.entries() if one.what == "entered" and one.key == last.key]
        return any(one.at > last.at for one in stays)

    try:
        await wait_until_async(granted_again, SIZE.patience)
        tally.add("granted again after a step back")
    except AssertionError:
        tally.violate(f"{last.key} is not granted again after a step back of the clock")


async def _killed_inside(here: Scene, chance: random.Random) -> Member:
    """Kill somebody inside a lock."""

    def inside() -> list[Member]:
        return [one for one in here.brood.living("holder") if _is_inside(one)]

    while True:
        victim = chance.choice(await wait_until_async(inside, SIZE.patience, "one is inside"))
        await here.brood.kill(victim)
        here.replace(victim)
        if _is_inside(victim):
            return victim


def _is_inside(holder: Member) -> bool:
    return holder.is_busy() and _last_of(holder).limit == 1


def _last_of(holder: Member) -> Entry:
    return read_diary(holder.diary)[-1]
