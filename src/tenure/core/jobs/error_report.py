"""What a job stores of its last error."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from tenure.core.safe_text import safe

__all__ = ["ErrorReport", "read_report"]

_LINE_MAX = 300


class ErrorReport(Struct, frozen=True):
    """What a job stores of an error."""

    type: str
    message: str
    trace: str = ""

    @property
    def line(self) -> str:
        """The error in one line, with control characters escaped: it cannot forge a log record."""
        return safe(f"{self.type}: {self.message}"[:_LINE_MAX])[:_LINE_MAX]


_decoder = msgspec.json.Decoder(ErrorReport)


def read_report(stored: bytes | None) -> ErrorReport | None:
    """Return the last error of a job; None if it has none. Never raises."""
    if stored is None:
        return None
    try:
        return _decoder.decode(stored)
    except (ValueError, RecursionError):
        return ErrorReport("unknown", "what is stored about this error cannot be read")
