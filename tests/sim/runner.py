"""Runs a plan from beginning to end: inject its faults, end them, wait for the work, and judge."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass

from tenure.core.lease_policy import WAITER_LIFE
from tests.sim.error_log import collect_errors, silent_log
from tests.sim.fleet import Fleet
from tests.sim.history import Entry
from tests.sim.loop import Stuck
from tests.sim.plan import FAULTS, Plan, rng_for
from tests.sim.scenarios import jobs
from tests.sim.scenarios.catalog import SCENARIOS, Scenario
from tests.sim.store_connection import CALL_TIMEOUT
from tests.sim.verdict import violations

__all__ = ["Outcome", "planned", "run"]

# So many ttls pass at most until a dead process is found and others have its leases and jobs.
_TTLS = 4
_LOOK_EVERY = 0.25
# The lease of the worker that watches the queues outlives its holder by this much.
_QUEUE_LEASE = 150.0


@dataclass
class Outcome:
    """The result of a run."""

    plan: Plan
    wrong: list[str]
    """All violations."""
    counts: Counter[str]
    history: list[Entry]


def planned(seed: int, scenario: str, faults: Collection[str] = FAULTS) -> Plan:
    """Return the plan of a seed."""
    shape = SCENARIOS[scenario]
    machines = rng_for("machines", scenario, seed).choice(shape.machines)
    if shape.draw is not None:
        return shape.draw(seed, machines=machines).without(set(FAULTS).difference(faults))
    return Plan.draw(
        seed, scenario, shape.profile, machines=machines, horizon=shape.horizon, faults=faults
    )


def run(plan: Plan) -> Outcome:
    """Run a plan, and check its history."""
    scenario = SCENARIOS[plan.scenario]
    fleet = Fleet(plan, scenario.program)
    wrong: list[str] = []
    with collect_errors(wrong), scenario.setting():
        try:
            fleet.loop.run(_live(fleet, scenario, wrong), max_steps=scenario.max_steps)
        except Stuck as error:
            wrong.append(f"stuck: {error}")
    _tear_down(fleet)
    wrong += fleet.loop.errors
    return Outcome(plan, wrong + violations(fleet), fleet.counts, fleet.history.entries)


async def _live(fleet: Fleet, scenario: Scenario, wrong: list[str]) -> None:
    """Let the fleet work under faults, then without; add what is left undone to `wrong`."""
    await fleet.server.open()
    scenario.begin(fleet)
    recovery = scenario.recovery_time + _TTLS * fleet.plan.ttl
    all_work = recovery + _work_left(fleet)
    if scenario.waits_for_ticks:
        all_work += _set_back(fleet.plan)
    fleet.start()
    await _within(fleet.plan.horizon, lambda: scenario.is_done(fleet))
    fleet.heal()
    if not await _within(all_work, lambda: scenario.is_done(fleet)):
        wrong.append(f"not done {all_work:g} s after the last fault: {_unfinished(fleet)}")
        return
    if not await _within(_longest_life(fleet.plan), lambda: not _dead_replicas(fleet)):
        wrong.append(f"dead replicas that were not recovered: {_dead_replicas(fleet)}")
    await scenario.aftermath(fleet)
    scenario.end(fleet)
    if not await _within(recovery, lambda: fleet.are_finished):
        wrong.append(f"processes do not end: {_unfinished(fleet)}")
        return
    longest = _longest_life(fleet.plan) + _QUEUE_LEASE
    if not await _within(longest, lambda: not fleet.server.leases_left()):
        wrong.append(f"leases that do not end: {fleet.server.leases_left()}")
    await _within(_longest_life(fleet.plan), lambda: not _tasks_left(fleet))
    wrong += _tasks_left(fleet)


async def _within(seconds: float, condition: Callable[[], bool]) -> bool:
    """Wait for a condition; return whether it was met in time."""
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    while not condition():
        if loop.time() >= until:
            return False
        await asyncio.sleep(_LOOK_EVERY)
    return True


def _work_left(fleet: Fleet) -> float:
    """Return how long all jobs of a run take one after the other, each with all its tries."""
    specs: list[jobs.JobSpec] = [
        spec for machine in fleet.machines for spec in machine.disk.get("specs", ())
    ]
    tries = jobs.BACKOFF.max_attempts
    return sum(spec.seconds * min(tries, 1 + spec.fails) for spec in specs)


def _set_back(plan: Plan) -> float:
    """Return by how much the plan sets the store's clock back, which delays ticks as much."""
    steps = (event.amount for event in plan.events if event.what == "store clock")
    return -sum(step for step in steps if step < 0)


def _longest_life(plan: Plan) -> float:
    """Return how long the store may keep a record of a process that was cut off from it."""
    return 2 * plan.ttl + WAITER_LIFE + CALL_TIMEOUT + 5.0


def _tasks_left(fleet: Fleet) -> list[str]:
    return [
        f"{process.name} has ended, and these tasks have not: {left}"
        for process in fleet.ended
        if (left := process.lane.unfinished())
    ]


def _dead_replicas(fleet: Fleet) -> list[str]:
    """Return the replicas that the store has a record of, and that no living process has."""
    living = {
        worker.replica
        for machine in fleet.machines
        if machine.process is not None and (worker := machine.disk.get("worker")) is not None
    }
    return [replica for replica in fleet.server.data.jobs.replicas if replica not in living]


def _unfinished(fleet: Fleet) -> str:
    machines = [
        f"{machine.name}: {'no process' if machine.process is None else machine.process.name}, "
        f"{machine.disk}"
        for machine in fleet.machines
    ]
    return "; ".join(machines)


def _tear_down(fleet: Fleet) -> None:
    """Close all coroutines that have not ended, without reports of what they log or raise."""
    processes = [*fleet.killed, *fleet.ended]
    processes += [machine.process for machine in fleet.machines if machine.process is not None]
    fleet.loop.close()
    with silent_log():
        for lane in [fleet.loop.world, *(process.lane for process in processes)]:
            lane.is_dead = True
            for task in lane.unfinished():
                task._log_destroy_pending = False  # type: ignore[attr-defined] # noqa: SLF001
                coroutine = task.get_coro()
                with suppress(BaseException):
                    assert coroutine is not None
                    coroutine.close()
