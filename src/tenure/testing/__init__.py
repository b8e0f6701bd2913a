"""Tools for tests: a clock you move by hand, and a store that loses requests and replies."""

from __future__ import annotations

from tenure.testing.clock import ManualClock
from tenure.testing.faulty import Faults, FaultyStore

__all__ = ["Faults", "FaultyStore", "ManualClock"]
