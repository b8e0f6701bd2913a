"""Calls of the contract, and the readings of a call that others interrupted."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import product
from operator import attrgetter
from typing import Any

from msgspec.structs import replace

from tenure.core.schedules.records import Commit

__all__ = ["UNKNOWN", "Call", "lists_all", "locked", "readings"]


@dataclass(frozen=True)
class Call:
    """One call of the contract. It changes nothing that it is made of, so it can be repeated."""

    name: str
    """With its part of the store, such as "jobs.claim"."""
    arguments: tuple[Any, ...] = ()
    details: dict[str, Any] = field(default_factory=dict)
    is_repeat: bool = False

    def made_on(self, store: Any) -> Any:
        """Return the coroutine."""
        return attrgetter(self.name)(store)(*self.arguments, **self.details)

    def __str__(self) -> str:
        words = [*map(repr, self.arguments), *(f"{k}={v!r}" for k, v in self.details.items())]
        return f"{self.name}({', '.join(words)})"


UNKNOWN = object()
"""The answer to a call whose reply was lost."""


def lists_all(call: Call) -> bool:
    """Return whether a call lists all schedules, and so is about none of them.

    On Redis it looks twice: for their names, and then for what they are.
    """
    return call.name == "schedules.read" and not any(call.arguments)


def locked(schedule: str) -> str:
    """Return the name of a schedule among locked records."""
    return f"schedule {schedule}"


def readings(
    call: Call, answer: Any, held: Iterable[str], *, strict: bool
) -> Iterator[tuple[Call, Any]]:
    """Return the readings of a call: what it may have done, with the matching answer.

    A schedule that a commit expects but does not write is read without a lock. While others write
    it, it may have matched the expectation or not.
    """
    if call.name != "schedules.commit" or not held:
        yield _decided(call, answer, strict=strict)
        return
    (commits,) = call.arguments
    answers = [UNKNOWN] * len(commits) if answer is UNKNOWN else answer
    readings = [_readings_of(*pair, {*held}) for pair in zip(commits, answers, strict=True)]
    for chosen in product(*readings):
        pairs = [pair for pair in chosen if pair is not None]
        answers_read = (
            UNKNOWN if answer is UNKNOWN else [commit_answer for _, commit_answer in pairs]
        )
        yield Call(call.name, ([commit for commit, _ in pairs],)), answers_read


def _readings_of(commit: Commit, answer: Any, held: set[str]) -> list[tuple[Commit, Any] | None]:
    """Return the commit, and the same without expectations that others may have changed."""
    written = {write.name for write in commit.writes}
    loose = {
        expected.name for expected in commit.expects if locked(expected.name) in held
    } - written
    if not loose:
        return [(commit, answer)]
    if answer is not UNKNOWN and answer.outcome == "stale":
        is_loose = {head.name for head in answer.heads} <= loose
        return [(commit, answer), None] if is_loose else [(commit, answer)]
    expects = tuple(expected for expected in commit.expects if expected.name not in loose)
    return [(commit, answer), (replace(commit, expects=expects), answer)]


def _decided(call: Call, answer: Any, *, strict: bool) -> tuple[Call, Any]:
    """Leave out what was left as it is: leases that a renewal did not decide about, and jobs that
    had not finished when a requeue began.
    """
    left = {"leases.renew": None, "jobs.requeue": "unfinished"}
    if strict or call.name not in left or answer is UNKNOWN:
        return call, answer
    (items,) = call.arguments
    both = [pair for pair in zip(items, answer, strict=True) if pair[1] != left[call.name]]
    return Call(call.name, ([item for item, _ in both],)), [item_answer for _, item_answer in both]
