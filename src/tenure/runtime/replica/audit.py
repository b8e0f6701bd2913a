"""The audit: finds jobs that run here by the store's records, but not in this process.

A store that loses its last writes in a fail-over may forget that jobs have ended. Their replica is
alive, so no other worker would ever recover them.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from functools import partial

from tenure.core.jobs.records import BATCH_MAX
from tenure.runtime.attempts.settler import Settler
from tenure.runtime.store_retry import Retrier
from tenure.stores.contract import Store

__all__ = ["Audit", "CountInterval"]

# A claim in flight makes the counts differ as well, but not for this many beats in a row.
_BEATS = 2

# Counting is expensive on some stores, and the counts seldom differ.
_COUNT_EVERY = 60.0


class CountInterval:
    """Chooses the beats that count the jobs of a replica: some in a row, once a minute."""

    def __init__(self) -> None:
        self._next = -math.inf
        self._left = 0

    def take(self, now: float) -> bool:
        """Return whether the next beat should count."""
        if now >= self._next:
            self._next, self._left = now + _COUNT_EVERY, _BEATS
        self._left -= 1
        return self._left >= 0


class Audit:
    """Compares the counts in beats with the jobs that run in this process."""

    def __init__(self, store: Store, retrier: Retrier, settler: Settler) -> None:
        self._store = store
        self._retrier = retrier
        self._settler = settler
        self._differs = 0

    def beaten(self, held: int | None, running: int) -> None:
        """Compare the number of jobs by the store (`held`) with that of this worker."""
        if held is not None:
            self._differs = self._differs + 1 if held > running else 0

    @property
    def is_due(self) -> bool:
        return self._differs >= _BEATS

    async def hand_back(
        self, replica: str, running: Callable[[], set[str]], give_up: asyncio.Event
    ) -> None:
        """Hand back jobs that do not run in this process. No claim may be in flight.

        The list may include jobs that were settled just now. The store rejects their hand-back.
        """
        self._differs = 0
        find = partial(self._store.jobs.find, state="running", replica=replica, limit=BATCH_MAX)
        page = await self._retrier.until_answered("find", find, give_up)
        here = running()
        for record in page.jobs:
            if record.id not in here:
                reason = "its worker had finished it, or never received it"
                self._settler.hand_back(record, reason=reason, is_recorded=True)
