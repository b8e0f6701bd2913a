"""Finds the function that a child process imports for a task, or explains why it cannot."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any, Protocol

from tenure.errors import ConfigError

__all__ = ["check_processes", "function_at", "place_of"]


class _Runnable(Protocol):
    """The attributes of a handler that this module needs."""

    @property
    def name(self) -> str: ...
    @property
    def function(self) -> Callable[..., Any]: ...
    @property
    def executor(self) -> str: ...


def check_processes(handlers: Iterable[_Runnable]) -> None:
    """Raise ConfigError if a child process cannot import the function of one of these handlers."""
    for handler in handlers:
        if handler.executor == "process":
            place_of(handler.function, handler.name)


def place_of(function: Callable[..., Any], task: str) -> tuple[str, str]:
    """Return the module and the name under which a child process imports this function."""
    module, qualname = function.__module__, function.__qualname__
    if os.name != "posix":
        msg = f"task {task!r} has executor='process', which needs Linux, macOS or another Unix."
        raise ConfigError(msg)
    if module == "__main__":
        msg = (
            f"task {task!r} has executor='process' and is declared in the program that was "
            "started (__main__), from which a child process cannot import it. Move it into a "
            "module and import that. Only a worker needs this; enqueueing works anyway."
        )
        raise ConfigError(msg)
    try:
        importable = function_at(module, qualname)
    except (ImportError, AttributeError, ValueError):
        importable = None
    if importable is not function:
        msg = (
            f"task {task!r} has executor='process', but {module}.{qualname} is not its function: "
            "a child process would import something else, or fail. Give the function a name "
            "of its own at the top of its module, and let app.task be its outermost decorator."
        )
        raise ConfigError(msg)
    return module, qualname


def function_at(module: str, qualname: str) -> Any:
    """Return the function of that name. If a decorator has made it a task, return its function."""
    target: Any = import_module(module)
    for name in qualname.split("."):
        target = getattr(target, name)
    return getattr(getattr(target, "_handler", None), "function", target)
