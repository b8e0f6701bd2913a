"""The audit: jobs that the store thinks run here, and of which nobody here knows.

A store that loses its last writes in a fail-over has forgotten that they ended. Their replica
lives, so that nobody else would ever take them.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from functools import partial

from tenure.core.jobs.records import BATCH_MAX
from tenure.runtime.attempts.settler import Settler
from tenure.runtime.retry import Retrier
from tenure.stores.contract import Store

__all__ = ["Audit", "CountInterval"]

# A claim whose reply is on its way makes a difference, too, but not for so many beats.
_BEATS = 2

# Some stores have to look at many records to count, and what is counted seldom differs.
_COUNT_EVERY = 60.0


class CountInterval:
    """Says which beats shall count the jobs of a replica: some in a row, once a minute."""

    def __init__(self) -> None:
        self._next = -math.inf
        self._left = 0

    def take(self, now: float) -> bool:
        """Return whether the beat that is sent now shall count."""
        if now >= self._next:
            self._next, self._left = now + _COUNT_EVERY, _BEATS
        self._left -= 1
        return self._left >= 0


class Audit:
    """Compares what beats say with what is known here."""

    def __init__(self, store: Store, retrier: Retrier, settler: Settler) -> None:
        self._store = store
        self._retrier = retrier
        self._settler = settler
        self._differs = 0

    def beaten(self, held: int | None, running: int) -> None:
        """Take note of how many jobs the store and the worker think that run here."""
        if held is not None:
            self._differs = self._differs + 1 if held > running else 0

    @property
    def is_due(self) -> bool:
        return self._differs >= _BEATS

    async def hand_back(
        self, replica: str, running: Callable[[], set[str]], give_up: asyncio.Event
    ) -> None:
        """Give to others what is not known here. No claim may be under way.

        What was settled at this moment is named as well, and the store refuses to change it.
        """
        self._differs = 0
        find = partial(self._store.jobs.find, state="running", replica=replica, limit=BATCH_MAX)
        page = await self._retrier.until_answered("find", find, give_up)
        here = running()
        for record in page.jobs:
            if record.id not in here:
                self._settler.hand_back(record, why="its worker had finished it, or never got it")
