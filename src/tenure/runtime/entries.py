"""Entries: what each `with` block on a shared context manager has for itself.

A lock is a description that tasks and threads share, and each of its blocks has a hold of its own.
Python tells `__enter__` and `__exit__` nothing but the shared object. The running task or thread
does not say which block ends: fixtures, exit stacks and FastAPI dependencies leave in another one.

A `with` statement and an exit stack look up both methods before they call the first. So both are
descriptors here, and the two look-ups get the same `Entry`. Only methods that are called by hand,
as in `lock.__enter__()`, have none in common; for them `EnteredByHand` goes by the owner.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeVar

from tenure.errors import ConfigError
from tenure.runtime.owners import Owner

__all__ = ["EnteredByHand", "Entry", "entry_methods"]

Held = TypeVar("Held")


class Entry(Generic[Held]):
    """One block. `hold` is what it was entered with."""

    def __init__(self) -> None:
        self.is_paired = False
        """Whether the method that leaves it knows it."""
        self.hold: Held | None = None


class _Pending(threading.local):
    """The last look-up of this thread, while its counterpart may follow.

    Only the method that was looked up keeps the entry alive: what `hasattr(lock, "__exit__")` has
    looked up and dropped must not become the counterpart of a later look-up.
    """

    shared: int = 0
    name: str = ""
    entry: weakref.ref[Entry[Any]] | None = None


_pending = _Pending()


class _EntryMethod:
    """A method that also gets the entry that it belongs to."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, shared: object | None, kind: type) -> Callable[..., Any]:
        entry = self._entry(id(kind if shared is None else shared))
        call = partial(self._call, entry)
        return call if shared is None else partial(call, shared)

    def _entry(self, shared: int) -> Entry[Any]:
        pending = _pending.entry() if _pending.entry is not None else None
        if pending is not None and _pending.shared == shared and _pending.name != self._name:
            _pending.entry, pending.is_paired = None, True
            return pending
        entry: Entry[Any] = Entry()
        # Python 3.14 looks up the method that leaves first, earlier ones the other.
        _pending.shared, _pending.name, _pending.entry = shared, self._name, weakref.ref(entry)
        return entry

    def _call(self, entry: Entry[Any], shared: object, *details: object) -> Any:
        if _pending.entry is not None and _pending.entry() is entry:
            _pending.entry = None  # called without its counterpart: by hand
        return getattr(shared, self._name)(entry, *details)


def entry_methods(enter: str, leave: str) -> tuple[Any, Any]:
    """Return `__enter__` and `__exit__` of a class whose objects are shared, or the async ones.

    They call its methods `enter(entry)` and `leave(entry, kind, error, trace)`.
    """
    return _EntryMethod(enter), _EntryMethod(leave)


class EnteredByHand(Generic[Held]):
    """Holds whose blocks are left by a separate call, found by what entered them."""

    def __init__(self) -> None:
        self._entered: list[tuple[weakref.ref[Owner], Held]] = []

    def add(self, owner: Owner, hold: Held) -> None:
        self._entered.append((weakref.ref(owner), hold))

    def take(self, owner: Owner, name: str) -> Held:
        """Return the hold that `owner` leaves: its own last one, the only abandoned, the only one.

        Raises ConfigError rather than take a hold from a task or thread that is inside.
        """
        own = [entry for entry in self._entered if entry[0]() is owner]
        abandoned = [entry for entry in self._entered if _is_over(entry[0]())]
        for entries in (own[-1:], abandoned, self._entered):
            if len(entries) == 1:
                [entry] = entries
                self._entered.remove(entry)
                return entry[1]
        msg = (
            f"cannot tell which hold of {name!r} to release: __exit__ was called directly, in "
            f"another task or thread than __enter__, and {len(self._entered)} such blocks are "
            "open. Use a 'with' statement, or call release() on the hold itself."
        )
        raise ConfigError(msg)


def _is_over(owner: Owner | None) -> bool:
    return owner is None or owner.done()
