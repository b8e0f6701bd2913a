"""Timers of several kinds on all machines: each tick has one run at most, and none is forgotten."""

from __future__ import annotations

import asyncio
import random

import msgspec

from tenure.app import Tenure, engine_of
from tenure.core.durations import micros
from tenure.core.schedules.definition import Plan
from tenure.runtime.attempts.handler import Handler
from tenure.runtime.attempts.running_job import current
from tenure.timers import Tick
from tests.sim.fleet import Fleet, Machine, Process, current_process
from tests.sim.scenarios import releases
from tests.sim.scenarios.operators import clean_up, operate
from tests.sim.scenarios.startup import open_app

__all__ = ["begin", "end", "handler", "is_done", "program"]

_LENGTHS = (0.0, 0.0, 0.01, 0.4, 1.6)
_FAILS = 0.1
_DECIDED = ("done", "skipped", "held")
# A run that a machine could take should not wait for longer.
_WAITS_MAX = micros(3.0)


async def program(process: Process) -> None:
    """Run timers until it is asked to stop."""
    machine, ttl = process.machine, process.fleet.plan.ttl
    app = Tenure(process.connect(), replica_ttl=ttl)
    _declare(app, machine)
    app.on_event(process.record_event)
    if not await open_app(app, process):
        return
    try:
        async with app.worker(grace=machine.rng.choice((0.0, 0.5, 5.0))) as worker:
            machine.disk["worker"] = worker
            await _until_stopped(process, app)
    finally:
        await app.close()


def _declare(app: Tenure, machine: Machine) -> None:
    """Declare the timers of a release; those of the first one that did so, as clones do.

    Many processes are started, and declaring takes much longer than most of what they do.
    """
    release, registry = machine.disk["release"], engine_of(app).registry
    declarations = _declared.get(release)
    if declarations is None:
        for name, options in releases.release_of(machine).items():
            app.timer(name=name, **options)(handler)
        _declared[release] = registry.handlers, registry.plans
    else:
        registry.handlers, registry.plans = declarations


_declared: dict[int, tuple[dict[str, Handler], dict[str, Plan]]] = {}


async def _until_stopped(process: Process, app: Tenure) -> None:
    disk = process.machine.disk
    rng: random.Random | None = disk.get("operator")
    beside = [] if rng is None else [asyncio.create_task(operate(process, app, rng))]
    if disk.get("cleans up"):
        beside.append(asyncio.create_task(clean_up(process, app)))
    await process.stopping.wait()
    for task in beside:
        task.cancel()
    if beside:
        await asyncio.wait(beside)


async def handler(tick: Tick) -> None:
    """Leave a trace of a tick, and take a while; some fail."""
    process, job = current_process.get(), current.get()
    rng = process.machine.rng
    process.record(
        "ticked",
        key=tick.name,
        tick=micros(tick.nominal.timestamp()),
        job=job.id,
        fence=tick.fence,
        attempt=tick.attempt,
        number=job.tries,
    )
    process.fleet.resource.write(process.name, job.id, job.fence)
    await process.clock.sleep(rng.choice(_LENGTHS))
    if rng.random() < _FAILS:
        raise ValueError("once more")


def begin(fleet: Fleet) -> None:
    """Plan the releases; half of the histories have an operator, half a cleanup."""
    releases.begin(fleet)
    if fleet.plan.rng("operator").random() < 0.5:
        fleet.machines[0].disk["operator"] = random.Random(f"operator {fleet.plan.seed}")
    fleet.machines[-1].disk["cleans up"] = fleet.plan.rng("tidying").random() < 0.5


def is_done(fleet: Fleet) -> bool:
    """Return whether all is well, every timer has ticked since then, and no run waits in vain."""
    if not fleet.is_healed:
        return False
    ticked: set[str] = set()
    own: set[str] = set()
    for entry in reversed(fleet.history.entries):
        if entry.what == "healed":
            break
        if entry.what == "ticked":
            ticked.add(entry.key)
        elif entry.what == "moved" and entry.key == releases.OWN and entry.outcome in _DECIDED:
            own.add(entry.holder)
    have_all = all(ticked.intersection(chain) for chain in releases.CHAINS)
    return have_all and own >= _with_own_ticks(fleet) and not _waiting_in_vain(fleet)


def _with_own_ticks(fleet: Fleet) -> set[str]:
    """Return the processes whose definition of the replicas' own timer rules."""
    ruling = fleet.server.data.schedules.get(releases.OWN)
    if ruling is None:
        return {"nobody"}
    limit = msgspec.json.decode(ruling.definition)["definition"]["limit"]
    return {
        machine.process.name
        for machine in fleet.machines
        if machine.process is not None
        and releases.release_of(machine)[releases.OWN]["limit"] == limit
    }


def _waiting_in_vain(fleet: Fleet) -> list[str]:
    """Return runs that have waited for long although every machine could take them."""
    names = set.intersection(*({*releases.release_of(machine)} for machine in fleet.machines))
    since = fleet.server.store_clock.wall() - _WAITS_MAX
    return [
        job.id
        for job in fleet.server.data.jobs.jobs.values()
        if job.state == "waiting" and job.due < since and job.new.schedule in names
    ]


def end(fleet: Fleet) -> None:
    """Ask all processes to end, and start none any more."""
    for machine in fleet.machines:
        machine.is_finished = True
        machine.stop()
