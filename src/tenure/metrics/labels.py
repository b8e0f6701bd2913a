"""Label values, bounded: each new value costs memory here and in Prometheus for good."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

__all__ = ["LABEL_MAX", "OTHER", "Bounded", "safe_label", "text_before_colon"]

V = TypeVar("V", bound=Hashable)

OTHER = "other"
"""The label of all values beyond the limit."""

LABEL_MAX = 100
"""How many values a label may have. A service has that many tasks; its users have more."""

_LENGTH_MAX = 100


class Bounded(Generic[V]):
    """Passes the first `most` different values, and replaces all later ones."""

    def __init__(self, other: V, most: int = LABEL_MAX) -> None:
        self._other = other
        self._most = most
        self._values: set[V] = set()
        self._adding = threading.Lock()

    def __call__(self, value: V) -> V:
        if value in self._values or value == self._other:
            return value
        with self._adding:  # events come from several threads
            if len(self._values) < self._most:
                self._values.add(value)
            return value if value in self._values else self._other


def text_before_colon(name: str) -> str:
    """Return the kind of a lock: "invoice" for "invoice:42". What follows may be an id."""
    return name.partition(":")[0]


def safe_label(make: Callable[[str], str], name: str) -> str:
    """Return what a function of the user makes of a lock name; OTHER if it raises."""
    try:
        return str(make(name))[:_LENGTH_MAX]
    except Exception:  # noqa: BLE001 - a metric is not worth an error in the caller's code
        return OTHER
