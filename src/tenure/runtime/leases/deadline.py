"""Watches the deadline of a lease on the event loop of its hold."""

from __future__ import annotations

import asyncio

from tenure.runtime.leases.keeper import KeptLease

__all__ = ["DeadlineWatch"]


class DeadlineWatch:
    """Declares a loss at the deadline, even if the keeper's thread is stuck or dead.

    It has no reference to the hold, which must stay collectable.
    """

    def __init__(self, kept: KeptLease, loop: asyncio.AbstractEventLoop) -> None:
        self._kept = kept
        self._loop = loop
        self._alarm = self._set_alarm()

    def stop(self) -> None:
        """Stop watching. Called on its loop."""
        self._alarm.cancel()

    def _look(self) -> None:
        if not self._kept.is_lost:  # the lease was renewed meanwhile
            self._alarm = self._set_alarm()

    def _set_alarm(self) -> asyncio.TimerHandle:
        return self._loop.call_later(self._kept.trusted_for(), self._look)
