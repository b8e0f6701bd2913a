"""What attempts did in the last hour, as workers have counted it: for a chart and for a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any, Final

from tenure.core.jobs.run_stats import RunStats
from tenure.core.jobs.view import as_datetime

__all__ = ["rates", "tasks"]

MINUTES: Final = 60
_TASKS_MAX: Final = 100
_COUNTED: Final = ("started", "succeeded", "failed", "retried")


def rates(lines: Iterable[RunStats], now: int) -> dict[str, Any]:
    """Return what began and ended in each of the last 60 minutes, the present one last."""
    this_minute = as_datetime(now).replace(second=0, microsecond=0)
    first = this_minute - timedelta(minutes=MINUTES - 1)
    minutes = [first + timedelta(minutes=number) for number in range(MINUTES)]
    sums = {name: [0] * MINUTES for name in _COUNTED}
    for line in lines:
        # The clock of a worker may be ahead of the store's.
        at = min((line.minute - first) // timedelta(minutes=1), MINUTES - 1)
        if at >= 0:
            for name in _COUNTED:
                sums[name][at] += getattr(line, name)
    return {"minutes": minutes, **sums}


def tasks(lines: Sequence[RunStats]) -> list[dict[str, Any]]:
    """Return the counts and run times of the hour by task and queue, the busiest 100 first."""
    groups: dict[tuple[str, str], list[RunStats]] = {}
    for line in lines:
        groups.setdefault((line.task, line.queue), []).append(line)
    documents = [_task(*names, group) for names, group in groups.items()]
    documents.sort(key=lambda task: (-task["started"], task["task"], task["queue"]))
    return documents[:_TASKS_MAX]


def _task(task: str, queue: str, lines: Sequence[RunStats]) -> dict[str, Any]:
    counts = {name: sum(getattr(line, name) for line in lines) for name in _COUNTED}
    ended = sum(
        line.succeeded + line.failed + line.retried + line.cancelled + line.lost for line in lines
    )
    seconds = sum(line.seconds for line in lines)
    return {
        "task": task,
        "queue": queue,
        **counts,
        "seconds_mean": seconds / ended if ended else None,
        "seconds_max": max(line.longest for line in lines) if ended else None,
    }
