"""JSON of single values: what msgspec writes and reads, and hooks for what it does not know.

`encode` and `decode_plain` are for values whose type nobody has declared: checkpoints, bodies of
clients, parts of an untyped result. Types of signatures are the business of `values`, which uses
the same hooks. Data never names code.
"""

from __future__ import annotations

import dataclasses
import typing
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from ipaddress import (
    IPv4Address,
    IPv4Interface,
    IPv4Network,
    IPv6Address,
    IPv6Interface,
    IPv6Network,
)
from pathlib import PurePath
from typing import Any, Final
from uuid import UUID

import msgspec

from tenure.core.values.nesting import DEPTH_MAX, is_too_deep

__all__ = [
    "decode_plain",
    "encode",
    "encode_comparable",
    "encode_result",
    "from_json",
    "is_pydantic",
    "is_readable",
    "load_pydantic",
    "shallow",
]

_TEXTS: Final = (
    PurePath,
    IPv4Address,
    IPv4Interface,
    IPv4Network,
    IPv6Address,
    IPv6Interface,
    IPv6Network,
)
_JSON_TYPES: Final = (dict, list, str, int, float, bool, type(None))


def encode(value: Any) -> bytes:
    """Return a value as JSON that its type reads as the same.

    Raises TypeError, ValueError or RecursionError if it has no such form.
    """
    return _encoded(value, _argument_to_json)


def encode_result(value: Any) -> bytes:
    """Return a value as FastAPI would send it; raises as `encode` does."""
    return _encoded(value, _result_to_json)


def _encoded(value: Any, hook: Callable[[Any], Any]) -> bytes:
    try:
        if is_pydantic(type(value)):  # also a dataclass of Pydantic's, which msgspec would take
            value = hook(value)
        return shallow(msgspec.json.encode(value, enc_hook=hook))
    except _Formless as error:
        raise TypeError(error.told(value, hook)) from None


def encode_comparable(value: Any) -> bytes:
    """Return bytes that are the same for equal values, whatever the order of sets and dicts."""
    # Two steps, as keys that are not text can be sorted in the first one only.
    plain = msgspec.to_builtins(
        value, enc_hook=_comparable_to_json, str_keys=True, order="deterministic"
    )
    return msgspec.json.encode(plain)


def decode_plain(text: bytes) -> Any:
    """Return JSON as plain values, for what nobody knows the type of."""
    return msgspec.json.decode(shallow(text))


def shallow(text: bytes) -> bytes:
    """Return JSON as it is; raise ValueError if it is nested too deeply to be read everywhere."""
    if is_too_deep(text):
        msg = f"lists and objects in each other more than {DEPTH_MAX} deep"
        raise ValueError(msg)
    return text


# What msgspec asks about values that it does not know.


def _argument_to_json(value: Any) -> Any:
    """Write a value such that its type reads the same again."""
    if is_pydantic(type(value)):
        return load_pydantic().form_of_class(type(value)).write(value)
    return _to_json(value)


def _result_to_json(value: Any) -> Any:
    if is_pydantic(type(value)):
        return load_pydantic().form_of_class(type(value)).write_plainly(value)
    return _to_json(value)


def _comparable_to_json(value: Any) -> Any:
    if is_pydantic(type(value)):
        return load_pydantic().structure(value)
    return _to_json(value)


def _to_json(value: Any) -> Any:
    """Write what is a kind of something that JSON has, or can say itself what it is."""
    for kind, plain in _KINDS_OF:
        if isinstance(value, kind):
            return plain(value)
    if (dump := getattr(value, "model_dump", None)) is not None and not isinstance(value, type):
        return dump(mode="json")
    if isinstance(value, _TEXTS):
        return str(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence | AbstractSet | deque | typing.ValuesView):
        return list(value)
    raise _Formless(value)


_KINDS_OF: Final[tuple[tuple[type, Callable[[Any], Any]], ...]] = (
    (str, str.__str__),
    (int, int.__int__),
    (float, float.__float__),
    (bytes, bytes),
    (datetime, lambda value: datetime.combine(value.date(), value.timetz())),
    (date, lambda value: date(value.year, value.month, value.day)),
    (time, lambda value: time.fromisoformat(value.isoformat())),
    (timedelta, lambda value: timedelta(value.days, value.seconds, value.microseconds)),
    (Decimal, Decimal),
    (UUID, lambda value: UUID(int=value.int)),
)
"""Subclasses of what msgspec writes: it looks at the exact type only."""


def from_json(kind: Any, value: Any) -> Any:
    """Read a value of a class that msgspec does not know."""
    kind = typing.get_origin(kind) or kind
    if is_pydantic(kind):
        return load_pydantic().form_of_class(kind).read_plain(value)
    if (validate := getattr(kind, "model_validate", None)) is not None:
        return validate(value)
    if isinstance(value, kind):  # such as an Iterable, or any object
        return value
    if isinstance(value, str) and issubclass(kind, _TEXTS):
        with suppress(ValueError):  # which quotes the text
            return kind(value)
        msg = f"it is not a valid {kind.__name__}"
        raise ValueError(msg)
    msg = f"a {type(value).__name__} is not a {kind.__name__}"
    raise ValueError(msg)


def is_pydantic(kind: object) -> bool:
    """Whether Pydantic knows how to read this class: its models, secrets, URLs and the like."""
    return isinstance(kind, type) and (
        hasattr(kind, "__get_pydantic_core_schema__") or hasattr(kind, "__pydantic_validator__")
    )


def is_readable(kind: type) -> bool:
    """Whether `from_json` could read a value of this class."""
    is_model = hasattr(kind, "model_dump") and hasattr(kind, "model_validate")
    return (
        is_model
        or is_pydantic(kind)
        or issubclass(kind, _TEXTS)
        or any(issubclass(plain, kind) for plain in _JSON_TYPES)
    )


def load_pydantic() -> Any:
    """Return the module that writes and reads values of Pydantic's types."""
    from tenure.core.values import pydantic_forms  # noqa: PLC0415 - only for those who have Pydantic

    return pydantic_forms


# Which values have no form, and where.


class _Formless(TypeError):
    """Raised by the hooks, which do not know where the value is."""

    def __init__(self, culprit: Any) -> None:
        super().__init__()
        self._culprit = culprit

    def told(self, value: Any, hook: Callable[[Any], Any]) -> str:
        """Say which part of `value` it is."""
        name = type(self._culprit).__qualname__
        where = "".join(_where(value, self._culprit, hook))
        told = f"a value of type {name!r} has no JSON form: use plain values, dataclasses or models"
        return f"{told} - at `${where}`"


def _where(value: Any, culprit: Any, hook: Callable[[Any], Any]) -> Iterator[str]:
    """Yield the steps from a value to the part of it that cannot be written."""
    while value is not culprit:
        for step, part in _children(value):
            try:
                msgspec.json.encode(part, enc_hook=hook)
            except Exception:  # noqa: BLE001 - only where it is matters here
                yield step
                value = part
                break
        else:
            return


def _children(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for name, part in value.items():
            yield f".{name}" if isinstance(name, str) else f"[{name!r}]", part
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
        for place, part in enumerate(value):
            yield f"[{place}]", part
    elif isinstance(value, AbstractSet):
        for part in value:
            yield "[...]", part
    elif not isinstance(value, type):
        names = getattr(value, "__struct_fields__", None)
        if names is None and dataclasses.is_dataclass(value):
            names = [field.name for field in dataclasses.fields(value)]
        for name in names or ():
            yield f".{name}", getattr(value, name, None)
