"""The history of a run: what happened, entry by entry. Checkers read nothing else.

Equal seeds give equal histories, to the byte.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Struct

__all__ = ["Entry", "History", "read_lines", "write_lines"]


class Entry(Struct, kw_only=True, omit_defaults=True):
    """One thing that happened. `what` is its kind, which decides which other fields are set."""

    at: float
    """Seconds on a clock that all entries share and that only grows."""
    by: str
    """The source: "store", "resource", "world" (injected faults), or the name of a process."""
    what: str
    now: int = 0
    """The store's clock, in microseconds, where that matters."""
    key: str = ""
    holder: str = ""
    fence: int = 0
    limit: int = 0
    ttl: float = 0.0
    job: str = ""
    replica: str = ""
    attempt: int = 0
    revision: int = 0
    failures: int = 0
    losses: int = 0
    number: int = 0
    tick: int = 0
    seen: int = 0
    seconds: float = 0.0
    ok: bool = False
    again: bool = False
    """Whether a run may run again after a loss."""
    kept: bool = False
    """Whether a unique key outlives its job."""
    answer: str = ""
    outcome: str = ""
    ids: list[str] = []
    detail: str = ""
    definition: str = ""
    """Of a timer, as JSON."""
    lines: list[tuple[str, str, int, int, int]] = []
    """Of a timer's history: outcome, reason, first tick, last tick, number of ticks."""


class History:
    """The entries of one run, in the order in which they happened."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    def add(self, at: float, by: str, what: str, **facts: Any) -> None:
        self.entries.append(Entry(at=round(at, 6), by=by, what=what, **facts))

    def as_lines(self) -> bytes:
        return write_lines(self.entries)


def write_lines(entries: Iterable[Entry]) -> bytes:
    """Return entries as JSON lines."""
    return b"".join(msgspec.json.encode(entry) + b"\n" for entry in entries)


_decoder = msgspec.json.Decoder(Entry)


def read_lines(lines: bytes) -> list[Entry]:
    """Return the entries that were written as JSON lines."""
    return [_decoder.decode(line) for line in lines.splitlines()]
