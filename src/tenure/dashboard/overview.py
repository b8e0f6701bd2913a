"""The first page: what needs attention, in words, then queues, tasks, failures and next ticks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any, Final

from tenure.core.jobs.overdue_queues import overdue_queues
from tenure.core.jobs.records import COUNT_MAX, QueueCounts
from tenure.core.jobs.replicas import ReplicaRecord
from tenure.core.schedules.records import TIMERS_QUEUE
from tenure.core.worker_info import Serving, read_serving
from tenure.dashboard.attention import attention, failures
from tenure.dashboard.counters import rates, tasks
from tenure.dashboard.documents import state_of
from tenure.dashboard.request import Request
from tenure.dashboard.site import Site
from tenure.timers import TimerViews

__all__ = ["overview"]

_QUEUES_MAX: Final = 200
_FAILED: Final = 200
_TICKS: Final = 10


async def overview(site: Site, request: Request) -> dict[str, Any]:
    """Return how everything stands."""
    del request
    snapshot = site.snapshot
    # Together: a store far away would take as long for each.
    counts, replicas, timers, around, failed, stats = await asyncio.gather(
        snapshot.queues(),
        snapshot.replicas(),
        snapshot.timers_now(),
        site.surroundings(),
        snapshot.jobs(state="failed", limit=_FAILED),
        snapshot.run_stats(),
    )
    site.recent.compare(replicas)
    ages = snapshot.engine.settings.queue_expected
    late = {queue.queue for queue in overdue_queues(counts, ages)}
    queues = [*_queues(counts, replicas, late)]
    failed_by_task = failures(failed.jobs, around.now)
    lines = attention(
        around,
        replicas,
        timers,
        queues=[queue["name"] for queue in queues],
        late=late,
        failed=failed_by_task,
    )
    document = {
        "attention": lines,
        "queues": queues[:_QUEUES_MAX],
        "rates": rates(stats, around.now),
        "tasks": tasks(stats),
        "failures": failed_by_task,
        "replicas": _capacity(replicas),
        "ticks": _ticks(timers),
    }
    return await site.stamped(document)


def _queues(
    counts: Sequence[QueueCounts], replicas: Sequence[ReplicaRecord], late: set[str]
) -> Iterator[dict[str, Any]]:
    """Yield the queues with jobs or workers, the longest wait first."""
    published = [serving for replica in _alive(replicas) if (serving := read_serving(replica.meta))]
    counted = {count.queue: count for count in counts}
    names = {name for serving in published for name in serving.queues} | counted.keys()
    if any(serving.timer_slots for serving in published):
        names.add(TIMERS_QUEUE)  # also between two runs: rows must not come and go
    nothing = {
        name: QueueCounts(queue=name, waiting=0, running=0) for name in names - counted.keys()
    }
    ordered = sorted(
        (counted | nothing).values(), key=lambda count: (-(count.oldest or 0.0), count.queue)
    )
    for count in ordered:
        slots = [*_slots(count.queue, published)]
        yield {
            "name": count.queue,
            "waiting": count.waiting,
            "running": count.running,
            "is_capped": max(count.waiting, count.running) >= COUNT_MAX,
            "oldest": count.oldest,
            "is_paused": count.paused_for is not None,
            "paused_for": count.paused_for,
            "pause_reason": count.pause_reason,
            "workers": len(slots),
            "slots": sum(slots),
            "is_late": count.queue in late,
        }


def _slots(queue: str, published: Sequence[Serving]) -> Iterator[int]:
    """Yield the slots of each worker that serves a queue."""
    for serving in published:
        if queue == TIMERS_QUEUE:
            if serving.timer_slots:
                yield serving.timer_slots
        elif serving.may_serve(queue):
            yield serving.slots


def _alive(replicas: Sequence[ReplicaRecord]) -> list[ReplicaRecord]:
    return [replica for replica in replicas if state_of(replica) == "alive"]


def _capacity(replicas: Sequence[ReplicaRecord]) -> dict[str, int]:
    states = [state_of(replica) for replica in replicas]
    living = _alive(replicas)
    serving = [read_serving(replica.meta) for replica in living]
    return {
        "alive": len(living),
        "expired": len(states) - len(living),
        "slots": sum(each.slots for each in serving if each is not None),
        "busy": sum(replica.held for replica in living),
    }


def _ticks(timers: TimerViews) -> list[dict[str, Any]]:
    """Return the next ticks of all timers that nothing keeps from ticking."""
    if timers.pause is not None:
        return []
    coming = [
        {
            "timer": view.info.name,
            "kind": view.info.kind,
            "at": view.info.next,
            "rule": view.info.rule,
        }
        for view in timers.timers
        if view.info.next is not None and view.info.pause is None and view.info.is_declared
    ]
    return sorted(coming, key=lambda tick: (tick["at"], tick["timer"]))[:_TICKS]
