"""Somebody who pauses, resumes, freezes and triggers timers while everything goes wrong."""

from __future__ import annotations

import random

from tenure.app import Tenure
from tenure.errors import ConfigError, StoreUnavailable, TimerBusy, TimerNotFound
from tenure.testing.sim.fleet import Process
from tenure.testing.sim.scenarios.releases import CHAINS, OWN

__all__ = ["operate"]

_NAMES = (*(name for chain in CHAINS for name in chain), OWN)
_PAUSES = (None, 0.3, 1.2)


async def operate(process: Process, app: Tenure, dice: random.Random) -> None:
    """Do something now and then until all is well; then end all that keeps timers from ticking."""
    while not process.fleet.is_calm:
        await process.clock.sleep(dice.uniform(0.1, 1.5))
        await _try_something(app, dice)
    left = ["", *_NAMES]
    while left:
        if await _resumed(app, left[-1]):
            left.pop()
        else:
            await process.clock.sleep(0.2)


async def _try_something(app: Tenure, dice: random.Random) -> None:
    timer = app.timers[dice.choice(_NAMES)]
    try:
        match dice.choice(("pause", "pause", "resume", "trigger", "freeze", "unfreeze")):
            case "pause":
                await timer.pause(until=dice.choice(_PAUSES))
            case "resume":
                await timer.resume()
            case "trigger":
                await timer.trigger()
            case "freeze":
                await app.freeze(until=dice.choice(_PAUSES))
            case "unfreeze":
                await app.unfreeze()
    except (ConfigError, StoreUnavailable, TimerBusy, TimerNotFound):
        return


async def _resumed(app: Tenure, name: str) -> bool:
    """End a pause, or the freeze of everything; False if the store did not answer."""
    try:
        await (app.timers[name].resume() if name else app.unfreeze())
    except StoreUnavailable:
        return False
    except TimerNotFound:
        return True
    return True
