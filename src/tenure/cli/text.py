"""How values read in answers: ids, instants, lengths of time, numbers and lists of names.

Every text that a replica has written passes through `safe`, which escapes control characters.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict
from rich.text import Text

from tenure.core.durations import age, duration
from tenure.core.jobs.view import as_datetime
from tenure.core.safe_text import safe
from tenure.core.why import Why

__all__ = [
    "age",
    "count",
    "duration",
    "explanation",
    "first_few",
    "instant",
    "joined",
    "plain",
    "safe",
    "size",
    "took",
]

_FEW = 5
_GIGABYTE = 10**9


def count(number: int, noun: str) -> str:
    """Return "1 job" or "1,204 jobs"."""
    return f"1 {noun}" if number == 1 else f"{number:,} {noun}s"


def size(length: int | None) -> str:
    """Return bytes as "87 MB"; empty if they are not known."""
    if length is None:
        return ""
    return f"{length / 1e9:.1f} GB" if length >= _GIGABYTE else f"{length / 1e6:.0f} MB"


def explanation(why: Why) -> Iterator[Text]:
    """Yield why something is as it is; and what to do, in a line that can be copied whole."""
    yield Text(why.text)
    if why.next:
        yield Text(why.next, no_wrap=True)


def first_few(parts: Sequence[str], between: str = ", ") -> str:
    """Return the first five parts, and how many others there are."""
    rest = len(parts) - _FEW
    return between.join([*parts[:_FEW], *([f"{rest:,} others"] if rest > 0 else [])])


def joined(*parts: str) -> str:
    """Return the parts that are not empty, separated by commas."""
    return ", ".join(filter(None, parts))


def instant(micros: int) -> str | None:
    """Return an instant of the store's clock as text that sorts; None if it is not set."""
    if not micros:
        return None
    return as_datetime(micros).isoformat(timespec="microseconds").replace("+00:00", "Z")


def plain(value: Any) -> Any:
    """Return a value as JSON documents have it: instants as text that sorts, structs as objects."""
    if isinstance(value, datetime):
        return value.isoformat(timespec="microseconds").replace("+00:00", "Z")
    if isinstance(value, Struct):
        return {name: plain(part) for name, part in asdict(value).items()}
    return value


def took(began: int, ended: int) -> str:
    """Return how long something took."""
    return duration(max(0, ended - began) / 1e6)
