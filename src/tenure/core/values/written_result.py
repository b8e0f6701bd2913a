"""A result as JSON, as plain and Pydantic types write it."""

from __future__ import annotations

from msgspec import Struct

__all__ = ["Written"]


class Written(Struct, frozen=True):
    """A result in JSON."""

    sent: bytes = b""
    """What HTTP clients and tools see; empty if the result has no JSON form."""
    exact: bytes = b""
    """What its type reads, if that differs from `sent`."""
    problem: str = ""
    """Why callers cannot get the result; empty if they can."""

    @property
    def size(self) -> int:
        return len(self.sent) + len(self.exact)
