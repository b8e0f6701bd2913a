"""`Why`, the answer of all functions here, and the words that they share.

Names and errors come from users, so each passes through `safe` before it becomes part of a text.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct

from tenure.core.durations import duration
from tenure.core.jobs.view import as_datetime
from tenure.core.leases import Meta
from tenure.core.safe_text import safe

__all__ = [
    "Clause",
    "Why",
    "answer",
    "because",
    "command",
    "counted",
    "listed",
    "moment",
    "pause_left",
    "process",
    "quoted",
]

# As many characters of an id as the logs show.
_ID = 8
_FEW = 3


class Why(Struct, frozen=True):
    """Why a job, timer, lock or queue is as it is."""

    text: str
    """One sentence for people."""
    next: str
    """What to do about it: a command or an action. Empty if there is nothing to do."""
    code: str
    """The same in a word for programs; stable from release to release."""


class Clause(NamedTuple):
    """A part of the sentence, without a capital letter and a full stop; else as `Why`."""

    code: str
    text: str
    next: str = ""


def answer(*clauses: Clause, tail: str = "") -> Why:
    """Return one sentence; its code and its next step are those of the first clause.

    If the first clause has no next step, that of a later one is given. `tail` adds a remark.
    """
    first = clauses[0]
    text = ", and ".join(clause.text for clause in clauses)
    text = f"{text}; {tail}" if tail else text
    next_ = next((clause.next for clause in clauses if clause.next), "")
    return Why(f"{text[0].upper()}{text[1:].rstrip('. ')}.", next_, first.code)


def quoted(name: str) -> str:
    """Return a name in quotes."""
    return f"'{safe(name)}'"


def command(*words: str) -> str:
    """Return a command that can be copied to a shell."""
    return shlex.join(["tenure", *map(safe, words)])


def counted(number: int, noun: str) -> str:
    """Return "1 job" or "1,204 jobs"."""
    return f"1 {noun}" if number == 1 else f"{number:,} {noun}s"


def listed(parts: Sequence[str]) -> str:
    """Return the first three parts, and how many others there are."""
    others = len(parts) - _FEW
    shown = [*parts[:_FEW], *([f"{others:,} more"] if others > 0 else [])]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def moment(instant: int) -> str:
    """Return an instant of the store's clock."""
    return f"{as_datetime(instant):%Y-%m-%d %H:%M:%S} UTC"


def process(meta: Meta, id_: str) -> str:
    """Return the host and process that a record names, or else a part of its id."""
    host, pid = meta.get("host", ""), meta.get("pid", "")
    return safe(f"{host}:{pid}") if host and pid else safe(host or id_[:_ID])


def because(reason: str) -> str:
    """Return a reason that users gave, in brackets; empty without one."""
    reason = safe(reason).rstrip(". ")
    return f" ({reason})" if reason else ""


def pause_left(seconds: float) -> str:
    """Return for how long a pause lasts."""
    return "until it is resumed" if math.isinf(seconds) else f"for another {duration(seconds)}"
