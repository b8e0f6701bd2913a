"""Long jobs and a timer on a store whose clock is set, with the ttl that replicas have by default.

With a short ttl all replicas beat before the second look at what has expired. That would hide
whether they notice that the clock was set.
"""

from __future__ import annotations

from tenure.app import Tenure
from tests.sim.fleet import Fleet, Process
from tests.sim.scenarios import jobs, timers

__all__ = ["begin", "is_done", "program"]

_JOBS_PER_MACHINE = 8


async def program(process: Process) -> None:
    """Work, ask for work, and tick."""
    await jobs.run_jobs(process, declare=_declare, concurrency=(1, 2))


def _declare(app: Tenure) -> None:
    app.timer(every=2.5, name="steady")(timers.handler)


def begin(fleet: Fleet) -> None:
    """Hand out more orders than can be worked off at once: some wait while the clock is set."""
    jobs.begin(fleet, each=_JOBS_PER_MACHINE)


def is_done(fleet: Fleet) -> bool:
    """Return whether the clock was set as often as planned, and all jobs have ended."""
    return fleet.is_healed and jobs.is_done(fleet)
