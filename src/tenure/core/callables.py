"""Checks of functions before they are called."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from tenure.errors import ConfigError

__all__ = ["check_function", "check_hook", "check_middleware", "is_async"]


def is_async(function: Callable[..., Any]) -> bool:
    """Return whether a call returns a coroutine; an object may have an async `__call__`."""
    by_call = getattr(type(function), "__call__", None)  # noqa: B004 - the method itself is needed
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(by_call)


def check_function(fn: object) -> None:
    """Raise ConfigError if `fn` is not callable, such as the result of a call."""
    if not callable(fn):
        msg = f"fn must be a function, not {fn!r}. Pass the function itself, do not call it."
        raise ConfigError(msg)


def check_hook(hook: object, decorator: str) -> None:
    """Raise ConfigError for what cannot be called without `await`."""
    if not callable(hook):
        msg = f"{decorator} takes a function, not {hook!r}."
        raise ConfigError(msg)
    if is_async(hook) or inspect.isasyncgenfunction(hook) or inspect.isgeneratorfunction(hook):
        msg = f"{decorator} takes a plain function that returns: nothing would run {_name(hook)}."
        raise ConfigError(msg)


def check_middleware(make: object, decorator: str) -> None:
    """Raise ConfigError for what cannot return a context manager."""
    if not callable(make):
        msg = f"{decorator} takes a function that returns a context manager, not {make!r}."
        raise ConfigError(msg)
    if is_async(make) or inspect.isasyncgenfunction(make):
        msg = f"{decorator} needs a context manager: put @asynccontextmanager above {_name(make)}."
        raise ConfigError(msg)
    if inspect.isgeneratorfunction(make):
        msg = f"{decorator} needs a context manager: put @contextmanager above {_name(make)}."
        raise ConfigError(msg)


def _name(fn: object) -> str:
    return repr(getattr(fn, "__qualname__", fn))
