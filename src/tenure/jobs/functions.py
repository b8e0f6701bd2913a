"""Which functions can be tasks or timers, and what a worker needs to run one."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any

from tenure.core.callables import check_function, is_async
from tenure.core.durations import Duration, seconds
from tenure.core.jobs.retry_policy import Backoff, RetryOption, parse_retry
from tenure.core.lease_policy import TTL_MAX
from tenure.core.leases import check_name
from tenure.core.values.signature import Signature
from tenure.errors import ConfigError
from tenure.runtime.attempts.handler import EXECUTORS, Executor, Handler

__all__ = ["check_declarable", "is_declared_again", "make_handler"]


def check_declarable(fn: Any, decorator: str) -> None:
    """Raise ConfigError for what has no work of its own to do when it is called alone."""
    name: str = getattr(fn, "__qualname__", "") or getattr(fn, "__name__", repr(fn))
    if isinstance(fn, staticmethod | classmethod):
        kind = type(fn).__name__
        msg = f"{decorator} stands above @{kind}. Declare a function at the top of the module" + (
            f", or put @{kind} above {decorator}." if kind == "staticmethod" else "."
        )
        raise ConfigError(msg)
    check_function(fn)
    if isinstance(fn, type):
        msg = f"{decorator} takes a function, not the class {name!r}."
        raise ConfigError(msg)
    if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        msg = (
            f"{name!r} is a generator: nothing in it would run. Return a list instead of yielding."
        )
        raise ConfigError(msg)
    if _is_method(fn, name):
        short, own = name.rpartition(".")[2], name.rpartition(".")[0].rpartition(".")[2]
        msg = (
            f"{decorator} stands above the method {name!r}, which needs an object to be called on. "
            "Declare a function at the top of the module; or make the object first and declare its "
            f"bound method: {decorator.lstrip('@')}({own}(...).{short})."
        )
        raise ConfigError(msg)


def _is_method(fn: Any, name: str) -> bool:
    """Whether this is a function in the body of a class, as its decorators see it."""
    place = name.rpartition(".")[0]
    if inspect.ismethod(fn) or not place or place.endswith("<locals>"):
        return False
    try:
        first = next(iter(inspect.signature(fn).parameters), "")
    except (TypeError, ValueError):
        return False
    return first in ("self", "cls")


def is_declared_again(former: Any, fn: Any) -> bool:
    """Whether a notebook or a console has run the same declaration once more."""
    is_interactive = hasattr(sys, "ps1") or bool(sys.flags.interactive)
    return is_interactive and _place_of(former) == _place_of(fn) is not None


def _place_of(fn: Any) -> tuple[str, str] | None:
    module, name = getattr(fn, "__module__", None), getattr(fn, "__qualname__", None)
    return None if module is None or name is None else (module, name)


def make_handler(
    fn: Callable[..., Any],
    name: str | None,
    retry: RetryOption,
    executor: Executor = "auto",
    expected: Duration | None = None,
) -> Handler:
    """Return what a worker needs to run `fn`; raise ConfigError if it cannot be a task."""
    check_declarable(fn, "@app.task")
    name = check_name(getattr(fn, "__name__", None) if name is None else name, "task name")
    if name == "<lambda>":
        msg = "a lambda has no name that stays the same; give name=."
        raise ConfigError(msg)
    _check_executor(executor, fn, name)
    usual = None
    if expected is not None:
        usual = seconds(expected, "expected", minimum=0.001, maximum=TTL_MAX)
    return Handler(
        name=name,
        function=fn,
        is_async=is_async(fn),
        signature=_signature(fn, name),
        retry=parse_retry(retry, Backoff()),
        executor=executor,
        expected=usual,
    )


def _check_executor(executor: object, fn: Callable[..., Any], name: str) -> None:
    """Raise ConfigError for what cannot run there; a worker looks once more before it starts."""
    if executor not in EXECUTORS:
        msg = f"executor of task {name!r} must be 'auto', 'thread' or 'process', not {executor!r}."
        raise ConfigError(msg)
    if executor != "auto" and is_async(fn):
        msg = (
            f"task {name!r} is an async function, which runs on the worker's event loop; "
            f"executor={executor!r} is for plain ones. Declare it with 'def', or leave that out."
        )
        raise ConfigError(msg)
    qualname = getattr(fn, "__qualname__", "<nothing>")
    if executor == "process" and ("<" in qualname or inspect.ismethod(fn)):
        msg = (
            f"task {name!r} has executor='process': a child process imports it by its name, so it "
            f"must be a function at the top of a module, not {fn!r}."
        )
        raise ConfigError(msg)


def _signature(fn: Callable[..., Any], name: str) -> Signature:
    try:
        return Signature(fn, name)
    except ConfigError:
        raise
    except (TypeError, ValueError) as error:
        msg = f"a task must be a function or a method with a signature, not {fn!r}."
        raise ConfigError(msg) from error
