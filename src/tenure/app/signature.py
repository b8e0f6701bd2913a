"""Completes methods that take their options as `**options: Unpack[...]`.

At run time such a method would accept any name, know no defaults, and show neither in `help`. The
facades `tenure.Tenure` and `tenure.blocking.Tenure` put these decorators on their methods.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from difflib import get_close_matches
from functools import wraps
from typing import Any, ParamSpec, TypeVar, cast

from tenure.errors import ConfigError

__all__ = ["declares", "takes"]

F = TypeVar("F", bound=Callable[..., Any])
P = ParamSpec("P")
R = TypeVar("R")


def takes(defaults: Any, *options: type[Any]) -> Callable[[F], F]:
    """Complete a method that takes `**options: Unpack[...]`, of the last one of these types.

    It gets every option, with its default where the caller left it out. A name that is not an
    option raises TypeError. `help` and `inspect.signature` show the options; the docstring gets
    the meanings that all the types document.
    """

    def complete(method: F) -> F:
        signature = inspect.signature(method)
        parameters = [
            *(item for item in signature.parameters.values() if item.kind is not item.VAR_KEYWORD),
            *_parameters(options[-1], defaults),
        ]
        names = frozenset(parameter.name for parameter in parameters)

        @wraps(method)
        def call(*args: Any, **arguments: Any) -> Any:
            if not arguments.keys() <= names:
                raise TypeError(_unexpected(method, arguments, names))
            return method(*args, **{**defaults, **arguments})

        @wraps(method)
        async def call_async(*args: Any, **arguments: Any) -> Any:
            return await call(*args, **arguments)

        completed: Any = call_async if inspect.iscoroutinefunction(method) else call
        completed.__signature__ = signature.replace(parameters=parameters)
        completed.__doc__ = _with_meanings(method, options)
        return cast("F", completed)

    return complete


def declares(method: Callable[P, R]) -> Callable[P, R]:
    """Raise ConfigError instead of TypeError for wrong arguments of a declaration, with advice.

    For `Tenure.timer` and `Tenure.schedule`: many of their users write what another library takes.
    """
    signature = inspect.signature(method)
    names = [item.name for item in signature.parameters.values() if item.kind is item.KEYWORD_ONLY]

    @wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            signature.bind(*args, **kwargs)
        except TypeError as error:
            from tenure.timers.advice import advice_on  # noqa: PLC0415 - locks do without timers

            advice = advice_on(method.__name__, names, args[1:], kwargs, error)
            raise ConfigError(advice) from None
        return method(*args, **kwargs)

    return call


def _parameters(options: type[Any], defaults: Mapping[str, object]) -> list[inspect.Parameter]:
    annotations = {
        name: getattr(kind, "__forward_arg__", kind)
        for name, kind in options.__annotations__.items()
    }
    return [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotations[name]
        )
        for name, default in defaults.items()
    ]


def _unexpected(
    method: Callable[..., Any], arguments: Mapping[str, object], names: Collection[str]
) -> str:
    name = next(name for name in arguments if name not in names)
    close = get_close_matches(name, names, n=1)
    advice = f" Did you mean {close[0]!r}?" if close else ""
    return f"{method.__qualname__}() got an unexpected keyword argument {name!r}.{advice}"


def _with_meanings(method: Callable[..., Any], options: Sequence[type[Any]]) -> str:
    """Return the docstring of a method, with what its options mean."""
    docs = [inspect.cleandoc(kind.__doc__ or "") for kind in options]
    meanings = "\n".join(doc.partition("Options:\n")[2] for doc in docs)
    return f"{inspect.cleandoc(method.__doc__ or '')}\n\nOptions:\n{meanings}"
