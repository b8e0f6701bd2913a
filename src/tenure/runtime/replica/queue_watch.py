"""Reports queues whose oldest due job waits for longer than expected.

Counting costs the store more than a job, so of all workers one counts: the one that has the lease
`tenure:queues`. The others ask for that lease about once a minute, and follow it if it dies.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from tenure.core.jobs.overdue_queues import (
    QueueAges,
    look_interval,
    look_lease,
    overdue_queues,
)
from tenure.core.lease_policy import renew_after
from tenure.core.leases import Granted, Lease
from tenure.errors import TenureError
from tenure.observe.events import Events
from tenure.observe.replica import QueueDelayed
from tenure.runtime.process_info import about_own_lease
from tenure.stores.contract import Store

__all__ = ["LEASE", "QueueWatch"]

LEASE = "tenure:queues"
"""The lease of the worker that counts."""

# A worker that stops must not wait for a store that is away: the lease ends by itself.
_PATIENCE = 1.0


class QueueWatch:
    """Looks at the queues now and then, and remembers which ones it has reported."""

    def __init__(
        self, store: Store, ages: QueueAges, events: Events, *, replica_ttl: float
    ) -> None:
        """`replica_ttl`: workers look along with their heartbeats, whose pauses follow from it."""
        self._store = store
        self._clock = store.clock
        self._ages = ages
        self._events = events
        self._interval = look_interval(ages)
        self._ttl = look_lease(self._interval, renew_after(replica_ttl, chance=0.0))
        self._lease: Lease | None = None
        self._reported: set[str] = set()
        self._look_at = self._clock.boot() + self._interval

    def is_due(self, now: float) -> bool:
        """Return whether to look now, and if so, count from now on."""
        if now < self._look_at:
            return False
        self._look_at = now + self._interval * (0.75 + 0.25 * self._clock.random())
        return True

    async def look(self) -> None:
        """Count, unless another worker does, and report each queue when it becomes late."""
        # Kept before the answer: it may be granted although the answer is lost.
        lease = self._lease = self._lease or Lease(key=LEASE, holder=self._clock.token())
        answer = await self._store.leases.acquire(
            LEASE,
            holder=lease.holder,
            limit=1,
            ttl=self._ttl,
            meta=about_own_lease("one worker reports late queues"),
        )
        if not isinstance(answer, Granted):
            self._lease = None
            self._reported.clear()  # it may follow later, and then it knows no episode
            return
        overdue = overdue_queues(await self._store.jobs.counts(), self._ages)
        self._reported &= {queue.queue for queue in overdue}
        for queue in overdue:
            if queue.queue not in self._reported:
                self._reported.add(queue.queue)
                self._events.emit(QueueDelayed(queue.queue, round(queue.age, 1), queue.expected))
                # A queue for each customer is late with all others: beats go on in between.
                await self._clock.sleep(0)

    async def leave(self) -> None:
        """Let another worker follow at its next look. Never raises an error of the store."""
        lease, self._lease = self._lease, None
        if lease is not None:
            with suppress(TenureError, TimeoutError):
                async with asyncio.timeout(_PATIENCE):
                    await self._store.leases.release([lease])
