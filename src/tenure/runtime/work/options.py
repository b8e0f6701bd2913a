"""The options of a worker, with everything resolved that an app decides for it."""

from __future__ import annotations

from msgspec import Struct

__all__ = ["WorkerOptions"]


class WorkerOptions(Struct, frozen=True, kw_only=True):
    """How a worker works."""

    queues: tuple[str, ...]
    weights: tuple[int, ...] = ()
    """How the queues share the worker; without weights they are served in their order."""
    concurrency: int
    timer_concurrency: int
    grace: float
    burst: bool = False
    """Whether it stops when nothing is due and nothing runs here."""
