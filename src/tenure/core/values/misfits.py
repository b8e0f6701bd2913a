"""What is wrong with a value, and where. Every rule that refuses a value raises `Misfit`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, TypeAlias

__all__ = ["CHANGES", "KEY", "NOT_FINITE", "OTHER_CLASS", "Misfit", "Problem", "below", "unquoted"]

Problem: TypeAlias = tuple[tuple[str | int, ...], str]
"""Where in a value something is wrong, and what."""

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


# What msgspec says with a part of the value in it, and the place.
_QUOTING = re.compile(
    r"^(?P<told>Invalid enum value|Invalid value|Object contains unknown field) .*?"
    r"(?P<at> - at `\$[^`]*`)?$",
    re.DOTALL,
)


def unquoted(told: str) -> str:
    """Return what msgspec says is wrong, without what it quotes: that may be a secret."""
    match = _QUOTING.match(told)
    return told if match is None else f"{match['told']}{match['at'] or ''}"


class Misfit(ValueError):
    """A value that does not fit its type. Never quotes the value, which may be a secret."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("; ".join(f"{told} - at `${_steps(where)}`" for where, told in problems))
        self.problems = tuple(problems)

    def below(self, *where: str | int) -> Misfit:
        """Return the same for a value that is a part of another one."""
        return Misfit([((*where, *path), told) for path, told in self.problems])


def _steps(where: Sequence[str | int]) -> str:
    return "".join(
        f"[{step}]" if isinstance(step, int) or step == KEY else f".{step}" for step in where
    )


def below(step: str | int, problem: Problem) -> Problem:
    """Return a problem of a part as one of the whole."""
    where, told = problem
    return (step, *where), told
