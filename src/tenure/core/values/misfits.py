"""Errors about values that do not fit their type: what is wrong, and where in the value.

Every check raises `Misfit`, which never quotes the value: a payload may contain secrets.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, TypeAlias

__all__ = ["CHANGES", "KEY", "NOT_FINITE", "OTHER_CLASS", "Misfit", "Problem", "below", "unquoted"]

Problem: TypeAlias = tuple[tuple[str | int, ...], str]
"""The path to the part of a value that is wrong, and what is wrong with it."""

KEY: Final = "..."
"""The step to a value of a dict, or to a part of a set. A key is data, so it is not shown."""

CHANGES: Final = (
    "it is not the same after it was written as JSON and read back. Check its serializers and "
    "validators, or pass an object of the declared class itself"
)
OTHER_CLASS: Final = (
    "it is not the same after it was written as JSON and read back: it would have another type. "
    "Pass an object of the declared class itself. Tell models of a union apart with "
    "Field(discriminator=...), and Structs with tag=True"
)
NOT_FINITE: Final = "NaN and infinity have no JSON form. Pass None or text instead"


# Messages of msgspec that quote a part of the value.
_QUOTING = re.compile(
    r"^(?P<message>Invalid enum value|Invalid value|Object contains unknown field) .*?"
    r"(?P<at> - at `\$[^`]*`)?$",
    re.DOTALL,
)


def unquoted(message: str) -> str:
    """Return a message of msgspec without the value that it quotes, which may be a secret."""
    match = _QUOTING.match(message)
    return message if match is None else f"{match['message']}{match['at'] or ''}"


class Misfit(ValueError):
    """A value does not fit its type. The message never quotes the value: it may be a secret."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        texts = (f"{message} - at `${_steps(where)}`" for where, message in problems)
        super().__init__("; ".join(texts))
        self.problems = tuple(problems)

    def below(self, *where: str | int) -> Misfit:
        """Return this error with its paths prefixed: for a value that is part of another one."""
        return Misfit([((*where, *path), message) for path, message in self.problems])


def _steps(where: Sequence[str | int]) -> str:
    return "".join(
        f"[{step}]" if isinstance(step, int) or step == KEY else f".{step}" for step in where
    )


def below(step: str | int, problem: Problem) -> Problem:
    """Return the problem of a part as a problem of the whole, with one more step in its path."""
    where, message = problem
    return (step, *where), message
