"""Junk inside a document: JSON that a store keeps as text, and never looks into."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from tenure.core.schedules.documents import Charter, Standing

__all__ = ["FRAGMENTS", "Path", "has_place", "paths_in", "spoiled"]

FRAGMENTS: list[str] = [
    *("null", "true", "0", "-1", "1.5", "1e300", str(2**62), str(2**64), '""', '"junk"'),
    *('"\\u0000"', f'"{"x" * 5000}"', "[]", "[1]", "{}", '{"a":1}', "nul", "", "[" * 3000),
    f"{'[' * 3000}{']' * 3000}",
]
"""What stands in place of a value: JSON, or what is none."""

_DEEP = 3

Path = tuple[str | int, ...]


def paths_in(text: str | bytes | None) -> list[Path]:
    """Return where the values of a document are, or could be; nowhere, if it is none."""
    document = _read(text)
    paths = _paths(document, ())
    if isinstance(document, dict):
        # What has its default is left out.
        kind = Standing if "cursor" in document else Charter
        paths += [(name,) for name in (*kind.__struct_fields__, "more") if (name,) not in paths]
    return paths


def has_place(text: str | bytes | None, path: Path) -> bool:
    """Return whether a document has a value there, or could have one."""
    return path in paths_in(text)


def _read(text: str | bytes | None) -> Any:
    try:
        return json.loads(text or "")
    except ValueError:
        return None


def _paths(value: Any, above: Path) -> list[Path]:
    if isinstance(value, dict):
        parts: list[tuple[str | int, Any]] = list(value.items())
    elif isinstance(value, list):
        parts = list(enumerate(value))
    else:
        parts = []
    here = [(*above, key) for key, _ in parts]
    if len(above) + 1 < _DEEP:
        here += [path for key, part in parts for path in _paths(part, (*above, key))]
    return here


def spoiled(text: str | bytes, path: Path, fragment: str) -> str:
    """Return a document with something else in one place."""
    document = json.loads(text)
    part = document
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = msgspec.Raw(fragment.encode())
    return msgspec.json.encode(document).decode()
