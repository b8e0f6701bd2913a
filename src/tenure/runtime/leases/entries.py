"""Gives each `with` block on a shared context manager state of its own.

A lock is a description that tasks and threads share, and each of its blocks has its own hold.
Python passes only the shared object to `__enter__` and `__exit__`. The running task or thread does
not identify the block: fixtures, exit stacks and FastAPI dependencies leave it in another one.

A `with` statement and an exit stack look up both methods, one right after the other, before they
call the first. So both are descriptors here, and the two look-ups return the same `Entry`. Methods
that are called by hand, as in `lock.__enter__()`, share no entry; `EnteredByHand` finds their holds
by the owner.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Generic, TypeVar

from tenure.errors import ConfigError
from tenure.runtime.leases.owners import Owner

__all__ = ["EnteredByHand", "Entry", "entry_methods"]

Held = TypeVar("Held")


class Entry(Generic[Held]):
    """One block, with the hold that it was entered with."""

    def __init__(self) -> None:
        self.is_paired = False
        """Whether a method that leaves the block refers to this entry."""
        self.hold: Held | None = None


class _Pending(threading.local):
    """The entry of a first look-up in this thread, for a second one that may follow.

    A weak reference: only the method that was looked up keeps the entry alive. A look-up that was
    dropped, as by `hasattr(lock, "__exit__")`, must not match a later one.
    """

    shared: int = 0
    entry: weakref.ref[Entry[Any]] | None = None


_pending = _Pending()


# `with` looks up `__exit__` second, and from Python 3.14 on first. Exit stacks look up both methods
# on the class, `__exit__` always second.
_WITH_LOOKS_UP_LEAVING_FIRST = sys.version_info >= (3, 14)


class _EntryMethod:
    """A method that gets the entry of its block as an argument."""

    def __init__(self, name: str, *, leaves: bool) -> None:
        self._name = name
        self._leaves = leaves

    def __get__(self, shared: object | None, kind: type) -> Callable[..., Any]:
        by_with = shared is not None
        is_second = self._leaves != (by_with and _WITH_LOOKS_UP_LEAVING_FIRST)
        entry = self._entry(id(shared if by_with else kind), is_second=is_second)
        call = partial(self._call, entry)
        return call if shared is None else partial(call, shared)

    def _entry(self, shared: int, *, is_second: bool) -> Entry[Any]:
        pending = _pending.entry() if _pending.entry is not None else None
        _pending.entry = None
        if is_second:
            if pending is None or _pending.shared != shared:
                return Entry()
            pending.is_paired = True
            return pending
        entry: Entry[Any] = Entry()
        _pending.shared, _pending.entry = shared, weakref.ref(entry)
        return entry

    def _call(self, entry: Entry[Any], shared: object, *details: object) -> Any:
        if _pending.entry is not None and _pending.entry() is entry:
            _pending.entry = None  # called by hand: no look-up of the counterpart
        return getattr(shared, self._name)(entry, *details)


def entry_methods(enter: str, leave: str) -> tuple[Any, Any]:
    """Return `__enter__` and `__exit__` of a class whose objects are shared, or the async ones.

    They call its methods `enter(entry)` and `leave(entry, kind, error, trace)`.
    """
    return _EntryMethod(enter, leaves=False), _EntryMethod(leave, leaves=True)


class EnteredByHand(Generic[Held]):
    """Holds whose blocks are entered and left by direct calls, by the owner that entered them."""

    def __init__(self) -> None:
        self._entered: list[tuple[weakref.ref[Owner], Held]] = []
        self._failed: weakref.WeakSet[Owner] = weakref.WeakSet()

    def fail(self, owner: Owner) -> None:
        """Record that `owner` failed to enter, so it has nothing to leave."""
        self._failed.add(owner)

    def add(self, owner: Owner, hold: Held) -> None:
        self._failed.discard(owner)
        self._entered.append((weakref.ref(owner), hold))

    def take(self, owner: Owner, name: str) -> Held:
        """Return the hold to leave: the owner's last, else the only abandoned one, else the only
        one.

        Raises ConfigError if several holds fit, or if `owner` has failed to enter its block.
        """
        has_failed = owner in self._failed
        self._failed.discard(owner)
        own = [entry for entry in self._entered if entry[0]() is owner]
        abandoned = [entry for entry in self._entered if _is_over(entry[0]())]
        others = [] if has_failed else [abandoned, self._entered]
        for entries in (own[-1:], *others):
            if len(entries) == 1:
                [entry] = entries
                with suppress(ValueError):  # another thread has left this block meanwhile
                    self._entered.remove(entry)
                    return entry[1]
        if has_failed:
            msg = (
                f"{name!r} was not entered: __enter__ has raised an error, so do not call __exit__."
            )
            raise ConfigError(msg)
        msg = (
            f"cannot tell which hold of {name!r} to release: __exit__ was called directly, in "
            f"another task or thread than __enter__, and {len(self._entered)} such blocks are "
            "open. Use a 'with' statement, or call release() on the hold itself."
        )
        raise ConfigError(msg)


def _is_over(owner: Owner | None) -> bool:
    return owner is None or owner.done()
