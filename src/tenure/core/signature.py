"""How the arguments and the result of a task are written down: by the types of its signature.

Arguments become one JSON object with a member per parameter, so that a newer version of the
function may add parameters with defaults, or change their order, and still read older jobs. They
are read back once when they are written, which is the cheapest way to find a wrong one before the
job is stored. Data never names code.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from hashlib import sha256
from typing import Any

import msgspec

from tenure.core.nesting import DEPTH_MAX, is_too_deep
from tenure.errors import ArgumentsError, ConfigError

__all__ = ["Signature", "decode_plain", "encode"]

_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class Signature:
    """What a function takes and gives, as far as it is written down."""

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        self._name = name
        self._signature = inspect.signature(function)
        types = _types(function, name)
        fields = [_field(one, types) for one in self._signature.parameters.values()]
        self._kinds = [(one.name, one.kind) for one in self._signature.parameters.values()]
        self._all_named = all(kind in _NAMED for _, kind in self._kinds)
        try:
            shape = msgspec.defstruct("Arguments", fields, forbid_unknown_fields=True, kw_only=True)
            self._arguments = msgspec.json.Decoder(shape, dec_hook=_from_plain)
            returns = types.get("return", Any)
            self._result = msgspec.json.Decoder(returns, dec_hook=_from_plain)
        except TypeError as error:
            msg = f"the signature of task {name!r} cannot be written down: {error}"
            raise ConfigError(msg) from error

    def encode_arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        """Return the arguments as bytes; raise ArgumentsError if they do not fit the signature."""
        try:
            given = self._signature.bind(*args, **kwargs).arguments
            payload = encode(given)
            self._arguments.decode(payload)
        except (TypeError, ValueError, RecursionError) as error:
            raise ArgumentsError(self._name, _what(error)) from error
        return payload

    def digest(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """Return what is the same for equal arguments, whatever the order of sets and dicts."""
        given = self._signature.bind(*args, **kwargs).arguments
        same = msgspec.json.encode(given, enc_hook=_to_plain, order="deterministic")
        return sha256(same).hexdigest()

    def decode_arguments(self, payload: bytes) -> tuple[list[Any], dict[str, Any]]:
        """Return the arguments to call the function with, defaults filled in."""
        try:
            given = self._arguments.decode(_shallow(payload))
        except (TypeError, ValueError, RecursionError) as error:
            raise ArgumentsError(self._name, _what(error)) from error
        values = [(name, kind, getattr(given, name)) for name, kind in self._kinds]
        if self._all_named:
            return [], {name: value for name, _, value in values if value is not msgspec.UNSET}
        return _arranged(values)

    def encode_result(self, result: Any) -> bytes:
        """Return a result as bytes; raise TypeError or ValueError if it is not as declared."""
        encoded = encode(result)
        try:
            self._result.decode(encoded)
        except ValueError as error:
            msg = f"the result is not what the task says it returns: {error}"
            raise TypeError(msg) from error
        return encoded

    def decode_result(self, result: bytes) -> Any:
        """Return what the function returned, as its annotation says."""
        return self._result.decode(_shallow(result))


def _arranged(values: list[tuple[str, Any, Any]]) -> tuple[list[Any], dict[str, Any]]:
    """Return arguments by position and by name, where some cannot be given by name."""
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for place, (name, kind, value) in enumerate(values):
        if value is msgspec.UNSET:
            continue
        if kind is inspect.Parameter.VAR_POSITIONAL:
            args += value
        elif kind is inspect.Parameter.VAR_KEYWORD:
            kwargs.update(value)
        elif kind is inspect.Parameter.KEYWORD_ONLY or len(args) < place:
            kwargs[name] = value
        else:
            args.append(value)
    return args, kwargs


def encode(value: Any) -> bytes:
    """Return a value as JSON; raise TypeError, ValueError or RecursionError if it has no form."""
    return _shallow(msgspec.json.encode(value, enc_hook=_to_plain))


def decode_plain(text: bytes) -> Any:
    """Return JSON as plain values, for what nobody knows the type of."""
    return msgspec.json.decode(_shallow(text))


def _shallow(text: bytes) -> bytes:
    """Return JSON as it is; raise ValueError if it is nested too deeply to be read everywhere."""
    if is_too_deep(text):
        msg = f"lists and objects in each other more than {DEPTH_MAX} deep"
        raise ValueError(msg)
    return text


def _field(parameter: inspect.Parameter, types: dict[str, Any]) -> tuple[str, Any, Any]:
    kind = types.get(parameter.name, Any)
    if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
        return parameter.name, list.__class_getitem__(kind), msgspec.field(default_factory=list)
    if parameter.kind is inspect.Parameter.VAR_KEYWORD:
        return (
            parameter.name,
            dict.__class_getitem__((str, kind)),
            msgspec.field(default_factory=dict),
        )
    if parameter.default is inspect.Parameter.empty:
        return parameter.name, kind, msgspec.NODEFAULT
    # Left out, it is the function's own business: its default may change with the next version.
    return parameter.name, kind, msgspec.UNSET


def _types(function: Callable[..., Any], name: str) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function, include_extras=True)
    except NameError as error:
        msg = (
            f"the annotations of task {name!r} name something that is not there: {error}. "
            "Import it at the top of the module, not only for type checkers."
        )
        raise ConfigError(msg) from error


def _to_plain(value: Any) -> Any:
    """Write down what msgspec does not know: models that can say it themselves."""
    dump = getattr(value, "model_dump", None)
    if dump is None:
        msg = f"a {type(value).__name__} has no JSON form"
        raise TypeError(msg)
    plain = dump(mode="json")
    if _from_plain(type(value), plain) != value:
        # Such as a secret, which Pydantic writes as asterisks: the job would get those.
        msg = f"a {type(value).__name__} is not the same after it was written down"
        raise TypeError(msg)
    return plain


def _from_plain(kind: type, value: Any) -> Any:
    validate = getattr(kind, "model_validate", None)
    if validate is None:
        msg = f"{kind.__name__} cannot be read from JSON; use a dataclass or a plain type"
        raise TypeError(msg)
    try:
        return validate(value)
    except ValueError as error:
        raise _without_values(error) from None


def _without_values(error: ValueError) -> ValueError:
    """Return what is wrong with a Pydantic model without quoting it: this goes to logs."""
    problems = getattr(error, "errors", None)
    if problems is None:
        return error
    found = problems(include_input=False, include_url=False, include_context=False)
    return ValueError("; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in found))


def _what(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "they contain themselves, or are nested too deeply"
    return str(error)
