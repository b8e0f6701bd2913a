"""The options of a worker, after the app has filled in all defaults."""

from __future__ import annotations

from msgspec import Struct

__all__ = ["WorkerOptions"]


class WorkerOptions(Struct, frozen=True, kw_only=True):
    """The options of one worker."""

    queues: tuple[str, ...]
    weights: tuple[int, ...] = ()
    """The shares of the queues. Without weights they are served in order."""
    concurrency: int
    timer_concurrency: int
    grace: float
    burst: bool = False
    """Whether it stops when nothing is due and nothing runs."""
