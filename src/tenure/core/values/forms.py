"""How values of users become JSON and come back, by the type that an annotation names.

Two engines do the work. msgspec handles plain types, dataclasses, TypedDicts, NamedTuples, enums
and its own Structs. Types that contain a part of Pydantic go to `pydantic_values`, which is
imported only then. `form_of` picks the engine when a task is declared, and refuses a type that
neither of them can write.
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

__all__ = ["Form", "UnusableType", "Written", "form_of"]

_NO_FORM: Final = (
    "Use plain types, dataclasses, TypedDicts, Pydantic models or msgspec Structs. Instead of an "
    "object that lives in this process, such as a connection, pass its id and load it in the task."
)
_UNION: Final = (
    "JSON cannot tell these types apart. Use Pydantic models (with Field(discriminator=...) if "
    "their fields are alike), msgspec Structs with tag=True, or one type with optional fields."
)


class UnusableType(TypeError):
    """A type that cannot be written as JSON and read back; the message says what to use."""


class Written(Struct, frozen=True):
    """A result in JSON."""

    sent: bytes = b""
    """What HTTP clients and tools see; empty if it has no JSON form."""
    exact: bytes = b""
    """What its type reads, where that is something else than `sent`."""
    problem: str = ""
    """Why callers cannot have it."""

    @property
    def size(self) -> int:
        return len(self.sent) + len(self.exact)


class Form(Protocol):
    """How values of one type are written and read."""

    @property
    def kind(self) -> Any:
        """The type as msgspec decodes it inside of a larger document."""
        ...

    @property
    def is_plain(self) -> bool:
        """Whether msgspec alone does it: `write` and `read` return what they are given."""
        ...

    @property
    def check(self) -> Check | None:
        """Compares an argument with what was read back; None if `write` has seen to that."""
        ...

    def write(self, value: Any) -> Any:
        """Return what msgspec encodes for this value, such that `read` gives the same again.

        Raises TypeError or ValueError if there is no such form.
        """
        ...

    def read(self, decoded: Any, *, by_name: bool) -> Any:
        """Return the value of what msgspec decoded as `kind`; raise Misfit.

        With `by_name`, fields of models are found by their names as well as by their aliases.
        """
        ...

    def write_result(self, value: Any) -> Written:
        """Return a result as FastAPI would send it. Raises nothing."""
        ...

    def comparable(self, value: Any) -> Any:
        """Return what msgspec encodes to the same bytes for equal values."""
        ...


def form_of(kind: Any) -> Form:
    """Return how values of this type are written; raise UnusableType if they cannot be."""
    if has_pydantic(kind, set()):
        form: Form | None = load_pydantic().form_of(kind)
        if form is not None:
            return form
    return _PlainForm(kind)


class _PlainForm:
    """What msgspec knows, and what its hooks add to that."""

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
            return Written(problem=_told(error))
        try:
            self._decoder.decode(sent)
        except Exception as error:  # noqa: BLE001 - as above
            return Written(sent, problem=f"it does not fit the return type: {_told(error)}")
        return Written(sent)

    def comparable(self, value: Any) -> Any:
        return value


def _check_known(info: msgspec.inspect.Type, seen: set[int]) -> None:
    """Raise UnusableType if a part of this type is a class that could never be read."""
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
        for one in part if isinstance(part, tuple) else (part,):
            if isinstance(one, msgspec.inspect.Type):
                yield one
            elif isinstance(one, msgspec.inspect.Field):
                yield one.type


def _told(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "it contains itself, or is nested too deeply"
    return unquoted(str(error)) or type(error).__name__


# Which types are for Pydantic.


def has_pydantic(kind: Any, seen: set[int]) -> bool:
    """Whether some part of a type is for Pydantic. A Struct is msgspec's, whatever is inside."""
    if id(kind) in seen or (isinstance(kind, type) and issubclass(kind, Struct)):
        return False
    seen.add(id(kind))
    if is_pydantic(kind):
        return True
    parts: list[Any] = [*typing.get_args(kind), typing.get_origin(kind)]
    if typing.get_origin(kind) is typing.Annotated:
        kind, *said = typing.get_args(kind)
        if any(_is_said_to_pydantic(one) for one in said):
            return True
        parts = [kind]
    parts += [getattr(kind, "__supertype__", None), getattr(kind, "__value__", None)]
    if dataclasses.is_dataclass(kind) or typing.is_typeddict(kind) or _is_named_tuple(kind):
        parts += _hints(kind)
    return any(has_pydantic(part, seen) for part in parts if part is not None)


def _is_said_to_pydantic(said: object) -> bool:
    return any(base.__module__.split(".")[0] == "pydantic" for base in type(said).__mro__)


def _is_named_tuple(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields")


def _hints(kind: Any) -> list[Any]:
    try:
        return list(typing.get_type_hints(kind, include_extras=True).values())
    except (NameError, TypeError):  # whoever reads the type says what is wrong with it
        return []
