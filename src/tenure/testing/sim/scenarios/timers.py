"""Timers of several kinds on all machines: each tick has one run at most, and none is forgotten."""

from __future__ import annotations

from typing import Any

from tenure.app import Tenure
from tenure.core.durations import micros
from tenure.runtime.context import current_job
from tenure.testing.sim.fleet import Fleet, Process, current_process
from tenure.testing.sim.scenarios.opening import opened
from tenure.timers import Tick

__all__ = ["PERIOD", "end", "is_done", "program"]

PERIOD = 1.0
_SHARED = ("steady", "queued", "newest", "all")
_OPTIONS: dict[str, dict[str, Any]] = {
    "steady": {},
    "queued": {"overlap": "queue_one"},
    "newest": {"overlap": "cancel_previous"},
    "all": {"catch_up": "all", "overlap": "allow", "limit": 2},
    "own": {"each": "replica", "limit": 2},
}
_LENGTHS = (0.0, 0.0, 0.01, 0.4, 1.6)


async def program(process: Process) -> None:
    """Run timers until it is asked to stop."""
    machine, ttl = process.machine, process.fleet.plan.ttl
    app = Tenure(process.link(), replica_ttl=ttl)
    for name, options in _OPTIONS.items():
        app.timer(name=name, every=PERIOD, **options)(_handler)
    app.on_event(process.hear)
    if not await opened(app, process):
        return
    try:
        async with app.worker(grace=machine.dice.choice((0.0, 0.5, 5.0))) as worker:
            machine.memory["worker"] = worker
            await process.stopping.wait()
    finally:
        await app.close()


async def _handler(tick: Tick) -> None:
    process, job = current_process.get(), current_job()
    process.say(
        "ticked",
        key=tick.name,
        tick=micros(tick.nominal.timestamp()),
        job=job.id,
        fence=job.fence,
        attempt=tick.attempt,
    )
    process.fleet.sink.write(process.name, job.id, job.fence)
    await process.clock.sleep(process.machine.dice.choice(_LENGTHS))


def is_done(fleet: Fleet) -> bool:
    """Return whether all is well and every timer has ticked since then."""
    if not fleet.is_calm:
        return False
    ticked: set[str] = set()
    for entry in reversed(fleet.history.entries):
        if entry.what == "calm":
            break
        if entry.what == "ticked":
            ticked.add(entry.key)
    return ticked >= {*_SHARED}


def end(fleet: Fleet) -> None:
    """Ask all processes to end, and start none any more."""
    for machine in fleet.machines:
        machine.is_finished = True
        machine.stop()
