"""Everything at once: workers and producers beside locks, semaphores and an election."""

from __future__ import annotations

import asyncio
from functools import partial

from tenure.app import Tenure
from tests.sim.fleet import Fleet, Process
from tests.sim.scenarios import jobs, leases

__all__ = ["begin", "is_done", "program"]


async def program(process: Process) -> None:
    """Work, ask for work, and hold leases beside it."""
    await jobs.run_jobs(process, partial(_play, process))


async def _play(process: Process, app: Tenure) -> None:
    left = process.machine.disk["rounds"]
    await asyncio.gather(*(leases.play(process, app, left, actor) for actor in range(len(left))))
    process.machine.disk["playing"] = False


def begin(fleet: Fleet) -> None:
    """Hand out the orders and the rounds."""
    jobs.begin(fleet)
    for machine in fleet.machines:
        machine.disk["rounds"] = [leases.ROUNDS]
        machine.disk["playing"] = True


def is_done(fleet: Fleet) -> bool:
    """Return whether all rounds were played, and all jobs have ended."""
    return not any(machine.disk["playing"] for machine in fleet.machines) and jobs.jobs_done(fleet)
