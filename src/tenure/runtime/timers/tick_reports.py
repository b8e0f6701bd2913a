"""Events about decided ticks, each emitted by the process that moved the cursor.

The ticker calls this for ticks that the store has decided, and `outages` for those that were
decided without it.
"""

from __future__ import annotations

from tenure.core.schedules.definition import Plan
from tenure.core.schedules.ticks import Advance, Advanced
from tenure.observe.events import Events
from tenure.observe.jobs import JobEnqueued
from tenure.observe.timers import TickRan, TickSkipped

__all__ = ["report_ran", "report_skipped"]


def report_ran(events: Events, plan: Plan, move: Advance, answer: Advanced) -> None:
    """Report a tick whose run is stored, and the job that the tick of a schedule has enqueued."""
    if not events.wants_details:
        return
    # The answer to a repeat comes later than the decision. Without the run, it is all there is.
    decided = answer.now if answer.run is None else answer.run.created
    lateness = max(0.0, (decided - max(move.due, move.to)) / 1e6)
    events.emit(TickRan(plan.name, move.to, move.id, lateness))
    if plan.definition.kind == "schedule":
        run = plan.definition.run
        events.emit(JobEnqueued(run.task, move.id, run.queue, timer=plan.name))


def report_skipped(events: Events, plan: Plan, reason: str) -> None:
    """Report a tick that does not run, with the number of the limit that stops it."""
    definition = plan.definition
    limits = {"limit": definition.limit, "per_replica": definition.per_replica}
    events.emit(TickSkipped(plan.name, reason, limits.get(reason)))
