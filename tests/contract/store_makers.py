"""Finds the function that creates a store object; a child process can import it quickly."""

from collections.abc import Callable
from importlib import import_module
from typing import TypeAlias

from tenure.stores.connect import connect
from tenure.stores.contract import Store

__all__ = ["MakeStore", "maker"]

MakeStore: TypeAlias = Callable[..., Store]


def maker(named: str | None) -> MakeStore:
    """Return MODULE:CLASS, or `connect` without a name. Raises ImportError if it is not there."""
    if not named:
        return connect
    module, _, name = named.partition(":")
    if not name:
        raise ImportError(f"{named!r} names no class; write MODULE:CLASS")
    make: MakeStore | None = getattr(import_module(module), name, None)
    if make is None:
        raise ImportError(f"{module} has no {name}")
    return make
