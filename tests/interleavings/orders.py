"""Decides whether some sequential order explains the answers of concurrent calls."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from tests.interleavings.readings import UNKNOWN, Call, lists_all
from tests.interleavings.spec import Spec, State

Fate = Literal["answered", "happened", "never", "maybe"]
"""What is known about a call: its answer, that it took effect or not, or nothing."""


@dataclass(eq=False)
class Op:
    """A call that was made, and its result."""

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
    """How it was cut."""
    followers: set["Op"] = field(default_factory=set)
    """Calls that it must not come after."""
    touches: frozenset[str] = field(default_factory=frozenset)
    """The jobs and replicas that it may lock for a moment."""

    def overlaps(self, other: "Op") -> bool:
        """Return whether neither had ended when the other began."""
        return self.begun < _end(other) and other.begun < _end(self)

    def __str__(self) -> str:
        answer = repr(self.answer) if self.fate == "answered" else f"({self.fate})"
        if self.answer is UNKNOWN and self.fate == "answered":
            answer = "(on its way)"
        end = "..." if self.ended is None else self.ended
        note = f" [{self.note}]" if self.note else ""
        return f"[{self.begun:>3} to {end:>3}] store {self.store}: {self.call}{note} -> {answer}"


def _end(op: Op) -> float:
    return float("inf") if op.ended is None else op.ended


def _precedes(op: Op, other: Op, whole: Op) -> bool:
    """Return whether an op must come before another one, which may be part of a call."""
    return _end(op) < other.begun or not op.followers.isdisjoint((other, whole))


def explained(spec: Spec, states: Iterable[State], ops: list[Op], *, skips: bool) -> list[State]:
    """Return the states that the ops can have led to, in any order that real time allows.

    Empty: there is no such order. `skips`: the store skips records that others have locked.
    """
    # A list of all schedules may have read one schedule earlier than another.
    listed = {op for op in ops if lists_all(op.call) and any(map(op.overlaps, {*ops} - {op}))}
    wholes = {
        part: op
        for op in ops
        if op.fate != "never" and op not in listed
        for part in _parts(op, skips=skips)
    }
    made = list(wholes)
    held = {part: _held(op, ops) if skips else frozenset() for part, op in wholes.items()}
    strict = {
        part: not skips or not any(op.overlaps(other) for other in ops if other is not op)
        for part, op in wholes.items()
    }
    everything = frozenset(range(len(made)))
    reached_states: dict[str, State] = {}
    seen: set[tuple[frozenset[int], str]] = set()
    open_ones: list[tuple[frozenset[int], State]] = [(everything, state) for state in states]
    while open_ones:
        left, state = open_ones.pop()
        print_ = state.fingerprint
        if (left, print_) in seen:
            continue
        seen.add((left, print_))
        if all(made[next_part].fate == "maybe" for next_part in left):
            reached_states[print_] = state
        for next_part in left:
            op = made[next_part]
            missed = [x for x in left if x != next_part and _precedes(made[x], op, wholes[op])]
            if any(made[x].fate != "maybe" for x in missed):
                continue
            answer = op.answer if op.fate == "answered" else UNKNOWN
            rest = left - {next_part, *missed}
            reached = spec.after(state, op.call, answer, held=held[op], strict=strict[op])
            open_ones += [(rest, after) for after in reached]
    return list(reached_states.values())


def _parts(op: Op, *, skips: bool) -> list[Op]:
    """Return the parts of a call between which others can come: each commit is one part.

    Where nothing waits for locks, all of them are one.
    """
    if op.call.name != "schedules.commit" or not skips:
        return [op]
    (commits,) = op.call.arguments
    answers = op.answer if op.fate == "answered" else [UNKNOWN] * len(commits)
    parts = [
        replace(
            op,
            call=Call("schedules.commit", ([commit],)),
            answer=[answer],
            followers={*op.followers},
        )
        for commit, answer in zip(commits, answers, strict=True)
    ]
    for number, part in enumerate(parts):
        part.followers.update(parts[number + 1 :])
    return parts


def _held(op: Op, ops: list[Op]) -> frozenset[str]:
    """Return the records that others may have had locked meanwhile."""
    others = (other.touches for other in ops if other is not op and op.overlaps(other))
    return frozenset().union(*others)
