"""Queues with jobs for child processes: a worker claims no more of these jobs than it can start.

A claim names queues, not tasks. If the last claim of a queue returned a job for a child process,
the queue probably has more. While no child is free, the queue is not claimed. While some are free,
a claim with that queue requests at most as many jobs as there are free children.
"""

from __future__ import annotations

from collections.abc import Iterable

from tenure.core.jobs.queue_shares import Turn

__all__ = ["ProcessQueues"]


class ProcessQueues:
    """The queues of one worker that probably have jobs for child processes."""

    def __init__(self) -> None:
        self._names: set[str] = set()

    def are_held(self, queues: Iterable[str], room: int) -> bool:
        """Whether all these queues wait for a child process. `room`: how many children are free."""
        return room <= 0 and self._names.issuperset(queues)

    def narrowed(self, turn: Turn, room: int) -> Turn:
        """Return the turn narrowed to what can start, if `room` child processes are free."""
        if self._names.isdisjoint(turn.queues):
            return turn
        if room > 0:
            return Turn(turn.queues, min(turn.limit, room))
        return Turn(tuple(name for name in turn.queues if name not in self._names), turn.limit)

    def took(self, turn: Turn, queues: Iterable[str]) -> None:
        """Record which queues returned jobs for child processes."""
        self._names -= set(turn.queues)
        self._names |= set(queues)
