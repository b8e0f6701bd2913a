"""The claims of a worker: numbered, so that a claim can be repeated, and fair to its queues."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable

from tenure.core.jobs.child_queues import ProcessQueues
from tenure.core.jobs.queue_shares import Shares, Turn
from tenure.core.jobs.records import Claimed, JobRecord
from tenure.core.schedules.records import TIMERS_QUEUE
from tenure.observe.base import first_of
from tenure.runtime.store_retry import Retrier
from tenure.stores.contract import Store

__all__ = ["Claims"]

log = logging.getLogger("tenure")


class Claims:
    """Claims jobs from the store, one claim at a time. `number` is that of the last claim."""

    def __init__(
        self,
        store: Store,
        retrier: Retrier,
        shares: Shares,
        stopped: asyncio.Event,
        *,
        needs_process: Callable[[JobRecord], bool],
    ) -> None:
        self._store = store
        self._retrier = retrier
        self._shares = shares
        self._stopped = stopped
        self._needs_process = needs_process
        self._process_queues = ProcessQueues()
        self.number = 0
        self.is_full = False
        """Whether the last claim got as many jobs as it requested, so there may be more."""
        self.runs_looked_for = -math.inf
        """When runs of timers were last claimed, by the local clock."""

    def are_held(self, process_room: int) -> bool:
        """Whether all queues wait for a free child process."""
        return self._process_queues.are_held(self._shares.names, process_room)

    async def claim(self, replica: str, jobs: int, runs: int, process_room: int) -> Claimed | None:
        """Claim jobs under a new number. During an outage it is repeated under the same number.

        Runs of timers come first if `runs` of them could start. They have slots of their own, and
        few wait, so a claim may get more of them than there are slots. Without a free slot for jobs
        it claims runs only.

        Returns None if the store no longer knows this replica.
        """
        self.number += 1
        number, turn = self.number, self._turn(jobs, process_room)
        queues = (*((TIMERS_QUEUE,) if runs else ()), *(turn.queues if jobs else ()))
        limit = turn.limit if jobs else runs
        if runs:
            self.runs_looked_for = self._store.clock.boot()
        claimed = await self._retrier.until_answered(
            "claim",
            lambda: self._store.jobs.claim(replica, number, queues, limit),
            give_up=self._stopped,
        )
        if claimed is not None:
            if claimed.jobs and log.isEnabledFor(logging.DEBUG):
                ids = first_of(tuple(record.id for record in claimed.jobs))
                number_of, about = len(claimed.jobs), {"replica": replica}
                log.debug("worker %s claimed %d: %s", replica[:8], number_of, ids, extra=about)
            self.is_full = len(claimed.jobs) >= limit
            if jobs:
                queues_of_jobs = [record.queue for record in claimed.jobs]
                self._shares.took(turn, queues_of_jobs, is_full=self.is_full)
                for_processes = filter(self._needs_process, claimed.jobs)
                self._process_queues.took(turn, [record.queue for record in for_processes])
        return claimed

    def _turn(self, jobs: int, process_room: int) -> Turn:
        return self._process_queues.narrowed(self._shares.turn(jobs), process_room)
