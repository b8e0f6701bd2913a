"""The limits of a child: when it is replaced, and when it is killed."""

from __future__ import annotations

import logging

from msgspec import Struct

from tenure.core.sizes import as_size
from tenure.runtime.supervised.messages import Retire
from tenure.runtime.supervised.scoreboard import Blockage
from tenure.supervisor.child import Child

__all__ = ["Limits", "SupervisorOptions"]

log = logging.getLogger("tenure")

# An attempt past its time-out by so much has its child replaced, as it will have to be killed.
_OVERDUE_AFTER = 1.0
# A worker notes within so long that its loop is blocked.
_SEEN_WITHIN = 0.6
# Above its limit a child is replaced when its jobs are done; above this much of it, at once.
_MEMORY_HARD = 1.5
# Threads that do not run for so long have their stacks shown.
_SILENT_AFTER = 5.0


class SupervisorOptions(Struct, frozen=True, kw_only=True):
    """How many children, and when they are replaced."""

    processes: int = 1
    max_jobs: int | None = None
    max_memory: int | None = None


class Limits:
    """Retires children that should be replaced, and decides which must be killed."""

    def __init__(self, options: SupervisorOptions, *, grace: float, ttl: float) -> None:
        self._options = options
        self._grace = grace
        self._ttl = ttl

    def must_be_killed(self, child: Child, now: float) -> str:
        """Return why, or nothing. A child is replaced before it comes to that."""
        self._watch_ticks(child, now)
        job, overdue = self._most_overdue(child, now)
        most = self._options.max_memory
        memory = 0 if most is None else child.memory()
        if overdue > max(self._grace, _OVERDUE_AFTER):
            return _blamed(child, job)
        if most is not None and memory > _MEMORY_HARD * most:
            return f"it takes {as_size(memory)}"
        if overdue > min(_OVERDUE_AFTER, self._grace / 2):
            _retire(child, _blamed(child, job))
        elif most is not None and memory > most:
            child.is_too_large = True
            _retire(child, f"it takes {as_size(memory)}")
        elif self._options.max_jobs and child.board.ended >= self._options.max_jobs:
            _retire(child, f"it has run {child.board.ended} jobs")
        return ""

    def _most_overdue(self, child: Child, now: float) -> tuple[str, float]:
        """Return the job that is furthest past its time-out, and by how much; below 0 if none is.

        A loop that another job blocks cannot cancel it. For a grace period that is not its fault,
        nor for a moment after the loop turns again.
        """
        blockage = child.board.blockage
        overdue, late = -1.0, ""
        for job, deadline in child.board.deadlines().items():
            is_excused = (
                job != blockage.job
                and _was_blocked(blockage, deadline, now)
                and now - deadline <= max(self._grace, _OVERDUE_AFTER)
            )
            if not is_excused and now - deadline > overdue:
                overdue, late = now - deadline, job
        return late, overdue

    def _watch_ticks(self, child: Child, now: float) -> None:
        """Show once what keeps the threads of a child from running. It does no harm by itself."""
        silent = child.board.ticked > 0 and now - child.board.ticked > _SILENT_AFTER
        if silent and not child.are_stacks_shown and child.lives(now, self._ttl):
            log.warning(
                "no thread of worker process %s has run for %.0f s; its stacks follow",
                child.pid,
                now - child.board.ticked,
                extra=child.log_fields,
            )
            child.dump_stacks()
        child.are_stacks_shown = silent


def _was_blocked(blockage: Blockage, deadline: float, now: float) -> bool:
    """Whether the loop did not turn when a time-out was over, and could not cancel since."""
    if not 0 < blockage.since <= deadline + _SEEN_WITHIN:
        return False
    if not blockage.until:
        return True
    return blockage.until >= deadline and now - blockage.until <= _OVERDUE_AFTER


def _blamed(child: Child, job: str) -> str:
    blockage = child.board.blockage
    if blockage.since and not blockage.until and blockage.job not in ("", job):
        return f"job {blockage.job} blocks its event loop, so job {job} cannot stop at its time-out"
    return f"job {job} does not stop at its time-out"


def _retire(child: Child, why: str) -> None:
    """Let a child finish what it runs, while another one takes its seat."""
    if not child.is_retiring:
        log.info("worker process %s is replaced: %s", child.pid, why, extra=child.log_fields)
        child.is_retiring = True
        child.order(Retire())
        child.vacated.set()
