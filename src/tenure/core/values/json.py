"""Encodes and decodes JSON: msgspec, with hooks for types that it does not know.

`encode` and `decode_plain` serve values without a declared type: checkpoints, request bodies, parts
of an untyped result. `forms` and `signature` use the same hooks for declared types. Stored data
never names code: nothing is imported or called because of what JSON contains.
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

from tenure.core.values.depth import DEPTH_MAX, is_too_deep

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
    "shown_value",
    "use_pydantic",
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
    """Return a value as JSON from which its type restores an equal value.

    Raises TypeError, ValueError or RecursionError if it has no such form.
    """
    return _encoded(value, _argument_to_json)


def encode_result(value: Any) -> bytes:
    """Return a value as FastAPI would send it. Raises as `encode` does."""
    return _encoded(value, _result_to_json)


def _encoded(value: Any, hook: Callable[[Any], Any]) -> bytes:
    try:
        if is_pydantic(type(value)):  # also a dataclass of Pydantic's, which msgspec would take
            value = hook(value)
        return shallow(msgspec.json.encode(value, enc_hook=hook))
    except _Formless as error:
        raise TypeError(error.message(value, hook)) from None


def encode_comparable(value: Any) -> bytes:
    """Return bytes that are the same for equal values, whatever order sets and dicts have."""
    # Two steps, because only `to_builtins` can sort keys that are not text.
    plain = msgspec.to_builtins(
        value, enc_hook=_comparable_to_json, str_keys=True, order="deterministic"
    )
    return msgspec.json.encode(plain)


def decode_plain(text: bytes) -> Any:
    """Decode JSON without a declared type to plain values."""
    return msgspec.json.decode(shallow(text))


def shown_value(stored: bytes | None) -> Any:
    """Return stored arguments, a checkpoint or a result as tools show them: plain values.

    For nothing, None. For bytes that are not JSON, a text that says how many.
    """
    if not stored:
        return None
    try:
        return decode_plain(stored)
    except (ValueError, RecursionError):
        return f"({len(stored):,} bytes that are not JSON)"


def shallow(text: bytes) -> bytes:
    """Return the JSON unchanged. Raises ValueError if it is nested too deeply; see `depth`."""
    if is_too_deep(text):
        msg = f"lists and objects in each other more than {DEPTH_MAX} deep"
        raise ValueError(msg)
    return text


# Hooks that msgspec calls for types it does not know.


def _argument_to_json(value: Any) -> Any:
    """Write a value so that its type restores an equal one."""
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
    """Write subclasses of types that JSON has, and objects that serialize themselves."""
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
"""How to write subclasses of these types: msgspec checks for the exact type only."""


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
        with suppress(ValueError):  # its message quotes the text, which may be a secret
            return kind(value)
        msg = f"it is not a valid {kind.__name__}"
        raise ValueError(msg)
    msg = f"a {type(value).__name__} is not a {kind.__name__}"
    raise ValueError(msg)


def is_pydantic(kind: object) -> bool:
    """Return whether Pydantic can read this class: models, secrets, URLs and the like."""
    return isinstance(kind, type) and (
        hasattr(kind, "__get_pydantic_core_schema__") or hasattr(kind, "__pydantic_validator__")
    )


def is_readable(kind: type) -> bool:
    """Return whether `from_json` can read values of this class."""
    is_model = hasattr(kind, "model_dump") and hasattr(kind, "model_validate")
    return (
        is_model
        or is_pydantic(kind)
        or issubclass(kind, _TEXTS)
        or any(issubclass(plain, kind) for plain in _JSON_TYPES)
    )


def load_pydantic() -> Any:
    """Import and return the module for Pydantic types."""
    return _pydantic_loaders[-1]()


def use_pydantic(load: Callable[[], Any]) -> None:
    """Take `load` as the function that imports the module for Pydantic types.

    A plain value may contain a model, and a model plain values, so the two modules need each other.
    Only `pydantic_forms` imports this one. The package passes in the way back.
    """
    _pydantic_loaders.append(load)


_pydantic_loaders: Final[list[Callable[[], Any]]] = []


# Errors about values without a JSON form.


class _Formless(TypeError):
    """Raised by the hooks, which do not know the path of the value."""

    def __init__(self, culprit: Any) -> None:
        super().__init__()
        self._culprit = culprit

    def message(self, value: Any, hook: Callable[[Any], Any]) -> str:
        """Return the error message, with the path of the culprit inside `value`."""
        name = type(self._culprit).__qualname__
        where = "".join(_where(value, self._culprit, hook))
        advice = "use plain values, dataclasses or models"
        return f"a value of type {name!r} has no JSON form: {advice} - at `${where}`"


def _where(value: Any, culprit: Any, hook: Callable[[Any], Any]) -> Iterator[str]:
    """Yield the steps from a value to its part that has no JSON form."""
    while value is not culprit:
        for step, part in _children(value):
            try:
                msgspec.json.encode(part, enc_hook=hook)
            except Exception:  # noqa: BLE001 - only the path matters here
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
