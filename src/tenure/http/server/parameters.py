"""Maps the parameters of a handler to parts of a request, and requests to the payload of a job.

The payload contains the body byte for byte. Encoding a parsed model again could lose data: Pydantic
writes a secret as asterisks. The worker decodes the payload by the types of the handler.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
import re
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping
from decimal import Decimal
from enum import Enum
from functools import cached_property, wraps
from typing import Any, Final, Literal, TypeAlias, get_args, get_origin

import msgspec
from msgspec import Struct

from tenure.core.callables import is_async
from tenure.core.values.depth import DEPTH_MAX, is_too_deep
from tenure.core.values.json import encode
from tenure.errors import ConfigError
from tenure.http.problems import Problem, problems_of_frameworks
from tenure.http.request import Headers, Owner
from tenure.runtime.attempts.job_context import JobContext, current_job

__all__ = ["Parameter", "Parameters", "Source", "check_json", "path_form"]

Source: TypeAlias = Literal["body", "path", "query", "headers", "owner", "job"]

_IN_PATH = re.compile(r"{(\w+)(?::\w+)?}")
_NOTHING: Final = inspect.Parameter.empty
# FastAPI's markers for data that a job can store. Others, such as Depends, need the request.
_MARKED: Final[Mapping[str, Source]] = {"Query": "query", "Path": "path", "Body": "body"}


_SEVERAL: Final = (list, set, tuple, frozenset)


class Parameter(Struct, frozen=True, kw_only=True):
    """One parameter of a handler."""

    name: str
    source: Source
    kind: Any
    default: Any = _NOTHING
    makes: Callable[[], Any] | None = None
    """Returns the default that a FastAPI marker declares; None: the function's own default counts.
    """
    alias: str
    """Its name in the request."""
    declared: inspect.Parameter
    """The parameter in the handler's signature."""
    mark: Any = None
    """FastAPI's marker, such as `Query(...)`."""

    @property
    def is_list(self) -> bool:
        return any(get_origin(member) in _SEVERAL for member in _members(self.kind))


class Parameters:
    """The parameters of a handler."""

    def __init__(self, fn: Callable[..., Any], path: str, what: str) -> None:
        self._what = what
        hints = _hints(fn, what)
        in_path = set(_IN_PATH.findall(path))
        signature = inspect.signature(fn)
        self.all = tuple(
            _parameter(parameter, hints.get(parameter.name, str), in_path, what)
            for parameter in signature.parameters.values()
        )
        self.returns = hints.get("return", Any)
        self._check(in_path)
        self.body = next(iter(self.of("body")), None)

    def _check(self, in_path: set[str]) -> None:
        for source in ("body", "headers", "owner", "job"):
            names = [parameter.name for parameter in self.all if parameter.source == source]
            if len(names) > 1:
                msg = (
                    f"{self._what} has two parameters for its {source}: {' and '.join(names)}. "
                    "Use one parameter; for a body with several parts, use a model."
                )
                raise ConfigError(msg)
        missing = in_path - {parameter.name for parameter in self.all if parameter.source == "path"}
        if missing:
            msg = f"{self._what} has no parameter for {{{min(missing)}}} of its path."
            raise ConfigError(msg)

    def of(self, *sources: Source) -> tuple[Parameter, ...]:
        return tuple(parameter for parameter in self.all if parameter.source in sources)

    def bare(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function of the task: it calls the handler, and takes plain values only.

        It fills in the `JobContext`, which is no argument of the job.
        """
        run = (self._filling_in_async if is_async(fn) else self._filling_in)(fn)
        # Function types do not declare the attributes that `wraps` sets and `inspect` reads.
        del run.__wrapped__  # type: ignore[attr-defined]
        run.__signature__ = self._signature  # type: ignore[attr-defined]
        parameters = [parameter for parameter in self.all if parameter.source != "job"]
        run.__annotations__ = {parameter.name: _kept(parameter) for parameter in parameters} | {
            "return": self.returns
        }
        return run

    @cached_property
    def _signature(self) -> inspect.Signature:
        parameters = [
            inspect.Parameter(parameter.name, parameter.declared.kind, default=parameter.default)
            for parameter in self.all
            if parameter.source != "job"
        ]
        try:
            return inspect.Signature(parameters)
        except ValueError:  # FastAPI allows a default before a parameter without one
            by_name = inspect.Parameter.KEYWORD_ONLY
            return inspect.Signature([parameter.replace(kind=by_name) for parameter in parameters])

    def _filling_in(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(fn)
        def run(*args: Any, **kwargs: Any) -> Any:
            with problems_of_frameworks():
                return fn(**self._filled(args, kwargs))

        return run

    def _filling_in_async(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(fn)
        async def run(*args: Any, **kwargs: Any) -> Any:
            with problems_of_frameworks():
                return await fn(**self._filled(args, kwargs))

        return run

    def _filled(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return all arguments by name. A test that calls the handler may pass the job as well."""
        jobs = {parameter.name: kwargs.pop(parameter.name, None) for parameter in self.of("job")}
        arguments = dict(self._signature.bind(*args, **kwargs).arguments)
        for parameter in self.all:
            if parameter.source == "job":
                arguments[parameter.name] = jobs[parameter.name] or current_job()
            elif parameter.source == "headers":
                arguments[parameter.name] = Headers(arguments.get(parameter.name, {}))
            elif parameter.source == "owner":
                arguments[parameter.name] = Owner(arguments[parameter.name])
            elif parameter.makes is not None and parameter.name not in arguments:
                arguments[parameter.name] = parameter.makes()
        return arguments

    def read(self, path: Mapping[str, str], query: Callable[[str], list[str]]) -> dict[str, Any]:
        """Return the path and query values converted to their types. Raises a Problem.

        `query` returns all values of a query parameter.
        """
        values: dict[str, Any] = {}
        errors = []
        for parameter in self.of("path", "query"):
            texts = [path[parameter.name]] if parameter.source == "path" else query(parameter.alias)
            if not texts:
                if parameter.default is _NOTHING:
                    errors.append({"parameter": parameter.alias, "detail": "it is missing"})
                continue
            try:
                text: Any = texts if parameter.is_list else texts[-1]
                values[parameter.name] = msgspec.convert(text, parameter.kind, strict=False)
            except (msgspec.ValidationError, ValueError) as error:
                errors.append({"parameter": parameter.alias, "detail": str(error)})
        if errors:
            raise Problem.of("invalid-request", errors=errors)
        return values

    def payload(
        self, values: Mapping[str, Any], body: bytes, headers: Mapping[str, str], owner: str
    ) -> bytes:
        """Return the payload of a job: the converted values, and the body as it was sent."""
        self._check_numbers(values)
        arguments: dict[str, Any] = dict(values)
        if self.body is not None and body:
            arguments[self.body.name] = msgspec.Raw(body)
        for parameter in self.of("headers"):
            arguments[parameter.name] = dict(headers)
        for parameter in self.of("owner"):
            arguments[parameter.name] = owner
        return encode(arguments)

    def _check_numbers(self, values: Mapping[str, Any]) -> None:
        """Raise a Problem for "inf" and "nan" in the URL, which JSON cannot encode."""
        errors = [
            {"parameter": parameter.alias, "detail": "it must be a finite number"}
            for parameter in self.of("path", "query")
            if not all(map(_is_finite, _each(values.get(parameter.name))))
        ]
        if errors:
            raise Problem.of("invalid-request", errors=errors)


def _each(value: Any) -> Iterable[Any]:
    return value if isinstance(value, _SEVERAL) else (value,)


def _is_finite(value: Any) -> bool:
    return not isinstance(value, float | Decimal) or math.isfinite(value)


def path_form(path: str) -> str:
    """Return a regular expression for a path, the same whatever its parameters are called."""
    form = re.sub(r"{\w+:path}", ".*", path)
    return re.sub(r"{\w+(:\w+)?}", "[^/]+", form)


def check_json(body: bytes) -> Any:
    """Decode a body. Raises a Problem if it is not JSON or is nested too deeply."""
    if is_too_deep(body):
        detail = f"Its lists and objects are nested more than {DEPTH_MAX} levels deep."
        raise Problem.of("malformed-request", detail)
    try:
        return msgspec.json.decode(body)
    except (ValueError, RecursionError) as error:
        raise Problem.of("malformed-request", f"The body is not JSON: {error}") from None


def _parameter(parameter: inspect.Parameter, kind: Any, in_path: set[str], what: str) -> Parameter:
    if parameter.kind in (
        parameter.VAR_POSITIONAL,
        parameter.VAR_KEYWORD,
        parameter.POSITIONAL_ONLY,
    ):
        msg = (
            f"{what} has the parameter {parameter}, which a request cannot pass by name. Use plain "
            "named parameters."
        )
        raise ConfigError(msg)
    mark = _mark_of(parameter, kind)
    is_marked = mark is not None and parameter.default in (mark, _NOTHING)
    makes = _maker(mark) if is_marked else None
    source = _source(parameter, kind, mark, in_path, what)
    if source in ("path", "query"):
        _check_word(parameter, kind, what)
    return Parameter(
        name=parameter.name,
        source=source,
        kind=kind,
        # Only its presence counts. `_filled` calls `makes` when the function runs.
        default=parameter.default if not is_marked else _NOTHING if makes is None else None,
        makes=makes,
        alias=getattr(mark, "alias", None) or parameter.name,
        declared=parameter,
        mark=mark,
    )


def _source(
    parameter: inspect.Parameter, kind: Any, mark: Any, in_path: set[str], what: str
) -> Source:
    plain = _plain(kind)
    if plain is JobContext:
        return "job"
    if plain is Headers:
        return "headers"
    if plain is Owner:
        return "owner"
    if getattr(plain, "__module__", "").startswith(("fastapi.", "starlette.")):
        # FastAPI would pass in its Request, Response or BackgroundTasks.
        raise _not_in_a_worker(parameter, plain.__name__, what)
    if mark is not None:
        return _source_of_mark(parameter, mark, what)
    if parameter.name in in_path:
        return "path"
    return "body" if any(map(_is_complex, _members(kind))) else "query"


def _source_of_mark(parameter: inspect.Parameter, mark: Any, what: str) -> Source:
    name = type(mark).__name__
    if name not in _MARKED or getattr(mark, "embed", None):
        raise _not_in_a_worker(parameter, f"{name}(...)", what)
    return _MARKED[name]


def _not_in_a_worker(parameter: inspect.Parameter, declared: str, what: str) -> ConfigError:
    return ConfigError(
        f"parameter {parameter.name!r} of {what} is declared with {declared}, but the handler runs "
        "later, in a worker, without the request. Put dependencies on the router, name "
        "headers to keep in headers=, and take the body as one model."
    )


def _mark_of(parameter: inspect.Parameter, kind: Any) -> Any:
    """Return FastAPI's marker in the annotation or the default, or None."""
    marks = [
        *(get_args(kind)[1:] if get_origin(kind) is typing.Annotated else ()),
        parameter.default,
    ]
    return next((mark for mark in marks if type(mark).__module__ == "fastapi.params"), None)


def _maker(mark: Any) -> Callable[[], Any] | None:
    """Return a function that returns the default in a marker; None if it has no default."""
    made: Callable[[], Any] | None = getattr(mark, "default_factory", None)
    default = getattr(mark, "default", ...)
    if made is not None or default is ... or type(default).__name__ == "PydanticUndefinedType":
        return made
    return lambda: default


def _check_word(parameter: inspect.Parameter, kind: Any, what: str) -> None:
    """Raise ConfigError for a type that cannot be decoded from text in the URL."""
    several = [member for member in _members(kind) if get_origin(member) in _SEVERAL]
    words = [word for member in several for word in get_args(member) if word is not ...]
    words += [member for member in _members(kind) if member not in several]
    for word in words:
        if any(_is_complex(member) or _is_unknown(member) for member in _members(word)):
            msg = (
                f"parameter {parameter.name!r} of {what} has the type "
                f"{getattr(word, '__name__', word)}, which cannot be read from the URL "
                "in a worker. Take it in the body, or as str."
            )
            raise ConfigError(msg)


def _is_unknown(kind: Any) -> bool:
    return isinstance(msgspec.inspect.type_info(kind), msgspec.inspect.CustomType)


def _kept(parameter: Parameter) -> Any:
    return {"headers": dict[str, str], "owner": str}.get(parameter.source, parameter.kind)


def _plain(kind: Any) -> Any:
    """Return a type without Annotated, NewType and alias."""
    while True:
        if get_origin(kind) is typing.Annotated:
            kind = get_args(kind)[0]
        elif (meant := getattr(kind, "__supertype__", None) or _value_of(kind)) is not None:
            kind = meant
        else:
            return kind


def _value_of(alias: Any) -> Any:
    """Return the type behind a `type` alias of Python 3.12; None for anything else."""
    return alias.__value__ if type(alias).__name__ == "TypeAliasType" else None


def _members(kind: Any) -> tuple[Any, ...]:
    """Return the members of a union; other types alone."""
    kind = _plain(kind)
    if get_origin(kind) in (typing.Union, types.UnionType):
        return tuple(member for part in get_args(kind) for member in _members(part))
    return (kind,)


def _is_complex(kind: Any) -> bool:
    """Return whether a value of this type comes in the body, and not as text in the URL."""
    kind = get_origin(kind) or kind
    if kind is Any or not isinstance(kind, type):
        return kind is Any
    if issubclass(kind, str | bytes | Enum):
        return False
    is_model = hasattr(kind, "model_validate") or hasattr(kind, "__attrs_attrs__")
    is_model = is_model or dataclasses.is_dataclass(kind) or typing.is_typeddict(kind)
    return is_model or issubclass(kind, Struct | Collection)


def _hints(fn: Callable[..., Any], what: str) -> dict[str, Any]:
    try:
        return typing.get_type_hints(fn, include_extras=True)
    except NameError as error:
        msg = (
            f"the annotations of {what} use a name that does not exist: {error}. "
            "Import it at the top of the module, not only under TYPE_CHECKING."
        )
        raise ConfigError(msg) from error
