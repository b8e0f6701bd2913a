"""The page about replicas: worker processes, what they serve, and what they run."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from tenure.core.jobs.records import JobRecord
from tenure.core.jobs.replicas import ReplicaRecord
from tenure.core.why import Fleet
from tenure.core.worker_info import memory_of, read_serving
from tenure.dashboard.documents import Places, instant, lite, state_of
from tenure.dashboard.request import Request
from tenure.dashboard.site import Site

__all__ = ["replicas"]

_RUNNING_MAX: Final = 200


async def replicas(site: Site, request: Request) -> dict[str, Any]:
    """Return all replicas with the newest 200 running jobs."""
    del request
    records, memory = await asyncio.gather(site.snapshot.replicas(), site.snapshot.memory())
    site.recent.compare(records)
    page = await site.snapshot.jobs(state="running", limit=_RUNNING_MAX)
    running: dict[str, list[JobRecord]] = {}
    for job in page.jobs:
        running.setdefault(job.replica, []).append(job)
    places = Places(Fleet(records))
    documents = [
        _document(replica, running.get(replica.id, []), places, memory_of(replica, memory))
        for replica in records
    ]
    return await site.stamped({"replicas": documents, "is_capped": page.cursor is not None})


def _document(
    replica: ReplicaRecord, running: list[JobRecord], places: Places, memory: int | None
) -> dict[str, Any]:
    serving, meta = read_serving(replica.meta), replica.meta
    return {
        "id": replica.id,
        "host": meta.get("host", ""),
        "pid": meta.get("pid", ""),
        "version": meta.get("version", ""),
        "joined": instant(replica.joined),
        "beat_ago": max(0.0, replica.ttl - replica.expires_in),
        "expires_in": replica.expires_in,
        "state": state_of(replica),
        "queues": [] if serving is None else [*serving.queues],
        "more_queues": 0 if serving is None else serving.more_queues,
        "slots": None if serving is None else serving.slots,
        "timer_slots": None if serving is None else serving.timer_slots,
        "timers": [] if serving is None else [*serving.timers],
        "more_timers": 0 if serving is None else serving.more_timers,
        "running": [lite(job, places) for job in running],
        "held": replica.held,
        "memory": memory,
    }
