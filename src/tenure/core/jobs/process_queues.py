"""Queues with jobs for child processes: a worker claims no more of them than it can start.

A claim names queues, not tasks. A queue that gave a job for a child process in the last claim of it
is taken to have more of them. While no child is free, it is not asked; while some are, a claim with
it asks for as many jobs as these can take.
"""

from __future__ import annotations

from collections.abc import Iterable

from tenure.core.jobs.shares import Turn

__all__ = ["ProcessQueues"]


class ProcessQueues:
    """What one worker knows of its queues."""

    def __init__(self) -> None:
        self._names: set[str] = set()

    def are_held(self, queues: Iterable[str], room: int) -> bool:
        """Whether all of these wait for a child process; `room` jobs could begin in one."""
        return room <= 0 and self._names.issuperset(queues)

    def narrowed(self, turn: Turn, room: int) -> Turn:
        """Return what to ask for instead, if `room` jobs could begin in child processes."""
        if self._names.isdisjoint(turn.queues):
            return turn
        if room > 0:
            return Turn(turn.queues, min(turn.limit, room))
        return Turn(tuple(name for name in turn.queues if name not in self._names), turn.limit)

    def took(self, turn: Turn, queues: Iterable[str]) -> None:
        """Learn from which queues jobs for child processes came."""
        self._names -= set(turn.queues)
        self._names |= set(queues)
