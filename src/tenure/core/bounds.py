"""Bounds of stored values: the types of records carry them, and `sound` checks them.

Every program with write access to a store can write anything. Stores read records through `sound`,
so that a wrong value is found where it is read, not where it overflows. The sum of two values
within the bounds fits into 64 bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import astuple

__all__ = [
    "ASIDE_FOR",
    "COUNTER_MAX",
    "INSTANT_MAX",
    "SET_ASIDE",
    "SPAN_MAX",
    "UNREADABLE",
    "Counter",
    "Damaged",
    "Fence",
    "Instant",
    "Kind",
    "Length",
    "Priority",
    "Span",
    "complaint",
    "sound",
]

INSTANT_MAX: Final = 253_402_300_799_999_999
"""The end of the year 9999, in microseconds."""
COUNTER_MAX: Final = 2**31 - 2
"""One below the largest counter of PostgreSQL, so that it can be incremented once more."""
SPAN_MAX: Final = 1e10
"""Seconds: 317 years, and 30 times the longest duration that callers may request."""
UNREADABLE: Final = "its record cannot be read"
SET_ASIDE: Final = f"{UNREADABLE}; it was set aside"
ASIDE_FOR: Final = 604_800.0
"""Seconds for which an unreadable job is kept for inspection."""

Instant: TypeAlias = Annotated[int, Meta(ge=-INSTANT_MAX, le=INSTANT_MAX)]
Fence: TypeAlias = Annotated[int, Meta(ge=0, le=INSTANT_MAX)]
Counter: TypeAlias = Annotated[int, Meta(ge=0, le=COUNTER_MAX)]
Priority: TypeAlias = Annotated[int, Meta(ge=0, le=9)]
Length: TypeAlias = Annotated[float, Meta(ge=0, le=SPAN_MAX)]
Span: TypeAlias = Annotated[float, Meta(ge=-SPAN_MAX, le=SPAN_MAX)]
"""A length, or a difference of two instants."""

Kind: TypeAlias = Literal["job", "lock", "waiter", "mark", "replica", "queue", "timer", "decision"]


class Damaged(Struct, frozen=True, kw_only=True):
    """A damaged record. All other records work."""

    kind: Kind
    name: str
    why: str
    """What is wrong with it."""
    where: str
    """The table or key that contains it."""


Record = TypeVar("Record", bound=Struct)


def sound(kind: type[Record], values: Mapping[str, Any] | Sequence[Any]) -> Record:
    """Return a record of stored values. Raises ValueError, which names the wrong field.

    A record that is a row (`array_like`) may be passed as its columns in the order of the fields.
    """
    is_row = kind.__struct_config__.array_like
    if is_row and isinstance(values, Mapping):
        values = astuple(kind(**values))
    try:
        return msgspec.convert(values, kind, builtin_types=(bytes,))
    except msgspec.ValidationError as error:
        raise ValueError(complaint(error, kind.__struct_fields__ if is_row else ())) from error


def complaint(error: msgspec.ValidationError, fields: Sequence[str] = ()) -> str:
    """Return what is wrong with a record; `fields` are the names of its values, if it is a list."""
    expected, _, place = str(error).replace("`", "").partition(" - at $")
    place = place.lstrip(".")
    if fields and place:
        place = fields[int(place[1:].partition("]")[0])]
    return f"its {place or 'record'} is wrong: {expected[:1].lower()}{expected[1:]}"
