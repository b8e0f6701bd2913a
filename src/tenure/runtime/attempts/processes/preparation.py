"""What child processes do before their jobs, so that they log like their worker.

A child is a new interpreter and has nothing of what the program around the worker has set up.
`tenure worker` names a function here, with which each child sets up the same logging. One for the
whole process, as logging is.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from msgspec import Struct

__all__ = ["Preparation", "preparation", "prepare_children"]

_chosen: list[Preparation] = []


class Preparation(Struct, frozen=True):
    """A function for child processes to call, by its name, and its arguments."""

    module: str
    name: str
    arguments: tuple[str | None, ...] = ()

    def call(self, *, is_imported: bool) -> None:
        """Call it. A child does so before it imports the module of a handler, and afterwards."""
        function: Any = getattr(import_module(self.module), self.name)
        function(*self.arguments, is_imported=is_imported)


def prepare_children(chosen: Preparation) -> None:
    """Have child processes call this function. Replaces an earlier one."""
    _chosen[:] = [chosen]


def preparation() -> Preparation | None:
    """Return what child processes are to call; None if nothing was set up."""
    return _chosen[0] if _chosen else None
