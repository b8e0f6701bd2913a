"""Writes the store's entries of a history: its answers, and what processes receive of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.sim.clock import StoreClock
from tests.sim.history import History

__all__ = ["Recorder"]


class Recorder:
    """The store's view of a history. The server and its three parts share one."""

    def __init__(self, clock: StoreClock, history: History) -> None:
        self._clock = clock
        self._history = history
        self.caller = ""
        """The process whose request is being executed."""
        self.writes = 0
        """How many calls that may change something were answered."""
        self.on_write: Callable[[], None] = lambda: None

    def record(self, what: str, **facts: Any) -> None:
        """Add an entry of the store, with the store's time."""
        clock = self._clock
        self._history.add(clock.boot(), "store", what, now=clock.wall(), **facts)

    def record_for(self, process: str, what: str, **facts: Any) -> None:
        """Add an entry of a process: a request that it sends, or an answer that it receives."""
        self._history.add(self._clock.boot(), process, what, **facts)

    def count_write(self) -> None:
        """Count a write. After it the store may lose the last few writes."""
        self.writes += 1
        self.on_write()
