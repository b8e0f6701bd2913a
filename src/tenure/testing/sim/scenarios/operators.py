"""Somebody who pauses, resumes, freezes and triggers timers while everything goes wrong."""

from __future__ import annotations

import random

from tenure.app import Tenure
from tenure.errors import ConfigError, StoreUnavailable, TimerBusy, TimerNotFound
from tenure.testing.sim.fleet import Process
from tenure.testing.sim.scenarios.releases import NAMES

__all__ = ["operate"]

_ACTIONS = ("pause", "pause", "resume", "resume", "trigger", "freeze", "unfreeze", "unfreeze")
_PAUSES = (None, None, 0.3, 1.2)
# Now and then a name that other releases have, or had.
_ANY_NAME = 0.2


async def operate(process: Process, app: Tenure, dice: random.Random) -> None:
    """Do something now and then until all is well; then let all timers tick again."""
    while not process.fleet.is_calm:
        await process.clock.sleep(dice.uniform(0.1, 1.0))
        names = NAMES if dice.random() < _ANY_NAME else tuple(app.timers)
        try:
            await _do_something(app, dice.choice(names), dice)
        except (ConfigError, StoreUnavailable, TimerBusy, TimerNotFound):
            continue
    while True:  # a pause that was cut off may arrive late
        try:
            await _resume_all(app)
        except (StoreUnavailable, TimerNotFound):
            continue
        await process.clock.sleep(1.0)


async def _do_something(app: Tenure, name: str, dice: random.Random) -> None:
    timer = app.timers[name]
    match dice.choice(_ACTIONS):
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


async def _resume_all(app: Tenure) -> None:
    if await app.timers.frozen() is not None:
        await app.unfreeze()
    for timer in await app.timers.all():
        if timer.pause is not None and not timer.renamed_to:
            await app.timers[timer.name].resume()
