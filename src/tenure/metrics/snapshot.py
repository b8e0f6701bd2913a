"""How all queues and the clock of a store stand, for the metrics of one replica.

These numbers are the same for every replica, and counting them costs the store more than a job. So
one replica of all counts and shows them: the one that has the lease `tenure:metrics`. It counts
when its metrics are read, at most every 5 s. Other replicas do not show them, so that a sum over
replicas is right, too.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import heapq
import logging
import os
import weakref
from collections.abc import Sequence
from contextlib import suppress

from msgspec.structs import replace

from tenure.app import Tenure, engine_of
from tenure.app.health import read_clock
from tenure.core.clock import Clock
from tenure.core.jobs.records import QueueCounts
from tenure.core.leases import Granted, Lease
from tenure.errors import TenureError
from tenure.metrics.labels import LABEL_MAX, OTHER
from tenure.runtime.process_info import about_own_lease

__all__ = ["LEASE", "StoreSnapshot", "bounded_queues", "largest_offset", "snapshot_of"]

log = logging.getLogger("tenure")

LEASE = "tenure:metrics"
"""The lease of the replica that counts."""

# The usual interval of scrapes is 15 s. A replica that dies is followed by another one after this.
_LEASE_SECONDS = 30.0
_COUNT_EVERY = 5.0
# A page must not hang while the store does; Prometheus gives up after 10 s.
_PATIENCE = 2.0


class _Holder:
    """The holder of the lease: another one in each process, also after a fork."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._drawn_by = 0
        self._token = ""

    def token(self) -> str:
        pid = os.getpid()
        if self._drawn_by != pid:
            self._drawn_by, self._token = pid, self._clock.token()
        return self._token


class StoreSnapshot:
    """The counts of all queues while this replica is the one to show them, else nothing."""

    def __init__(self, app: Tenure) -> None:
        self._engine = engine_of(app)
        self._clock = self._engine.store.clock
        self._holder = _Holder(self._clock)
        self._lease: Lease | None = None
        self._counts: Sequence[QueueCounts] = ()
        self._clock_offset: float | None = None
        self._ask_from = float("-inf")
        self._valid_until = float("-inf")

    async def refresh(self) -> None:
        """Count, if it is time for it and no other replica does. Never raises an error."""
        sent = self._clock.boot()
        if sent < self._ask_from:
            return
        # Before the answer: other readers of the page must not ask meanwhile.
        self._ask_from = sent + _COUNT_EVERY
        self._clock_offset = None
        counts: Sequence[QueueCounts] | None = None
        try:
            if self._engine.is_ready:
                async with asyncio.timeout(_PATIENCE):
                    counts = await self._count()
        except (TenureError, TimeoutError) as error:
            log.debug("the queues could not be counted for the metrics: %s", error)
        self._counts = counts or ()
        self._valid_until = sent + _LEASE_SECONDS

    async def _count(self) -> Sequence[QueueCounts] | None:
        store = self._engine.services().store
        # Without a hold that is renewed: whoever has it gets it again.
        answer = await store.leases.acquire(
            LEASE,
            holder=self._holder.token(),
            limit=1,
            ttl=_LEASE_SECONDS,
            meta=about_own_lease("one process counts queues for the metrics"),
        )
        self._lease = answer.lease if isinstance(answer, Granted) else None
        if self._lease is None:
            return None
        counts = self._with_empty(await store.jobs.counts())
        self._clock_offset = (await read_clock(store)).ahead
        return counts

    def _with_empty(self, counts: Sequence[QueueCounts]) -> Sequence[QueueCounts]:
        """Add the declared queues that have no jobs: a gauge must not vanish at 0."""
        empty = set(self._engine.registry.queues) - {count.queue for count in counts}
        return [
            *counts,
            *(QueueCounts(queue=queue, waiting=0, running=0) for queue in sorted(empty)),
        ]

    async def close(self) -> None:
        """Let another replica show the counts at once. Never raises an error."""
        lease, self._lease = self._lease, None
        self._counts, self._clock_offset = (), None
        self._ask_from = float("inf")
        if lease is None or not self._engine.is_ready:
            return
        with suppress(TenureError, TimeoutError):  # the lease ends by itself
            async with asyncio.timeout(_PATIENCE):
                await self._engine.services().store.leases.release([lease])

    def refresh_from_thread(self, patience: float) -> None:
        """Do the same from another thread than that of the app's loop, and wait for the answer."""
        loop = self._engine.loop
        if loop is None or loop is _running_loop():  # it cannot wait for itself
            return
        refresh = self.refresh()
        try:
            refreshed = asyncio.run_coroutine_threadsafe(refresh, loop)
        except RuntimeError:  # the loop has ended
            refresh.close()
            return
        with suppress(TimeoutError, concurrent.futures.CancelledError):
            refreshed.result(patience)

    def current(self) -> Sequence[QueueCounts]:
        """Return what to show; nothing after the lease has run out unread."""
        return self._counts if self._is_valid else ()

    @property
    def clock_offset(self) -> float | None:
        """By how many seconds the store's clock is ahead of this host's; None: nothing to show."""
        return self._clock_offset if self._is_valid else None

    @property
    def _is_valid(self) -> bool:
        return self._clock.boot() < self._valid_until


_snapshots: weakref.WeakKeyDictionary[Tenure, StoreSnapshot] = weakref.WeakKeyDictionary()


def snapshot_of(app: Tenure) -> StoreSnapshot:
    """Return the snapshot of an app: one, whichever systems show it."""
    snapshot = _snapshots.get(app)
    if snapshot is None:
        snapshot = _snapshots[app] = StoreSnapshot(app)
    return snapshot


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def largest_offset(snapshots: Sequence[StoreSnapshot]) -> float | None:
    """Return the clock offset that is furthest from 0, of the stores of all apps of a process."""
    offsets = [offset for each in snapshots if (offset := each.clock_offset) is not None]
    return max(offsets, key=abs, default=None)


def bounded_queues(queues: Sequence[QueueCounts]) -> list[QueueCounts]:
    """Return the queues with the most jobs, and the sum of the others as one queue.

    Each name is there once: two apps may have a queue of the same name, and one may be `other`.
    """
    named = _by_name(queues)
    if len(named) <= LABEL_MAX:
        return list(named.values())
    shown = heapq.nlargest(
        LABEL_MAX, named.values(), key=lambda counts: counts.waiting + counts.running
    )
    names = {counts.queue for counts in shown}
    others = (replace(counts, queue=OTHER) for name, counts in named.items() if name not in names)
    return list(_by_name([*shown, *others]).values())


def _by_name(queues: Sequence[QueueCounts]) -> dict[str, QueueCounts]:
    """Add up the queues of each name; the oldest of their oldest jobs counts."""
    named: dict[str, QueueCounts] = {}
    for counts in queues:
        if (before := named.get(counts.queue)) is None:
            named[counts.queue] = counts
            continue
        ages = [age for age in (before.oldest, counts.oldest) if age is not None]
        named[counts.queue] = QueueCounts(
            queue=counts.queue,
            waiting=before.waiting + counts.waiting,
            running=before.running + counts.running,
            oldest=max(ages, default=None),
        )
    return named
