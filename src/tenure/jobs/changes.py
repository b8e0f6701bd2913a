"""Waits for changes of one job: woken by the store, and polling in case no wake-up arrives.

A wake-up is only a hint, so each wait for a job needs both. `Jobs.finished`, long polls over HTTP
and event streams all wait through `Jobs.changes`.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Final

from tenure.core.clock import Clock
from tenure.core.jobs.records import JobRecord
from tenure.stores.contract import Watch

__all__ = ["POLL_EVERY", "JobChanges"]

POLL_EVERY: Final = 2.0
"""How long a lost wake-up can delay a waiter, in seconds."""


class JobChanges:
    """One job while it is watched. A change from now on ends the next `wait`."""

    def __init__(
        self, read: Callable[[], Awaitable[JobRecord]], watch: Watch, clock: Clock
    ) -> None:
        self._read = read
        self._watch = watch
        self._clock = clock

    async def record(self) -> JobRecord:
        """Return the job as it is now. Raises JobNotFound, JobUnreadable or StoreError."""
        return await self._read()

    async def wait(self, seconds: float = math.inf) -> None:
        """Return when the job may have changed, after `seconds` at the latest."""
        await self._watch.wait(min(seconds, POLL_EVERY))

    async def until(self, is_enough: Callable[[JobRecord], bool], deadline: float) -> JobRecord:
        """Return the job once `is_enough` accepts it, or as it is at the deadline.

        `deadline` is an instant of the boot clock. Raises as `record` does.
        """
        while True:
            record = await self.record()
            left = deadline - self._clock.boot()
            if is_enough(record) or left <= 0:
                return record
            await self.wait(left)
