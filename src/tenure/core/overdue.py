"""When a lock, job or run of a timer takes longer than its user expected.

Pure. `expected` is an option of locks, tasks and timers. Exceeding it stops nothing: it makes an
event and a line in the log.
"""

from __future__ import annotations

__all__ = ["OVERDUE_FACTOR", "is_overdue", "overdue_after"]

# Users write what is usual. Half as much again passes for an ordinary slow case, so an alarm means
# that somebody should look.
OVERDUE_FACTOR = 1.5


def overdue_after(expected: float) -> float:
    """Return the seconds after which something expected to take `expected` seconds is overdue."""
    return expected * OVERDUE_FACTOR


def is_overdue(taken: float, expected: float | None) -> bool:
    """Return whether `taken` seconds are too many. Never with None: nothing was expected."""
    return expected is not None and taken >= overdue_after(expected)
