"""What the store of a simulation writes down: what it answers, and what processes hear of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.sim.clock import StoreClock
from tests.sim.history import History

__all__ = ["Diary"]


class Diary:
    """The store's entries in a history. The server and its parts share it."""

    def __init__(self, clock: StoreClock, history: History) -> None:
        self._clock = clock
        self._history = history
        self.caller = ""
        """The process whose request is being carried out."""
        self.writes = 0
        """How many calls that may change something were answered."""
        self.on_write: Callable[[], None] = lambda: None

    def say(self, what: str, **facts: Any) -> None:
        """Write down what the store does."""
        clock = self._clock
        self._history.add(clock.boot(), "store", what, now=clock.wall(), **facts)

    def say_of(self, process: str, what: str, **facts: Any) -> None:
        """Write down what a process asks for, or hears."""
        self._history.add(self._clock.boot(), process, what, **facts)

    def wrote(self) -> None:
        """Count a write. It may be the last one before some are lost."""
        self.writes += 1
        self.on_write()
