"""The audit: jobs that the store thinks run here, and of which nobody here knows.

A store that loses its last writes in a fail-over has forgotten that they ended. Their replica
lives, so that nobody else would ever take them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from tenure.core.records import BATCH_MAX
from tenure.runtime.patience import Patience
from tenure.runtime.settling import Settler
from tenure.stores.contract import Store

__all__ = ["Audit"]

# A claim whose reply is on its way makes a difference, too, but not for so many beats.
_BEATS = 2


class Audit:
    """Compares what beats say with what is known here."""

    def __init__(self, store: Store, patience: Patience, settler: Settler) -> None:
        self._store = store
        self._patience = patience
        self._settler = settler
        self._differs = 0

    def beaten(self, held: int, known: int) -> None:
        """Take note of how many jobs the store and the worker think that run here."""
        self._differs = self._differs + 1 if held > known else 0

    @property
    def is_due(self) -> bool:
        return self._differs >= _BEATS

    async def hand_back(
        self, replica: str, known: Callable[[], set[str]], give_up: asyncio.Event
    ) -> None:
        """Give to others what is not known here. No claim may be under way.

        What was settled at this moment is named as well, and the store refuses to change it.
        """
        self._differs = 0
        find = partial(self._store.find, state="running", replica=replica, limit=BATCH_MAX)
        page = await self._patience.until_answered("find", find, give_up)
        here = known()
        for record in page.jobs:
            if record.id not in here:
                self._settler.hand_back(record, why="its worker had finished it, or never got it")
