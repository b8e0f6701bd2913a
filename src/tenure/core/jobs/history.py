"""The history of a job: one line of JSON for each attempt that has ended, oldest first.

Stores keep it as bytes. Only a settlement adds a line.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final, Literal, TypeAlias

import msgspec
from msgspec import Struct

__all__ = [
    "HISTORY_MAX",
    "AttemptLine",
    "AttemptOutcome",
    "add_attempt",
    "read_history",
    "write_history",
]

HISTORY_MAX: Final = 10
"""How many attempts the history keeps."""

AttemptOutcome: TypeAlias = Literal[
    "succeeded", "failed", "retry", "handed back", "cancelled", "lost"
]


class AttemptLine(Struct, frozen=True, omit_defaults=True):
    """One line of a job's history."""

    attempt: int
    replica: str
    started: int
    ended: int
    outcome: AttemptOutcome
    error: str = ""


_line = msgspec.json.Decoder(AttemptLine)


def write_history(attempts: Sequence[AttemptLine]) -> bytes:
    """Return the last HISTORY_MAX attempts, one line each."""
    return b"".join(msgspec.json.encode(attempt) + b"\n" for attempt in attempts[-HISTORY_MAX:])


def add_attempt(history: bytes, this: AttemptLine) -> bytes:
    """Return a history with one more attempt, cut to the last HISTORY_MAX.

    Older lines are kept unread, because a newer version may have written them in another form.
    """
    earlier = history.splitlines(keepends=True)[1 - HISTORY_MAX :]
    return b"".join(earlier) + write_history([this])


def read_history(lines: bytes) -> list[AttemptLine]:
    """Return the attempts of a job, oldest first. Leaves out lines that it cannot read."""
    attempts = []
    for line in lines.splitlines():
        with suppress(ValueError, RecursionError):
            attempts.append(_line.decode(line))
    return attempts
