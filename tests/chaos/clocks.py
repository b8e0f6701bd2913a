"""The clock of the store is set ahead and back: fences rise, no effect is stale or double.

No worker that lives is taken for dead, no tick runs twice or out of order, timers tick after each
step ahead, and no job waits until the clock has caught up. On SQLite the clock of the store is that
of every process. Leases may end early when a clock is set ahead, so holders may overlap there until
their next renewal; that is not held against them.
"""

import asyncio
import os
import random
import shutil
import struct
import time
from collections.abc import Collection
from pathlib import Path

from tests.chaos.brood import Member
from tests.chaos.diary import read_diary
from tests.chaos.judge import judge_clock_steps, judge_order_of_ticks
from tests.chaos.places import Family, opened
from tests.chaos.storm import Scene, scene
from tests.chaos.tally import Tally
from tests.process.orders import boot
from tests.rig.sizes import SIZE, Storm
from tests.rig.spawn import run
from tests.rig.wait import wait_until_async
from tests.sim.history import Entry

_SOURCE = Path(__file__).with_name("clock_shift.c")
_CREW = {"worker": 5, "producer": 1, "holder": 5}
# Long enough that not all workers beat before the second look of the first one: 2.4 and 1.2 s.
_REPLICA_TTL = 8.0
_ORDERS = {
    "holder": {"pace": 0.02},
    "worker": {"replica_ttl": _REPLICA_TTL},
    "producer": {"delay": 2.0},
}
# Their beats are spread over the time between two of them.
_APART = 0.5
# All workers beat once, and one of them looks twice.
_PHASE = 4.0
_AHEAD, _BACK = 60.0, -3600.0
_WAITING = 3


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
        return {"LD_PRELOAD": str(self._library), "TENURE_TEST_CLOCK_FILE": str(self._file)}

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
    _demand(tally, size.rounds)
    if family != "sqlite":  # there leases end by a clock that cannot be set
        tally.demand("expiries while held", 1)
    clock = ClockSetter(folder)
    chance = random.Random(seed)
    inside = {} if family != "sqlite" else clock.env
    with opened(family, folder, env=clock.env) as place:
        async with scene(place, tally, seed, env=inside, orders=_ORDERS) as here:
            for role, number in _CREW.items():
                for _ in range(number):
                    here.start(role)
                    await asyncio.sleep(_APART if role == "worker" else 0)
            await asyncio.sleep(_PHASE)
            for _ in range(size.rounds if faults else 0):
                ahead = clock.shift + _AHEAD * chance.uniform(0.5, 2)
                await _step_ahead(here, clock, ahead, tally)
                await _step_back(here, clock, tally, chance)
                # Timers rest until it has caught up, and tick again then.
                await _step_ahead(here, clock, clock.furthest, tally)
            await here.settle_down()
            entries = here.entries()
            judge_clock_steps(entries, tally)
            judge_order_of_ticks(entries, tally)
            _check_false_deaths(here, tally)
            await here.account(clock_was_set=True)


def _demand(tally: Tally, rounds: int) -> None:
    """Set the floors: each step was seen by a producer, and jobs and timers went on after it."""
    tally.demand("clock steps ahead", 2 * rounds)
    tally.demand("clock steps back", rounds)
    tally.demand("accepted", 3 * rounds)
    tally.demand("grants", 3 * rounds)
    tally.demand("granted again after a step back", rounds)
    tally.demand("run again after a step back", rounds)
    tally.demand("waited through a step back", _WAITING * rounds)
    tally.demand("ticked after a step ahead", 2 * rounds)


async def _step_ahead(here: Scene, clock: ClockSetter, seconds: float, tally: Tally) -> None:
    """Set the clock ahead, and wait for a tick that is due after the step."""
    clock.set(seconds)
    stepped_to = time.time() + seconds
    await asyncio.sleep(_PHASE)

    def ticked() -> bool:
        return any(entry.what == "chimed" and entry.tick > stepped_to for entry in here.entries())

    try:
        await wait_until_async(ticked, SIZE.patience)
        tally.add("ticked after a step ahead")
    except AssertionError:
        tally.violate(f"no tick after a step of the clock to {seconds:+.0f} s")


def _check_false_deaths(here: Scene, tally: Tally) -> None:
    """Find workers that were told that others have their jobs: none of them was away."""
    tally.add("workers taken for dead", 0)
    for entry in here.entries():
        if entry.what == "ReplicaLost":
            tally.add("workers taken for dead")
            tally.violate(f"{entry.by} was taken for dead, and lived: {entry}")


async def _step_back(here: Scene, clock: ClockSetter, tally: Tally, chance: random.Random) -> None:
    """Set the clock back behind killed processes and due jobs, which must not wait an hour."""
    worker, lost = await _killed_at_work(here, chance)
    holder = await _killed_inside(here, chance)
    tally.add("kills", 2)
    here.replace(worker)
    async with here.place.app() as app:
        await app.pause_queue("default")
        waiting = await _accepted_since(here, boot())
        clock.set(_BACK * chance.uniform(0.5, 2))
        await asyncio.sleep(_PHASE)
        await app.resume_queue("default")
    await _ends(here, tally, waiting, "waited through a step back")
    await _ends(here, tally, lost, "run again after a step back")
    last = _last_of(holder)

    def granted_again() -> bool:
        stays = [
            entry for entry in here.entries() if entry.what == "entered" and entry.key == last.key
        ]
        return any(stay.at > last.at for stay in stays)

    try:
        await wait_until_async(granted_again, SIZE.patience)
        tally.add("granted again after a step back")
    except AssertionError:
        tally.violate(f"{last.key} is not granted again after a step back of the clock")


async def _accepted_since(here: Scene, since: float) -> set[str]:
    """Wait until some jobs were accepted after an instant, and return them."""

    def accepted() -> set[str]:
        entries = [
            entry for entry in here.entries() if entry.what == "accepted" and entry.at > since
        ]
        return {entry.job for entry in entries} if len(entries) >= _WAITING else set()

    return await wait_until_async(accepted, SIZE.patience, "jobs are accepted")


async def _ends(here: Scene, tally: Tally, jobs: Collection[str], what: str) -> None:
    """Demand that jobs come to an end soon, and count them."""

    def ended() -> bool:
        return jobs <= {entry.job for entry in here.entries() if entry.what in ("ended", "booked")}

    try:
        await wait_until_async(ended, 2 * _REPLICA_TTL + SIZE.patience)
        tally.add(what, len(jobs))
    except AssertionError:
        tally.violate(f"not ended after a step back of the clock: {sorted(jobs)}, {what}")


async def _killed_at_work(here: Scene, chance: random.Random) -> tuple[Member, set[str]]:
    """Kill a worker amid its jobs; return these."""

    def at_work() -> list[Member]:
        return [worker for worker in here.brood.living("worker") if _unfinished(worker)]

    while True:
        victim = chance.choice(await wait_until_async(at_work, SIZE.patience, "one is at work"))
        await here.brood.kill(victim)
        if jobs := _unfinished(victim):
            return victim, jobs
        here.replace(victim)


def _unfinished(worker: Member) -> set[str]:
    """Return the jobs that a worker has begun and not ended, by its own word."""
    entries = read_diary(worker.diary)
    begun = {entry.job for entry in entries if entry.what == "began"}
    return begun - {entry.job for entry in entries if entry.what in ("ended", "booked", "refused")}


async def _killed_inside(here: Scene, chance: random.Random) -> Member:
    """Kill a process inside a lock."""

    def inside() -> list[Member]:
        return [holder for holder in here.brood.living("holder") if _is_inside(holder)]

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
