"""Runs suspects in a process of their own, beside this worker.

Jobs that were lost too often may kill their process. They run in a child of the supervisor that
runs nothing else, one at a time. The worker cannot pass on its claims, which belong to its own
replica. So it joins as a second replica, hands the jobs back, claims them again as that replica,
and passes the replica to the supervisor, which starts a process that runs them under it. Other jobs
of this worker continue.

Another worker may claim a job in between. That is harmless, because it does the same.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from typing import TypeVar

from tenure.core.jobs.endings import handed_back
from tenure.core.jobs.records import JobRecord
from tenure.core.leases import Meta
from tenure.core.settings import Settings
from tenure.runtime.attempts.settler import Ended, Settler
from tenure.runtime.replica.recovery import leave
from tenure.runtime.store_retry import Retrier
from tenure.runtime.supervised.link import SupervisorLink
from tenure.runtime.supervised.messages import HandOver, IsolationJoined, IsolationLeft
from tenure.runtime.work.suspects import is_suspicious
from tenure.stores.contract import Store

__all__ = ["Isolation"]

T = TypeVar("T")

# The delay of suspects that are handed back while another suspect of this worker runs isolated.
_BUSY = 5.0
# The pause after a try in which the claim got another job.
_MISSED = 1.0

_NO_PROCESS = "no process is free for it"


class Isolation:
    """Isolates the suspects of one worker. `waiting` are those that it has claimed."""

    def __init__(
        self,
        store: Store,
        retrier: Retrier,
        settler: Settler,
        settings: Settings,
        link: SupervisorLink,
        *,
        meta: Meta,
        stopped: asyncio.Event,
    ) -> None:
        self._store = store
        self._clock = store.clock
        self._retrier = retrier
        self._settler = settler
        self._settings = settings
        self._link = link
        self._meta = meta
        self._stopped = stopped
        self._is_taken = False
        self._not_before = 0.0
        self.waiting: deque[JobRecord] = deque()

    @property
    def ids(self) -> list[str]:
        return [record.id for record in self.waiting]

    def process_ended(self) -> None:
        """Record that the process of the last job has ended, or could not be started."""
        self._is_taken = False

    def take(self, ids: Collection[str]) -> list[JobRecord]:
        """Remove these jobs if they wait here. Returns the removed ones."""
        taken = [record for record in self.waiting if record.id in ids]
        self.waiting = deque(record for record in self.waiting if record.id not in ids)
        return taken

    async def run_isolated(self) -> None:
        """Run the waiting suspects in a process of their own, or hand them back with a delay."""
        pause = self._pause()
        if pause or self._link.is_closed:
            for record in self.take(self.ids):
                self._settler.hand_back(record, pause, reason=_NO_PROCESS)
            return
        queue = self.waiting[0].queue
        ids = {record.id for record in self.waiting if record.queue == queue}
        second_replica = self._clock.token()
        # Sent first: if this process dies, the supervisor hands back the second replica's jobs.
        self._link.send(IsolationJoined(second_replica))
        ttl = self._settings.replica_ttl
        join = partial(self._store.jobs.beat, [second_replica], ttl=ttl, meta=self._meta)
        await self._call("join", join)
        # Only jobs that were not cancelled or taken over meanwhile.
        suspects = self.take(ids)
        if suspects:
            await self._hand_back(suspects, "it moves to a process of its own")
        jobs = await self._claim(second_replica, queue, len(suspects)) if suspects else []
        if jobs:
            self._is_taken = True
            self._link.send(HandOver(second_replica, jobs))
            return
        self._not_before = self._clock.boot() + _MISSED
        await self._call("leave", partial(leave, self._store, second_replica))
        self._link.send(IsolationLeft(second_replica))

    async def _claim(self, second_replica: str, queue: str, number: int) -> list[str]:
        """Claim the jobs again, usually the first of their queue. Hands back any others."""
        claimed = await self._call(
            "claim", partial(self._store.jobs.claim, second_replica, 1, [queue], number)
        )
        records = [] if claimed is None else claimed.jobs
        suspects = [job for job in records if is_suspicious(job, self._settings.isolate_after)]
        others = [job for job in records if job not in suspects]
        if others:
            await self._hand_back(others, _NO_PROCESS)
        return [job.id for job in suspects]

    async def _hand_back(self, records: Sequence[JobRecord], reason: str) -> None:
        ended = [Ended(record, handed_back(record), reason=reason) for record in records]
        settle = partial(self._store.jobs.settle, [end.settlement for end in ended])
        for end, answer in zip(ended, await self._call("settle", settle), strict=True):
            self._settler.report(end, answer)

    def _pause(self) -> float:
        """Return the delay with which to hand a job back; 0: it can run isolated now."""
        longest = _BUSY if self._is_taken else self._not_before - self._clock.boot()
        return longest * (1 + self._clock.random()) if longest > 0 else 0.0

    async def _call(self, name: str, call: Callable[[], Awaitable[T]]) -> T:
        return await self._retrier.until_answered(name, call, give_up=self._stopped)
