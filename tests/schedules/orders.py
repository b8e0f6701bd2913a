"""Whether concurrent calls can be explained: by some order of them, one after the other."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from tests.schedules.spec import UNKNOWN, Call, Spec, State

Fate = Literal["answered", "happened", "never", "maybe"]
"""What is known about a call: its answer; that it took effect, or did not; or nothing."""


@dataclass(eq=False)
class Op:
    """A call that was made, and what came of it."""

    call: Call
    caller: int
    store: int
    begun: int
    ended: int | None = None
    """An instant of the schedule. None: it could take effect until the end of the window."""
    fate: Fate = "answered"
    answer: Any = UNKNOWN
    error: BaseException | None = None
    note: str = ""
    """What was done to it."""
    followers: set["Op"] = field(default_factory=set)
    """Calls that it must not come after."""
    touches: frozenset[str] = field(default_factory=frozenset)
    """The jobs and replicas that it may lock for a moment."""

    def overlaps(self, other: "Op") -> bool:
        """Return whether neither had ended when the other began."""
        return self.begun < _end(other) and other.begun < _end(self)

    def __str__(self) -> str:
        said = repr(self.answer) if self.fate == "answered" else f"({self.fate})"
        if self.answer is UNKNOWN and self.fate == "answered":
            said = "(on its way)"
        end = "..." if self.ended is None else self.ended
        note = f" [{self.note}]" if self.note else ""
        return f"[{self.begun:>3} to {end:>3}] store {self.store}: {self.call}{note} -> {said}"


def _end(op: Op) -> float:
    return float("inf") if op.ended is None else op.ended


def _precedes(op: Op, other: Op) -> bool:
    return _end(op) < other.begun or other in op.followers


def explained(spec: Spec, states: Iterable[State], ops: list[Op], *, skips: bool) -> list[State]:
    """Return the states that the ops can have led to, in any order that real time allows.

    Empty: there is no such order. `skips`: the store passes by what others have locked.
    """
    made = [op for op in ops if op.fate != "never"]
    held = {op: _held(op, ops) if skips else frozenset() for op in made}
    strict = {op: not skips or not any(op.overlaps(x) for x in ops if x is not op) for op in made}
    everything = frozenset(range(len(made)))
    found: dict[str, State] = {}
    seen: set[tuple[frozenset[int], str]] = set()
    open_ones: list[tuple[frozenset[int], State]] = [(everything, state) for state in states]
    while open_ones:
        left, state = open_ones.pop()
        print_ = state.fingerprint
        if (left, print_) in seen:
            continue
        seen.add((left, print_))
        if all(made[one].fate == "maybe" for one in left):
            found[print_] = state
        for one in left:
            op = made[one]
            missed = [x for x in left if x != one and _precedes(made[x], op)]
            if any(made[x].fate != "maybe" for x in missed):
                continue
            answer = op.answer if op.fate == "answered" else UNKNOWN
            rest = left - {one, *missed}
            reached = spec.after(state, op.call, answer, held=held[op], strict=strict[op])
            open_ones += [(rest, after) for after in reached]
    return list(found.values())


def _held(op: Op, ops: list[Op]) -> frozenset[str]:
    """Return what others may have had locked meanwhile."""
    others = (other.touches for other in ops if other is not op and op.overlaps(other))
    return frozenset().union(*others)
