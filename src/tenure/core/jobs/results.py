"""The stored form of a result: its JSON, or a note if JSON alone is not enough.

Usually that is the JSON that HTTP clients get. A note begins with a byte that JSON never begins
with. It contains two forms of a result whose type cannot read the JSON for clients, or the reason
why callers cannot get the result. A job whose handler has returned has succeeded in any case.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from tenure.core.leases import storable
from tenure.core.values.written_result import Written

__all__ = ["StoredResult", "read_stored", "shown_result", "store_result"]

_NOTE = b"!"
_PROBLEM_MAX = 1000


class StoredResult(Struct, frozen=True):
    """A stored result."""

    sent: msgspec.Raw = msgspec.Raw(b"")
    """The JSON that HTTP clients and tools get."""
    exact: msgspec.Raw = msgspec.Raw(b"")
    """The JSON that the return type reads, if that differs."""
    problem: str = ""
    """Why callers cannot get it; empty if they can."""

    @property
    def readable(self) -> bytes:
        """The JSON that the return type reads."""
        return bytes(self.exact) or bytes(self.sent)


_note = msgspec.json.Decoder(StoredResult)


def store_result(written: Written, limit: int) -> tuple[bytes, str]:
    """Return the bytes to store, and why callers cannot get the result; empty if they can."""
    problem, sent, exact = written.problem, written.sent, written.exact
    if written.size > limit:
        sent = exact = b""
        too_large = (
            f"it takes {written.size:,} bytes, and result_limit allows {limit:,}. Store large data "
            "elsewhere and return a reference, or raise result_limit in Tenure(...)"
        )
        problem = problem or too_large
    if not problem and not exact:
        return sent, ""
    problem = storable(problem, _PROBLEM_MAX)
    note: dict[str, Any] = {"problem": problem} if problem else {}
    note |= {name: msgspec.Raw(text) for name, text in (("sent", sent), ("exact", exact)) if text}
    return _NOTE + msgspec.json.encode(note), problem


def read_stored(result: bytes) -> StoredResult:
    """Read a stored result. Raises ValueError for a damaged note."""
    if result.startswith(_NOTE):
        return _note.decode(result[len(_NOTE) :])
    return StoredResult(msgspec.Raw(result))


def shown_result(result: bytes | None) -> tuple[bytes, str]:
    """Return a stored result as tools show it, and why callers do not get it, if so.

    That is the JSON that HTTP clients get. A damaged note is returned as it is stored.
    """
    if result is None:
        return b"", ""
    try:
        stored = read_stored(result)
    except (ValueError, RecursionError):
        return result, ""
    return bytes(stored.sent), stored.problem
