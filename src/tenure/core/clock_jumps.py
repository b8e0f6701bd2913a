"""Whether the store's clock was set, by the instants in two of its answers.

Pure. An answer was made at some moment between request and arrival. So the difference between the
store's clock and the local boot clock is known only within bounds, and slow calls make them wide.
What those bounds can explain is no jump.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

__all__ = ["JUMP_MIN", "Lead", "jump_between", "lead_of"]

JUMP_MIN: Final = 1.0
"""A smaller jump harms no timer and no delay, and a health check allows as much."""

# Kernels adjust a clock by up to 0.05 %, and the two clocks may be adjusted in opposite directions.
_DRIFT_MAX: Final = 0.001


class Lead(Struct, frozen=True):
    """By how many seconds the store's clock is ahead of the local boot clock: at least, at most."""

    least: float
    most: float
    answered: float
    """When the answer arrived, by the boot clock."""

    @property
    def spread(self) -> float:
        """How vague it is: the duration of the call."""
        return self.most - self.least


def lead_of(at: int, *, sent: float, answered: float) -> Lead:
    """Return the lead of the store's clock, which was `at` between two local instants."""
    return Lead(at / 1e6 - answered, at / 1e6 - sent, answered)


def jump_between(before: Lead, after: Lead) -> float:
    """Return by how many seconds the clock was set, negative if back; 0 if it need not have been.

    A clock that is adjusted slowly does not jump: compare neighbouring answers. They are far apart
    if the store was away, or if a supervisor has sent the heartbeats.
    """
    surely = max(after.least - before.most, before.least - after.most)
    if surely < max(JUMP_MIN, _DRIFT_MAX * (after.answered - before.answered)):
        return 0.0
    return (after.least + after.most - before.least - before.most) / 2
