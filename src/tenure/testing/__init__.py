"""Tools for tests: a clock you move by hand, and a store that loses requests and replies."""

from __future__ import annotations

from tenure.app import Tenure
from tenure.core.clock import Clock
from tenure.testing.clock import ManualClock
from tenure.testing.faulty import Faults, FaultyStore

__all__ = ["Faults", "FaultyStore", "ManualClock", "memory_app"]


def memory_app(*, clock: Clock | None = None, faults: Faults | None = None) -> Tenure:
    """Return an app for a test, on a memory store of its own.

    faults, clock = Faults(), ManualClock()
    async with memory_app(clock=clock, faults=faults) as app: ...
    """
    return Tenure(FaultyStore("memory://", faults, clock=clock))
