"""Programs: lists of steps, drawn at random, that a pair of stores runs through."""

import random
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")

Step: TypeAlias = tuple[str, dict[str, Any]]
"""A method of `Pair` and its arguments."""
Program: TypeAlias = list[Step]

TTLS = (0.333_333, 1.1, 2.5, 10.0, 10.0, 30.0)
LIVES = (0.0, 1.0, 3.0, 10.0, 30.0)
METAS: tuple[dict[str, str], ...] = ({}, {"host": "one"}, {"host": "two", "läuft": "🌍"})


def draw(chance: random.Random, *, length: int) -> Program:
    """Return a program that depends on `chance` alone."""
    # In most programs, as in practice, all holders of a key agree on its limit.
    limits = chance.choice([(1,), (2,), (3,), (1, 2, 3)])

    def key() -> str:
        # Mostly one key, so that holders and waiters meet.
        return chance.choice("aaaaaab") if chance.random() < 0.9 else "ab"

    def holder() -> str:
        return chance.choice("pqrst")

    def recent() -> int:
        return int(chance.expovariate(0.5))

    def several() -> list[int]:
        return [recent() for _ in range(chance.choice([1, 1, 2, 4]))]

    def wishes() -> dict[str, Any]:
        return {
            "limit": chance.choice(limits),
            "ttl": chance.choice(TTLS),
            "waiting": chance.choice(LIVES),
            "meta": chance.choice(METAS),
        }

    kinds: list[tuple[float, str, Callable[[], dict[str, Any]]]] = [
        (30, "acquire", lambda: {"key": key(), "holder": holder(), **wishes()}),
        (6, "acquire_again", lambda: {"which": recent()}),
        (3, "come_and_go", lambda: {"key": key(), "holder": holder(), "times": 3}),
        (8, "renew", lambda: {"which": several()}),
        (11, "release", lambda: {"which": several()}),
        (4, "release_by_holder", lambda: {"key": key(), "holder": holder()}),
        (7, "mark", lambda: {"which": recent(), "value": chance.choice("vw")}),
        (8, "look", dict),
        (
            3,
            "look",
            lambda: {
                "prefix": chance.choice(["", "a", "ab", "b", "c"]),
                "limit": chance.choice([1, 3, 1000]),
            },
        ),
        (
            3,
            "prune",
            lambda: {"idle": chance.choice([0.0, 1.0, 5.0]), "limit": chance.choice([1, 1000])},
        ),
        (9, "pass_time", lambda: {"seconds": chance.choice([0.000_001, 0.1, 1.0, 2.5])}),
        (6, "pass_time_until_an_end", lambda: {"which": recent(), "before": chance.choice([0, 1])}),
    ]
    weights = [weight for weight, _, _ in kinds]
    drawn = chance.choices(kinds, weights, k=length)
    return [(name, arguments()) for _, name, arguments in drawn]


def shortest(program: list[T], fails: Callable[[list[T]], bool]) -> list[T]:
    """Shorten until nothing more can be left out: a later step may have needed an earlier one."""
    while len(shorter := shorten(program, fails)) < len(program):
        program = shorter
    return program


def shorten(program: list[T], fails: Callable[[list[T]], bool], *, attempts: int = 500) -> list[T]:
    """Leave out steps, large pieces first, as long as the program still fails."""
    size = len(program)
    while size := size // 2:
        start = 0
        while start < len(program) and attempts:
            attempts -= 1
            shorter = program[:start] + program[start + size :]
            if fails(shorter):
                program = shorter
            else:
                start += size
    return program
