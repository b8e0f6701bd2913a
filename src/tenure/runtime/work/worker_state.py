"""The state that the parts of a worker share: its replica id, and the events that wake them.

Invariant: `replica` is set only while the store accepts claims under it, as far as the worker
knows. Only the `Worker` and its `Claimer` change it.
"""

from __future__ import annotations

import asyncio

__all__ = ["WorkerState"]


class WorkerState:
    """The replica id of a worker, and whether it stops."""

    def __init__(self) -> None:
        self.replica: str | None = None
        """The current replica id; None before it has joined."""
        self._doubted: str | None = None
        self.stopped = asyncio.Event()
        """Set when the worker must not claim any more."""
        self.changed = asyncio.Event()
        """Set when a slot is free, a job has ended or the replica has changed."""
        self.look_again = asyncio.Event()
        """Set when a claim may find jobs that the last one did not."""

    @property
    def is_stopping(self) -> bool:
        return self.stopped.is_set()

    def wake(self) -> None:
        """Make the worker claim again, whatever it waits for."""
        self.look_again.set()
        self.changed.set()

    def doubt(self) -> None:
        """Claim nothing under this id until a heartbeat succeeds, because the store rejected a
        claim.
        """
        self.replica, self._doubted = None, self.replica

    def confirm(self, replica: str) -> bool:
        """Claim again under an id that was in doubt. Returns whether it was.

        The store knows the id again: a fail-over may have lost its record for a moment.
        """
        if self.replica is None and self._doubted == replica:
            self.replica = replica
            self.changed.set()
            return True
        return False

    def lose(self, replica: str) -> None:
        """Forget an id that was declared dead."""
        self._doubted = None
        if self.replica == replica:
            self.replica = None
