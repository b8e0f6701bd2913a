"""The claims of a worker: numbered, so that one can be repeated, and in turn over its queues."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tenure.core.records import Claimed
from tenure.core.shares import Shares
from tenure.runtime.patience import Patience
from tenure.stores.contract import Store

__all__ = ["Claims"]


class Claims:
    """Asks the store for jobs, one claim at a time. `number` is that of the last one."""

    def __init__(
        self,
        store: Store,
        patience: Patience,
        shares: Shares,
        first: Sequence[str],
        stopped: asyncio.Event,
    ) -> None:
        """Jobs of the queues `first` are taken before all others."""
        self._store = store
        self._patience = patience
        self._shares = shares
        self._first = tuple(first)
        self._stopped = stopped
        self.number = 0
        self.is_full = False
        """Whether the last claim got all it asked for: there may be more."""

    @property
    def queues(self) -> tuple[str, ...]:
        """All queues that are served, in no particular order."""
        return (*self._first, *self._shares.names)

    async def claim(self, replica: str, want: int) -> Claimed | None:
        """Claim up to `want` jobs under a new number; an outage repeats it under the same one.

        None: the store does not know this replica any more.
        """
        self.number += 1
        number, turn = self.number, self._shares.turn(want)
        queues = (*self._first, *turn.queues)
        claimed = await self._patience.until_answered(
            "claim",
            lambda: self._store.claim(replica, number, queues, turn.limit),
            give_up=self._stopped,
        )
        if claimed is not None:
            self.is_full = len(claimed.jobs) >= turn.limit
            given = [record.queue for record in claimed.jobs]
            self._shares.took(turn, given, is_full=self.is_full)
        return claimed
