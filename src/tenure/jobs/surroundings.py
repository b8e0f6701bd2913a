"""Reads what explains jobs, timers and queues: see `core.why`."""

from __future__ import annotations

from collections.abc import Mapping

from tenure.core.settings import ISOLATE_AFTER
from tenure.core.why import Fleet, Surroundings
from tenure.runtime.attempts.handler import Handler
from tenure.stores.contract import Store

__all__ = ["read_surroundings"]

# More than any fleet has: the worker of a job must not seem unknown because others joined earlier.
_REPLICAS = 10_000


async def read_surroundings(
    store: Store,
    handlers: Mapping[str, Handler] | None = None,
    *,
    isolate_after: int = ISOLATE_AFTER,
    needs_queues: bool = True,
    needs_replicas: bool = True,
) -> Surroundings:
    """Return the store's time, its queues and its replicas, in three calls or fewer.

    `handlers` are the tasks that this process declares. Running jobs do not need the queues, and
    finished ones need neither queues nor replicas.
    """
    queues = await store.jobs.counts() if needs_queues else []
    replicas = await store.jobs.replicas(limit=_REPLICAS) if needs_replicas else []
    return Surroundings(
        now=(await store.ping()).now,
        fleet=Fleet(replicas),
        queues={queue.queue: queue for queue in queues},
        max_attempts={
            name: handler.retry.max_attempts for name, handler in (handlers or {}).items()
        },
        isolate_after=isolate_after,
    )
