"""How long a job rests that a worker hands back without running it."""

from __future__ import annotations

__all__ = ["UNKNOWN_TASK", "unknown_task_delay", "yielding_delay"]

UNKNOWN_TASK = "its worker knows no such task"
"""The reason in the history of a job that a worker hands back because it lacks the task."""


def unknown_task_delay(attempt: int, chance: float) -> float:
    """Return the delay of a job that this replica hands back because it lacks the task.

    Short at first, for a rolling deploy; long later, for a task that no worker has any more.
    """
    return float(min(300.0, 2.0 ** min(attempt - 1, 10))) * (0.5 + 0.5 * chance)


def yielding_delay(attempt: int, chance: float) -> float:
    """Return the delay of a job that is handed back to leave the slots to other jobs.

    It grows each time: a long queue of such jobs must not keep the worker busy.
    """
    return float(min(10.0, 2.0 ** min(attempt - 1, 10))) * (0.5 + 0.5 * chance)
