"""Eight processes on one SQLite file: it is busy all the time, and no call fails for it."""

import asyncio

from tests.chaos.places import Place
from tests.chaos.storm import Scene, long_enough, scene
from tests.chaos.tally import Tally
from tests.rig.sizes import Storm

_CREW = {"worker": 3, "producer": 2, "holder": 3}
_PACE = {
    "producer": {"pace": 0.02},
    "worker": {"longest": 0.02},
    "holder": {"pace": 0.002, "longest": 0.02},
}


async def busy_file(place: Place, tally: Tally, size: Storm, seed: int) -> None:
    """Enqueue, claim, settle, lock and release for a while, as fast as it goes."""
    tally.demand("processes", sum(_CREW.values()))
    tally.demand("accepted", int(10 * size.busy_seconds))
    tally.demand("grants", int(10 * size.busy_seconds))
    async with scene(place, tally, seed, orders=_PACE) as here:
        for role, number in _CREW.items():
            for _ in range(number):
                here.start(role)
                tally.add("processes")
        nothing_goes_wrong: asyncio.Future[object] = asyncio.Future()
        await long_enough(here, tally, size.busy_seconds, nothing_goes_wrong)
        await here.settle_down()
        await here.account()
        _check_nobody_was_told(here, tally)


def _check_nobody_was_told(here: Scene, tally: Tally) -> None:
    tally.add("told that it is locked", 0)
    for entry in here.entries():
        if entry.what == "unavailable":
            tally.add("told that it is locked")
            tally.violate(f"{entry.by} was told: {entry.detail}")
    for member in here.brood.members.values():
        if "locked" in member.log.read_text():
            tally.add("told that it is locked")
            tally.violate(f"{member.by} has it in its log:\n{member.story()}")
