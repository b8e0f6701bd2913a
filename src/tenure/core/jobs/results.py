"""What is stored of a result: its JSON, or a note about it where JSON alone does not do.

The common case is the JSON as it is sent over HTTP. A note begins with a sign that JSON never
begins with. It holds two forms of a result whose type cannot read what is sent, or says why
callers cannot have the result at all. A job whose handler has returned has succeeded, whatever
becomes of this.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from tenure.core.leases import storable
from tenure.core.values.written import Written

__all__ = ["StoredResult", "read_stored", "store_result"]

_NOTE = b"!"
_PROBLEM_MAX = 1000


class StoredResult(Struct, frozen=True):
    """A result as it is stored."""

    sent: msgspec.Raw = msgspec.Raw(b"")
    """What HTTP clients and tools see."""
    exact: msgspec.Raw = msgspec.Raw(b"")
    """What the return type reads, if that is something else."""
    problem: str = ""
    """Why callers cannot have it."""

    @property
    def readable(self) -> bytes:
        """The JSON that the return type reads."""
        return bytes(self.exact) or bytes(self.sent)


_note = msgspec.json.Decoder(StoredResult)


def store_result(written: Written, limit: int) -> tuple[bytes, str]:
    """Return the bytes to store for a result, and why callers cannot have it; empty if they can."""
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
    """Return what was stored of a result. Raises ValueError for a note that is damaged."""
    if result.startswith(_NOTE):
        return _note.decode(result[len(_NOTE) :])
    return StoredResult(msgspec.Raw(result))
