"""Serializes the arguments and the result of a task, by the types in its signature.

Arguments become one JSON object with a member per parameter: a newer version of the function may
add parameters with defaults, or reorder them, and still read older jobs. `encode_arguments` decodes
once what it has encoded, so a wrong argument fails in the caller and not in the worker. Tasks use
this on both sides of a job.
"""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from typing import Any

import msgspec

from tenure.core.values.forms import Form, UnusableType, form_of
from tenure.core.values.json import encode, encode_comparable, from_json, shallow
from tenure.core.values.leaf_checks import anything
from tenure.core.values.misfits import Misfit, Problem, unquoted
from tenure.core.values.written_result import Written
from tenure.errors import ArgumentsError, ConfigError

__all__ = ["Signature"]

_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_NAMED_OR_PLACED = (*_NAMED, inspect.Parameter.POSITIONAL_ONLY)
_WHERE = re.compile(r"^(?P<message>.*?)(?: - at `\$(?P<where>[^`]*)`)?$", re.DOTALL)
_UNKNOWN_FIELD = "Object contains unknown field"
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]")


class Signature:
    """The parameters and the return type of a function, with their encoders and decoders."""

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        self._name = name
        self._signature = inspect.signature(function)
        types = _types(function, name)
        self._parameters = [
            _Parameter(parameter, _form(types.get(parameter.name, Any), name, parameter.name))
            for parameter in self._signature.parameters.values()
        ]
        self._names = [parameter.name for parameter in self._parameters]
        self._all_named = all(parameter.kind in _NAMED for parameter in self._parameters)
        # msgspec encodes and decodes all other parameters in one call.
        self._models = [parameter for parameter in self._parameters if not parameter.form.is_plain]
        # Most plain types lose nothing, so their values need no comparison.
        self._lossy = [parameter for parameter in self._parameters if parameter.form.check]
        fields = [parameter.field for parameter in self._parameters]
        shape = msgspec.defstruct("Arguments", fields, forbid_unknown_fields=True, kw_only=True)
        self._arguments = msgspec.json.Decoder(shape, dec_hook=from_json)
        self._result = _form(types.get("return", Any), name, "")
        self._results = msgspec.json.Decoder(self._result.kind, dec_hook=from_json)

    def encode_arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        """Return the arguments as bytes; raise ArgumentsError if they do not fit the signature."""
        try:
            values = self._written(args, kwargs, lambda form: form.write)
            payload = encode(values)
            decoded = self._arguments.decode(payload)
            if self._lossy:
                self._compare(values, decoded, payload)
        except Exception as error:
            raise self._misfit(error) from error
        return payload

    def _compare(self, values: dict[str, Any], decoded: Any, payload: bytes) -> None:
        """Raise Misfit if an argument does not survive the round trip through JSON."""
        has_null = b"null" in payload
        for lossy in self._lossy:
            # Untyped values lose nothing but NaN and infinity, which are written as null.
            if lossy.name in values and (has_null or lossy.form.check is not anything):
                lossy.compare(values[lossy.name], getattr(decoded, lossy.name))

    def digest(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """Return a hash that is equal for equal arguments, whatever order sets and dicts have."""
        parts = self._written(args, kwargs, lambda form: form.comparable)
        return sha256(encode_comparable(parts)).hexdigest()

    def _written(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        how: Callable[[Form], Callable[[Any], Any]],
    ) -> dict[str, Any]:
        values = self._signature.bind(*args, **kwargs).arguments
        for model in self._models:
            if model.name in values:
                values[model.name] = model.each(values[model.name], how(model.form))
        return values

    def decode_arguments(
        self, payload: bytes, *, by_name: bool = True
    ) -> tuple[list[Any], dict[str, Any]]:
        """Return the arguments to call the function with, defaults filled in.

        With `by_name`, fields of Pydantic models are also found by their names, not only by their
        aliases: a job may be older than an alias.
        """
        try:
            decoded = self._arguments.decode(shallow(payload))
            named = ((name, getattr(decoded, name)) for name in self._names)
            values = {name: value for name, value in named if value is not msgspec.UNSET}
            for model in self._models:
                if model.name in values:
                    read = partial(model.form.read, by_name=by_name)
                    values[model.name] = model.each(values[model.name], read)
        except Exception as error:  # noqa: BLE001 - a validator may raise anything
            # No cause: a worker logs the chain of causes, and those may quote a value.
            raise self._misfit(error) from None
        return ([], values) if self._all_named else _arranged(self._parameters, values)

    def encode_result(self, result: Any) -> Written:
        """Return a result in JSON, or why it has no JSON form. Never raises."""
        return self._result.write_result(result)

    def decode_result(self, result: bytes) -> Any:
        """Return the result as its annotation declares it. Raises ValueError."""
        return self._result.read(self._results.decode(shallow(result)), by_name=True)

    def _misfit(self, error: Exception) -> ArgumentsError:
        if isinstance(error, RecursionError):
            return ArgumentsError(self._name, "they contain themselves, or are nested too deeply")
        message = unquoted(str(error))
        if message == _UNKNOWN_FIELD:
            message = str(error)  # it quotes the name of an argument, which is no value
        if not isinstance(error, TypeError | ValueError):  # a validator of the user has failed
            message = f"{type(error).__name__}: {error}"
        problems = error.problems if isinstance(error, Misfit) else _problems(message)
        return ArgumentsError(self._name, message, problems)


class _Parameter:
    """One parameter of a function, and how its values are serialized."""

    def __init__(self, parameter: inspect.Parameter, form: Form) -> None:
        self.name = parameter.name
        self.kind = parameter.kind
        self.form = form
        self.field = self._field(parameter)

    def _field(self, parameter: inspect.Parameter) -> tuple[str, Any, Any]:
        kind = self.form.kind
        if self.kind is inspect.Parameter.VAR_POSITIONAL:
            return self.name, list.__class_getitem__(kind), msgspec.field(default_factory=list)
        if self.kind is inspect.Parameter.VAR_KEYWORD:
            named = dict.__class_getitem__((str, kind))
            return self.name, named, msgspec.field(default_factory=dict)
        if parameter.default is inspect.Parameter.empty:
            return self.name, kind, msgspec.NODEFAULT
        # A default is not stored: the next version of the function may change it.
        return self.name, kind, msgspec.UNSET

    def each(self, value: Any, do: Callable[[Any], Any]) -> Any:
        """Apply `do` to the value, or to each of the values of *args and **kwargs."""
        if self.kind is inspect.Parameter.VAR_POSITIONAL:
            return [_at(do, part, self.name, place) for place, part in enumerate(value)]
        if self.kind is inspect.Parameter.VAR_KEYWORD:
            return {name: _at(do, part, self.name, name) for name, part in value.items()}
        return _at(do, value, self.name)

    def compare(self, original: Any, decoded: Any) -> None:
        """Raise Misfit if the value does not survive the round trip through JSON."""
        check = self.form.check
        assert check is not None
        if self.kind in _NAMED_OR_PLACED:
            if (problem := check(original, decoded)) is not None:
                raise Misfit([problem]).below(self.name)
            return
        places = enumerate(original) if isinstance(original, tuple) else original.items()
        for place, part in places:
            if (problem := check(part, decoded[place])) is not None:
                raise Misfit([problem]).below(self.name, place)


def _at(do: Callable[[Any], Any], value: Any, *where: str | int) -> Any:
    try:
        return do(value)
    except Misfit as misfit:
        raise misfit.below(*where) from None


def _arranged(
    parameters: list[_Parameter], values: dict[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """Split the values into args and kwargs, for functions with positional-only parameters."""
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for place, parameter in enumerate(parameters):
        if parameter.name not in values:
            continue
        value = values[parameter.name]
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            args += value
        elif parameter.kind is inspect.Parameter.VAR_KEYWORD:
            kwargs.update(value)
        elif parameter.kind is inspect.Parameter.KEYWORD_ONLY or len(args) < place:
            kwargs[parameter.name] = value
        else:
            args.append(value)
    return args, kwargs


def _problems(text: str) -> tuple[Problem, ...]:
    """Return a message of msgspec as a problem, with its path as steps."""
    match = _WHERE.match(text)
    assert match is not None
    steps = _STEP.findall(match["where"] or "")
    path = tuple(name or (int(place) if place.isdigit() else place) for name, place in steps)
    return ((path, match["message"]),)


def _form(kind: Any, task: str, parameter: str) -> Form:
    try:
        return form_of(kind)
    except UnusableType as error:
        what = f"parameter {parameter!r}" if parameter else "the return type"
        msg = f"{what} of task {task!r} cannot be written down: {error}"
        raise ConfigError(msg) from error


def _types(function: Callable[..., Any], name: str) -> dict[str, Any]:
    is_routine = inspect.isroutine(function) and not isinstance(function, partial)
    if not is_routine and not hasattr(function, "__annotations__"):
        # From Python 3.14 on, get_type_hints returns {} here, and values would pass unchecked.
        msg = f"{function!r} has no annotations"
        raise TypeError(msg)
    try:
        return typing.get_type_hints(function, include_extras=True)
    except NameError as error:
        msg = (
            f"the annotations of task {name!r} use a name that does not exist: {error}. "
            "Import it at the top of the module, not only under TYPE_CHECKING."
        )
        raise ConfigError(msg) from error
