"""The claims of a worker: numbered, so that one can be repeated, and in turn over its queues."""

from __future__ import annotations

import asyncio
import math

from tenure.core.records import Claimed
from tenure.core.schedules import TIMERS_QUEUE
from tenure.core.shares import Shares
from tenure.runtime.patience import Patience
from tenure.stores.contract import Store

__all__ = ["Claims"]


class Claims:
    """Asks the store for jobs, one claim at a time. `number` is that of the last one."""

    def __init__(
        self, store: Store, patience: Patience, shares: Shares, stopped: asyncio.Event
    ) -> None:
        self._store = store
        self._patience = patience
        self._shares = shares
        self._stopped = stopped
        self.number = 0
        self.is_full = False
        """Whether the last claim got all it asked for: there may be more."""
        self.runs_looked_for = -math.inf
        """When runs of timers were last asked for, by the local clock."""

    async def claim(self, replica: str, jobs: int, runs: int) -> Claimed | None:
        """Claim jobs under a new number; an outage repeats it under the same one.

        Runs of timers come first if `runs` of them could start. They have slots of their own,
        and few wait: a claim may get more of them than there are slots for. Without any free slot
        for jobs, runs are all that is asked for.

        None: the store does not know this replica any more.
        """
        self.number += 1
        number, turn = self.number, self._shares.turn(jobs)
        queues = (*((TIMERS_QUEUE,) if runs else ()), *(turn.queues if jobs else ()))
        limit = turn.limit if jobs else runs
        if runs:
            self.runs_looked_for = self._store.clock.boot()
        claimed = await self._patience.until_answered(
            "claim",
            lambda: self._store.claim(replica, number, queues, limit),
            give_up=self._stopped,
        )
        if claimed is not None:
            self.is_full = len(claimed.jobs) >= limit
            if jobs:
                given = [record.queue for record in claimed.jobs]
                self._shares.took(turn, given, is_full=self.is_full)
        return claimed
