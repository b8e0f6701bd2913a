"""Tools for tests: a clock you move by hand, and a store that loses requests and replies."""

from __future__ import annotations

from tenure.testing.clock import ManualClock

__all__ = ["ManualClock"]
