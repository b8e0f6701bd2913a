"""Checks of functions before they are called."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from tenure.errors import ConfigError

__all__ = ["check_function", "is_async"]


def is_async(function: Callable[..., Any]) -> bool:
    """Return whether a call returns a coroutine; an object may have an async `__call__`."""
    by_call = getattr(type(function), "__call__", None)  # noqa: B004 - the method itself is needed
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(by_call)


def check_function(fn: object) -> None:
    """Raise ConfigError if `fn` is not callable, such as the result of a call."""
    if not callable(fn):
        msg = f"fn must be a function, not {fn!r}. Pass the function itself, do not call it."
        raise ConfigError(msg)
