"""What `tenure top` shows, read from the store in a bounded number of calls."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from tenure.app import Tenure, engine_of
from tenure.core.jobs.overdue_queues import overdue_queues
from tenure.core.jobs.records import QueueCounts
from tenure.core.jobs.replicas import ReplicaRecord
from tenure.core.jobs.run_stats import memory_in
from tenure.core.leases import Lease
from tenure.core.schedules.records import TIMERS_QUEUE
from tenure.core.why import Fleet, Surroundings
from tenure.dashboard.attention import attention, failures
from tenure.jobs import Job
from tenure.stores.contract import Store
from tenure.timers import TickRecord, Timers, TimerViews

__all__ = ["JobStory", "MemoryLook", "Picture", "read", "read_history", "read_job"]

_JOBS: Final = 200
_TIMERS: Final = 200
_LEASES: Final = 1000
_TICKS: Final = 20
_FAILED_FOR: Final = 3600.0
_MEMORY_KEPT: Final = 15.0


class Picture(Struct, frozen=True, kw_only=True):
    """How a store stands."""

    around: Surroundings
    replicas: list[ReplicaRecord]
    queues: list[QueueCounts]
    """Those that have unfinished jobs, are paused or are served; the longest wait first."""
    jobs: list[Job[Any]]
    """The newest 200 that run, the longest first; then those that failed within the hour.

    Failed runs of timers are left out, as `jobs ls` leaves them out: the timers show them.
    """
    timers: TimerViews
    """The first 200 by name, each with its last outcome."""
    leases: list[Lease]
    """Holders and waiters of locks, by name."""
    attention: list[dict[str, Any]]
    memory: Mapping[str, int]
    """The bytes that replicas occupy, by the beginnings of their ids."""

    @property
    def now(self) -> int:
        return self.around.now


class JobStory(Struct, frozen=True):
    """One job, and what explains it."""

    job: Job[Any]
    around: Surroundings


class MemoryLook:
    """Reads the memory of replicas only now and then: it comes with counts of a whole hour."""

    def __init__(self) -> None:
        self._at = -math.inf
        self._memory: dict[str, int] = {}

    async def read(self, store: Store) -> dict[str, int]:
        """Return the bytes that replicas occupy, as they were at most 15 s ago."""
        now = store.clock.boot()
        if now - self._at >= _MEMORY_KEPT:
            self._memory = memory_in(await store.jobs.stats())
            self._at = now
        return self._memory


async def read(app: Tenure, memory: MemoryLook | None = None) -> Picture:
    """Return how the store stands: about ten calls, whatever is in it."""
    engine = engine_of(app)
    services = engine.services()
    store, jobs = services.store, services.jobs
    timers_of = Timers(engine.registry.plans, lambda: (store, jobs))
    # Together: a store far away would take as long for each.
    counts, replicas, running, failed, timers, leases = await asyncio.gather(
        store.jobs.counts(),
        store.jobs.replicas(),
        store.jobs.find(state="running", limit=_JOBS),
        store.jobs.find(state="failed", limit=_JOBS),
        timers_of.views(limit=_TIMERS, lines=1, previews=1),
        store.leases.find("", limit=_LEASES),
    )
    sizes = await (memory or MemoryLook()).read(store)
    pong = await store.ping()
    around = Surroundings(
        now=pong.now,
        fleet=Fleet(replicas),
        queues={queue.queue: queue for queue in counts},
        isolate_after=engine.settings.isolate_after,
    )
    queues = _queues(counts, around)
    recent = [job for job in failed.jobs if (pong.now - job.finished) / 1e6 <= _FAILED_FOR]
    late = {queue.queue for queue in overdue_queues(counts, engine.settings.queue_expected)}
    shown = [
        *sorted(running.jobs, key=lambda job: job.started),
        *(job for job in recent if job.queue != TIMERS_QUEUE),
    ]
    return Picture(
        around=around,
        replicas=replicas,
        queues=queues,
        # A megabyte of arguments is not worth keeping for a line.
        jobs=[jobs.handle(replace(job, payload=b"", checkpoint=None)) for job in shown],
        timers=timers,
        leases=leases,
        attention=attention(
            around,
            replicas,
            timers,
            queues=[queue.queue for queue in queues],
            late=late,
            failed=failures(failed.jobs, pong.now),
        ),
        memory=sizes,
    )


async def read_job(app: Tenure, id_: str) -> JobStory:
    """Return a job as it is now: four calls at most. Raises JobNotFound and JobUnreadable."""
    jobs = engine_of(app).services().jobs
    job = await app.job(id_)
    return JobStory(job, await jobs.surroundings(job.record))


async def read_history(app: Tenure, timer: str) -> list[TickRecord]:
    """Return the outcomes of the last ticks of a timer, newest first. Raises TimerNotFound."""
    return await app.timer_handle(timer).history(_TICKS)


def _queues(counts: Sequence[QueueCounts], around: Surroundings) -> list[QueueCounts]:
    served = {
        name
        for worker in around.fleet.alive
        if worker.serving is not None
        for name in worker.serving.queues
    }
    names = served | around.queues.keys()
    queues = [*counts, *(around.queue(name) for name in names - around.queues.keys())]
    return sorted(queues, key=lambda queue: (-(queue.oldest or 0.0), queue.queue))
