"""Jobs that eat all memory, on workers that have a limit: they fail alone, and all others succeed.

A control group kills the worker; without one the limit of the address space does, because the job
writes to memory that it did not get.
"""

import asyncio
import os
from functools import partial
from pathlib import Path

from tenure import Job, Tenure
from tests.chaos.labour import CANARY
from tests.chaos.places import Place
from tests.chaos.storm import Scene, scene
from tests.chaos.tally import Tally
from tests.rig.sizes import SIZE, Storm
from tests.rig.wait import wait_until_async

_CREW = {"worker": 4, "producer": 1}
_LOSS_BUDGET = 2
_BYTES = 96 << 20
_GROUPS = Path("/sys/fs/cgroup/memory")


def groups() -> Path | None:
    """Make a place for control groups, if that is permitted."""
    group = _GROUPS / f"tenure-chaos-{os.getpid()}"
    try:
        group.mkdir()
    except OSError:
        return None
    return group


async def eat_memory(
    place: Place, tally: Tally, size: Storm, seed: int, *, faults: bool = True
) -> None:
    """Give workers poison among their jobs."""
    tally.demand("memory kills", size.rounds * (1 + _LOSS_BUDGET))
    tally.demand("poison given up", size.rounds)
    tally.demand("accepted", 10)
    group = groups()
    if group is None:
        tally.skip(f"{_GROUPS} is not ours: only the address space is limited")
    limits: dict[str, object] = {"memory": _BYTES, "loss_budget": _LOSS_BUDGET}
    orders = {"worker": limits | {"group": str(group or "")}, "producer": {"pace": 0.2}}
    try:
        async with scene(place, tally, seed, orders=orders) as here:
            for role, number in _CREW.items():
                for _ in range(number):
                    here.start(role)
            if faults:
                await _poison(here, tally, size.rounds)
            await here.settle_down()
            await here.account(without="poison")
    finally:
        for folder in [*group.iterdir(), group] if group else []:
            if folder.is_dir():
                folder.rmdir()


async def _poison(here: Scene, tally: Tally, number: int) -> None:
    """Enqueue one after the other, and let each do its worst."""
    async with here.place.app() as app:
        poison = _declared(app)
        replacing = asyncio.ensure_future(_replace_the_dead(here, tally))
        try:
            for index in range(number):
                job = await poison.enqueue(index, f"{CANARY}-{index}")
                await wait_until_async(partial(_has_finished, job), 3 * SIZE.patience)
                _check_given_up(here, job, tally)
        finally:
            replacing.cancel()
        _bury(here, tally)


def _check_given_up(here: Scene, job: Job[int], tally: Tally) -> None:
    ran = sum(entry.what == "began" and entry.job == job.id for entry in here.entries())
    ends = (job.state, job.reason, job.losses, ran)
    if ends == ("failed", "lost", 1 + _LOSS_BUDGET, 1 + _LOSS_BUDGET):
        tally.add("poison given up")
    else:
        tally.violate(f"a poisonous job ended as {ends}")


def _declared(app: Tenure):  # type: ignore[no-untyped-def]
    @app.task
    async def poison(number: int, secret: str) -> int: ...

    return poison


async def _has_finished(job: Job[int]) -> bool:
    return (await job.refresh()).is_finished


async def _replace_the_dead(here: Scene, tally: Tally) -> None:
    """Start another worker for each that died of its memory, as a service manager does."""
    while True:
        _bury(here, tally)
        await asyncio.sleep(0.05)


def _bury(here: Scene, tally: Tally) -> None:
    for member in here.brood.fallen():
        assert member.code is not None
        if member.code < 0:
            member.fate = "doomed"
            tally.add("memory kills")
            here.replace(member)
