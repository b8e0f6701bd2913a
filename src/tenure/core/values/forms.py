"""Chooses how the values of a type are serialized: by msgspec or by Pydantic.

msgspec handles plain types, dataclasses, TypedDicts, NamedTuples, enums and its own Structs. Types
with a Pydantic part go to `pydantic_forms`, which is imported only then. `form_of` picks the engine
when a task is declared, and raises UnusableType for a type that neither of them can serialize.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator
from typing import Any, Final, Protocol

import msgspec
from msgspec import Struct

from tenure.core.values.json import (
    encode_result,
    from_json,
    is_pydantic,
    is_readable,
    load_pydantic,
)
from tenure.core.values.leaf_checks import Check
from tenure.core.values.misfits import unquoted
from tenure.core.values.plain_checks import check_of
from tenure.core.values.written_result import Written

__all__ = ["Form", "UnusableType", "form_of"]

_NO_FORM: Final = (
    "Use plain types, dataclasses, TypedDicts, Pydantic models or msgspec Structs. Instead of an "
    "object that lives in this process, such as a connection, pass its id and load it in the task."
)
_UNION: Final = (
    "JSON cannot tell these types apart. Use Pydantic models (with Field(discriminator=...) if "
    "their fields are alike), msgspec Structs with tag=True, or one type with optional fields."
)


class UnusableType(TypeError):
    """A type that cannot be written as JSON and read back. The message says what to use."""


class Form(Protocol):
    """How the values of one type are written and read."""

    @property
    def kind(self) -> Any:
        """The type as msgspec decodes it inside of a larger document."""
        ...

    @property
    def is_plain(self) -> bool:
        """Whether msgspec does all of it: `write` and `read` return their argument."""
        ...

    @property
    def check(self) -> Check | None:
        """Compares an argument with its decoded form; None if nothing can be lost."""
        ...

    def write(self, value: Any) -> Any:
        """Return what msgspec is to encode for this value. `read` restores an equal value from it.

        Raises TypeError or ValueError if there is no such form.
        """
        ...

    def read(self, decoded: Any, *, by_name: bool) -> Any:
        """Return the value for what msgspec decoded as `kind`. Raises Misfit.

        With `by_name`, models read fields by their names as well as by their aliases.
        """
        ...

    def write_result(self, value: Any) -> Written:
        """Return a result as FastAPI would send it. Never raises."""
        ...

    def comparable(self, value: Any) -> Any:
        """Return a form that msgspec encodes to the same bytes for equal values."""
        ...


def form_of(kind: Any) -> Form:
    """Return the form of a type. Raises UnusableType if it has none."""
    if has_pydantic(kind, set()):
        form: Form | None = load_pydantic().form_of(kind)
        if form is not None:
            return form
    return _PlainForm(kind)


class _PlainForm:
    """Types that msgspec knows, alone or with the hooks of `json`."""

    is_plain = True

    def __init__(self, kind: Any) -> None:
        self.kind = Any if kind in (typing.NoReturn, typing.Never) else kind
        try:
            self._decoder = msgspec.json.Decoder(self.kind, dec_hook=from_json)
            info = msgspec.inspect.type_info(self.kind)
            _check_known(info, set())
            self.check = check_of(info)
        except UnusableType:
            raise
        except TypeError as error:
            advice = _UNION if "union" in str(error).lower() else _NO_FORM
            raise UnusableType(f"{error}. {advice}") from error

    def write(self, value: Any) -> Any:
        return value

    def read(self, decoded: Any, *, by_name: bool) -> Any:  # noqa: ARG002 - it has no aliases
        return decoded

    def write_result(self, value: Any) -> Written:
        try:
            sent = encode_result(value)
        except Exception as error:  # noqa: BLE001 - a value may do anything while it is written
            return Written(problem=_reason(error))
        try:
            self._decoder.decode(sent)
        except Exception as error:  # noqa: BLE001 - as above
            return Written(sent, problem=f"it does not fit the return type: {_reason(error)}")
        return Written(sent)

    def comparable(self, value: Any) -> Any:
        return value


def _check_known(info: msgspec.inspect.Type, seen: set[int]) -> None:
    """Raise UnusableType if a part of this type is a class that cannot be decoded."""
    if id(info) in seen:
        return
    seen.add(id(info))
    if isinstance(info, msgspec.inspect.CustomType) and not is_readable(info.cls):
        name = getattr(info.cls, "__qualname__", info.cls)
        msg = f"values of type {name!r} cannot be written as JSON and read back. {_NO_FORM}"
        raise UnusableType(msg)
    for part in _parts(info):
        _check_known(part, seen)


def _parts(info: Any) -> Iterator[msgspec.inspect.Type]:
    """Yield the types that a type consists of, as `msgspec.inspect` describes it."""
    for name in info.__struct_fields__:
        part = getattr(info, name)
        for item in part if isinstance(part, tuple) else (part,):
            if isinstance(item, msgspec.inspect.Type):
                yield item
            elif isinstance(item, msgspec.inspect.Field):
                yield item.type


def _reason(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "it contains itself, or is nested too deeply"
    return unquoted(str(error)) or type(error).__name__


# Detecting types for Pydantic.


def has_pydantic(kind: Any, seen: set[int]) -> bool:
    """Return whether a part of a type is for Pydantic. Structs always belong to msgspec."""
    if id(kind) in seen or (isinstance(kind, type) and issubclass(kind, Struct)):
        return False
    seen.add(id(kind))
    if is_pydantic(kind):
        return True
    parts: list[Any] = [*typing.get_args(kind), typing.get_origin(kind)]
    if typing.get_origin(kind) is typing.Annotated:
        kind, *annotations = typing.get_args(kind)
        if any(_is_said_to_pydantic(annotation) for annotation in annotations):
            return True
        parts = [kind]
    parts += [getattr(kind, "__supertype__", None), getattr(kind, "__value__", None)]
    if dataclasses.is_dataclass(kind) or typing.is_typeddict(kind) or _is_named_tuple(kind):
        parts += _hints(kind)
    return any(has_pydantic(part, seen) for part in parts if part is not None)


def _is_said_to_pydantic(annotation: object) -> bool:
    return any(base.__module__.split(".")[0] == "pydantic" for base in type(annotation).__mro__)


def _is_named_tuple(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields")


def _hints(kind: Any) -> list[Any]:
    try:
        return list(typing.get_type_hints(kind, include_extras=True).values())
    except (NameError, TypeError):  # msgspec reports these with a better message
        return []
