"""Operators who pause, trigger and reset timers, and tidy up, while everything goes wrong."""

from __future__ import annotations

import random
from contextlib import suppress

from tenure.app import Tenure, engine_of
from tenure.core.schedules.documents import EVERYTHING
from tenure.errors import ConfigError, StoreUnavailable, TimerBusy, TimerNotFound
from tenure.runtime.pruning import prune
from tenure.runtime.timers.scheduling import Scheduling
from tests.sim.fleet import Process
from tests.sim.plan import Plan
from tests.sim.scenarios.releases import FORGOTTEN_AFTER, NAMES

__all__ = ["clean_up", "operate"]

_ACTIONS = (
    *("pause", "pause", "resume", "resume", "freeze", "unfreeze", "unfreeze"),
    *("trigger", "trigger", "trigger"),
)
_TIDY_EVERY = 0.3
_PAUSES = (None, None, 0.3, 1.2)
# Now and then a name that other releases have, or had.
_ANY_NAME = 0.2


async def operate(process: Process, app: Tenure, rng: random.Random) -> None:
    """Do something now and then until all is well; then let all timers tick again."""
    while not process.fleet.is_healed:
        await process.clock.sleep(rng.uniform(0.1, 0.7))
        names = NAMES if rng.random() < _ANY_NAME else app.timer_names
        try:
            await _do_something(process, app, rng.choice(names), rng)
        except (ConfigError, StoreUnavailable, TimerBusy, TimerNotFound):
            continue
    while True:  # a pause that was cut off may arrive late
        try:
            await _resume_all(process, app)
        except (ConfigError, StoreUnavailable, TimerNotFound):  # it has another name by now
            continue
        await process.clock.sleep(1.0)


async def _do_something(process: Process, app: Tenure, name: str, rng: random.Random) -> None:
    timer, until = app.timer_handle(name), rng.choice(_PAUSES)
    resets = ("reset",) * 8 if _is_set_back(process.fleet.plan) else ()
    match rng.choice(_ACTIONS + resets):
        case "pause":
            _record(process, "pause", name, until)
            await timer.pause(until=until)
        case "resume":
            _record(process, "resume", name)
            await timer.resume()
        case "freeze":
            _record(process, "pause", EVERYTHING, until)
            await app.pause_timers(until=until)
        case "unfreeze":
            _record(process, "resume", EVERYTHING)
            await app.resume_timers()
        case "trigger":
            await timer.trigger()
        case "reset":
            _record(process, "reset", name)
            await timer.reset()


async def clean_up(process: Process, app: Tenure) -> None:
    """Remove what is over, and timers that no process declares, all the time.

    After two weeks of silence a timer begins anew, at the store's time. If somebody has set that
    back by as much, the same ticks come again, and so do fences.
    """
    while True:
        await process.clock.sleep(_TIDY_EVERY)
        with suppress(StoreUnavailable):
            store = engine_of(app).services().store
            await prune(store)
            if not _is_set_back(process.fleet.plan):
                await Scheduling(store).forget(idle=FORGOTTEN_AFTER)


def _is_set_back(plan: Plan) -> bool:
    return any(event.what == "store clock" and event.amount < 0 for event in plan.events)


async def _resume_all(process: Process, app: Tenure) -> None:
    if await app.timers_paused() is not None:
        _record(process, "resume", EVERYTHING)
        await app.resume_timers()
    for timer in await app.timers():
        if timer.pause is not None and not timer.renamed_to:
            _record(process, "resume", timer.name)
            await app.timer_handle(timer.name).resume()


def _record(process: Process, what: str, name: str, seconds: float | None = None) -> None:
    """Write down what is about to be asked for."""
    process.record("operates", key=name, detail=what, seconds=seconds or 0.0)
