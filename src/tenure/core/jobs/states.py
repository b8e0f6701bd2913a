"""The states of a job and the moves between them, as a table. Tests check stores against it, and
the diagram in the docs is drawn from it.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from msgspec import Struct

__all__ = [
    "FINISHED",
    "MOVES",
    "STATES",
    "JobState",
    "Move",
    "diagram",
    "may_delete",
    "moves_from",
]

JobState: TypeAlias = Literal["waiting", "running", "succeeded", "failed", "cancelled"]

STATES: Final[tuple[JobState, ...]] = ("waiting", "running", "succeeded", "failed", "cancelled")
FINISHED: Final[frozenset[JobState]] = frozenset({"succeeded", "failed", "cancelled"})


class Move(Struct, frozen=True):
    """A move from one state to another: its call, its condition, and what it counts."""

    call: str
    start: JobState | None
    end: JobState
    condition: str
    counts: str = ""


_FENCED = "the fence is that of this attempt"
_CANCEL = "as retry, hand back or recover, with a cancel pending"

MOVES: Final[tuple[Move, ...]] = (
    Move("insert", None, "waiting", "its unique key is free"),
    Move("claim", "waiting", "running", "due, and the replica lives", "attempt"),
    Move("succeed", "running", "succeeded", _FENCED),
    Move("fail", "running", "failed", _FENCED, "failures"),
    Move("retry", "running", "waiting", _FENCED, "failures"),
    Move("hand back", "running", "waiting", "the fence, or its replica leaves"),
    Move("recover", "running", "waiting", "its replica has expired, within the budget", "losses"),
    Move("give up", "running", "failed", "its replica has expired, past the budget", "losses"),
    Move("confirm", "running", "cancelled", _FENCED),
    Move("stop", "running", "cancelled", _CANCEL),
    Move("cancel", "waiting", "cancelled", "always"),
    Move("requeue", "succeeded", "waiting", "its unique key is free"),
    Move("requeue", "failed", "waiting", "its unique key is free"),
    Move("requeue", "cancelled", "waiting", "its unique key is free"),
)


def moves_from(state: JobState | None) -> tuple[Move, ...]:
    """Return the moves out of a state; None: the insert."""
    return tuple(move for move in MOVES if move.start == state)


def may_delete(state: JobState | None) -> bool:
    """Return whether an operator may delete a job; None: its record cannot be read.

    A running job must be cancelled first: its handler goes on until its worker learns of that.
    """
    return state != "running"


def diagram() -> str:
    """Return the table as a Mermaid state diagram."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for move in MOVES:
        arrows.setdefault((move.start or "[*]", move.end), []).append(move.call)
    lines = [f"    {start} --> {end}: {', '.join(calls)}" for (start, end), calls in arrows.items()]
    return "\n".join(["stateDiagram-v2", *lines])
