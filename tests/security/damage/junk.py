"""Junk for a stored field: values that each type admits, and values that none should."""

from __future__ import annotations

import math
import struct
from typing import Any
from uuid import UUID

import msgspec

__all__ = ["LOOSE", "PACKED", "RAW", "SCORES", "NotText", "OwnName", "pieces_of", "typed"]

_TEXTS = ["", "junk", "9" * 400, "x" * 5000, "\u202e\x1b[2J", "{", "[1]", "succeeded", "@timers"]
_NUMBERS = [0, -1, 2**31 - 1, 2**53, 2**62, 2**63 - 1, -(2**63)]
_REALS = [1.5, -1.5, 1e300, math.inf, -math.inf, math.nan]
_BYTES = [b"", b"\xff\xfe", b"\0", b"x" * 5000, b"[1]"]


class NotText:
    """Bytes that SQLite keeps as text."""

    def __repr__(self) -> str:
        return "text that is not UTF-8"


class OwnName:
    """The name of the record itself, which makes circles."""

    def __repr__(self) -> str:
        return "its own name"


LOOSE: list[Any] = [None, NotText(), OwnName(), *_TEXTS, *_NUMBERS, *_REALS, *_BYTES]
"""For columns that take any type, as those of SQLite."""

_TYPED: dict[str, list[Any]] = {
    "smallint": [0, -1, 99, 2**15 - 1, -(2**15)],
    "integer": [0, -1, 2**31 - 1, 2**31 - 2, -(2**31)],
    "bigint": _NUMBERS,
    "double precision": [0.0, *_REALS],
    "text": [OwnName(), *_TEXTS],
    "bytea": _BYTES,
    "boolean": [True, False],
    "uuid": [UUID(int=0), UUID(int=2**128 - 1)],
    "ARRAY": [[], ["x"], [None], [["x"], ["y"]]],
}


def typed(kind: str) -> list[Any]:
    """Return junk for a column of PostgreSQL, by its type in the information schema."""
    return [None, *_TYPED[kind]]


_encode = msgspec.msgpack.encode

PACKED: list[bytes] = [
    *(_encode(value) for value in (None, True, "", "junk", b"\xff", [], [1], {}, {"a": 1})),
    *(_encode(value) for value in (0, -1, 7, 2**31 - 1, 2**32 - 1, 2**53, 2**63 - 1, 2**64 - 1)),
    *(_encode(value) for value in _REALS),
    *(b"", b"\xa1\xff", b"\xc1", b"\xdd\xff\xff\xff\xff", b"\xdb\xff\xff\xff\xff", b"\x91" * 300),
    _encode("x" * 5000),
]
"""For one value within a record of MessagePack values."""

RAW: list[bytes | None] = [
    *(
        None,
        b"",
        b"junk",
        b"\xff\xfe",
        b"\0",
        b"\0\0\0",
        b"9" * 400,
        b"-1",
        b"nan",
        b"inf",
        b"1e300",
    ),
    *(b"\xc1" * 50, b"x" * 5000, b"{}", b"default\0junk"),
]
"""For a whole value or name of Redis; None stands for its first half."""

SCORES = ["0", "-1", "inf", "-inf", "1e300", "4503599627370496", "0.5"]


def pieces_of(record: bytes) -> list[bytes] | None:
    """Return the MessagePack values that a record is made of; None if it is not made of such."""
    pieces, at = [], 0
    try:
        while at < len(record):
            end = _end_of(record, at)
            msgspec.msgpack.decode(record[at:end])
            pieces.append(record[at:end])
            at = end
    except (ValueError, IndexError, struct.error, RecursionError):
        return None
    return pieces


_FIXED = {0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8}
_SIZED = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}


def _end_of(data: bytes, at: int) -> int:
    first = data[at]
    if first < 0x80 or first >= 0xE0 or first in (0xC0, 0xC2, 0xC3):
        return at + 1
    if first in _FIXED:
        return at + 1 + _FIXED[first]
    if first in _SIZED:
        width = _SIZED[first]
        return at + 1 + width + int.from_bytes(data[at + 1 : at + 1 + width])
    if 0xA0 <= first < 0xC0:
        return at + 1 + first - 0xA0
    if first < 0xA0 or first in (0xDC, 0xDD, 0xDE, 0xDF):
        return _end_of_many(data, at, first)
    raise ValueError(first)


def _end_of_many(data: bytes, at: int, first: int) -> int:
    if first < 0xA0:
        count, at = (first & 0x0F), at + 1
        count *= 1 if first >= 0x90 else 2
    else:
        width = 2 if first in (0xDC, 0xDE) else 4
        count = int.from_bytes(data[at + 1 : at + 1 + width])
        count *= 1 if first in (0xDC, 0xDD) else 2
        at += 1 + width
    if count > 10_000:
        raise ValueError(count)
    for _ in range(count):
        at = _end_of(data, at)
    return at
