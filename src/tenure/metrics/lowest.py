"""One gauge for several apps of a process: the lowest of their values.

Apps may have different stores. One that cannot be reached must not hide behind another that
answers.
"""

from __future__ import annotations

import threading
import weakref

__all__ = ["Lowest", "Owner"]


class Owner:
    """An app, as far as a gauge is concerned. Its value counts as long as this object is there."""


class Lowest:
    """The last value of each owner."""

    def __init__(self) -> None:
        self._values: weakref.WeakKeyDictionary[Owner, float] = weakref.WeakKeyDictionary()
        self._changing = threading.Lock()

    def with_value(self, owner: Owner, value: float) -> float:
        """Keep the value of an owner, and return the lowest of all."""
        with self._changing:
            self._values[owner] = value
            return min(self._values.values())
