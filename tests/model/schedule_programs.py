"""Programs of schedule calls, drawn at random, that a `SchedulePair` runs through."""

import random
from collections.abc import Callable
from typing import Any

from tests.model import job_programs
from tests.model.programs import Program
from tests.model.schedule_pair import FIRST_RUN

REPLICAS = job_programs.REPLICAS
NAMES = ("s", "s", "s", "s", "t", "ü 日", "*")
RULERS = ("a", "a", "a", "b", "")
TTLS = (3.0, 30.0, 100.0)
COMMITS_MAX = 3  # in one call
# Calls about jobs that say something about runs too, and how often each is drawn.
ABOUT_JOBS = {
    "insert": 2,
    "leave": 1,
    "claim": 9,
    "claim_again": 2,
    "settle": 10,
    "settle_again": 2,
    "note": 1,
    "recover": 4,
    "find": 2,
    "prune": 2,
    "pass_time": 8,
    "pass_time_until_an_end": 5,
}

Kinds = list[tuple[float, str, Callable[[], dict[str, Any]]]]
"""How often a step is drawn, its name, and how its arguments are."""


def draw(chance: random.Random, *, length: int) -> Program:  # noqa: C901 - a table of its own
    """Return a program that depends on `chance` alone."""
    # In most programs, as in practice, a schedule refuses extra runs in one way.
    likes = chance.choice([(None,), ("full",), ("full", None)])

    def name() -> str:
        return chance.choice(NAMES)

    def recent() -> int:
        return int(chance.expovariate(0.5))

    def expected(of: str) -> tuple[str, str, float | None]:
        which = chance.choice(["here"] * 12 + ["before", "none"])
        return of, which, chance.choice([None] * 9 + [0.0, 5.0, 15.0])

    def write(of: str, others: list[str]) -> dict[str, Any]:
        return {
            "name": of,
            "standing": chance.choice(["one", "two", "", "ü\n"]),
            "ruler": chance.choice(RULERS),
            "definition": chance.choice([None, None, "d", "e" * 300]),
            "above": others,
        }

    def writes(own: str, others: list[str]) -> list[dict[str, Any]]:
        """Return the writes of a tick, a rename, or the end of a schedule."""
        if chance.random() < 0.3:
            return []
        if chance.random() < 0.05:
            return [{**write(own, []), "standing": None}]
        above = chance.choice([others, others, [*others, "never"], []])
        return [write(own, above), *(write(other, []) for other in others[: chance.choice([0, 3])])]

    def commit() -> dict[str, Any]:
        own = name()
        others = chance.choice([[], [], [], [name()], [name(), name()]])
        others = [other for other in dict.fromkeys(others) if other != own]
        return {
            "name": own,
            "expects": [expected(schedule) for schedule in (own, *others)],
            "writes": (written := writes(own, others)),
            "declares": chance.random() < 0.5,
            "not_before_in": chance.choice([0.0] * 9 + [-1.0, 0.000_001, 2.0]),
            "run": None if _ends(written) or chance.random() < 0.2 else run(chance),
            "tick_in": chance.choice([-1.0, -0.000_001, 0.0, 0.0, 1.0]),
            "start_on": chance.choice(["", *REPLICAS]),
            "rooms": chance.choice([[], [room("")], [room(chance.choice(REPLICAS))]])
            + chance.choice([[], [room("")]]),
            "lines": _lines(chance),
        }

    def room(on: str) -> tuple[int, str, str | None]:
        return chance.choice([1, 1, 2]), on, chance.choice(likes)

    def commits() -> list[dict[str, Any]]:
        return [commit() for _ in range(chance.choice([1, 1, 1, COMMITS_MAX]))]

    kinds: Kinds = [
        (55, "commit", lambda: {"commits": commits()}),
        (6, "commit_again", lambda: {"which": recent()}),
        (
            5,
            "declare",
            lambda: {
                "rulers": [(ruled, chance.choice(RULERS)) for ruled in {name(): 0, name(): 0}],
            },
        ),
        (
            2,
            "look_for",
            lambda: {
                "names": chance.choice([None, None, ["*", name()], [name(), "never"]]),
                "after": chance.choice(["", "", "s", "t"]),
                "limit": chance.choice([1, 2, 1000]),
            },
        ),
        *about_runs(chance, length),
    ]
    first = [
        *joined(),
        ("commit", {"commits": [_first_commit(registered) for registered in _registered(chance)]}),
    ]
    return first + drawn(chance, kinds, length)


def _lines(chance: random.Random) -> list[tuple[str, int]]:
    number = chance.choice([0, 0, 0, 1, 2])
    likes = chance.choices(["", "full", "late"], k=number)
    return [(like, chance.choice([1, 3])) for like in likes]


def run(chance: random.Random) -> dict[str, Any]:
    return {
        "task": chance.choice("xy"),
        "queue": chance.choice(job_programs.QUEUES),
        "payload": chance.choice([b"", b"\0p"]),
        "tags": chance.choice([(), (), ("t",)]),
        "timeout": chance.choice([None, None, 3.0]),
        "retention": chance.choice([0.0, 4.0, 60.0]),
        "options": chance.choice(["", "o"]),
    }


def about_runs(chance: random.Random, length: int) -> Kinds:
    """Return the steps about runs and replicas, and the steps about all jobs."""

    def recent() -> int:
        return int(chance.expovariate(0.5))

    kinds: Kinds = [
        (3, "cancel_run", lambda: {"which": recent(), "reason": chance.choice(["", "enough"])}),
        (3, "requeue_run", lambda: {"which": recent()}),
        (
            2,
            "bury",
            lambda: {
                "replica": chance.choice(REPLICAS),
                "started": list(range(FIRST_RUN, FIRST_RUN + length, 2)),
                "delays": chance.choice(job_programs.DELAYS),
            },
        ),
        (8, "join", lambda: {"replica": chance.choice(REPLICAS), "ttl": chance.choice(TTLS)}),
        (6, "beat", lambda: {"replicas": list(REPLICAS), "ttl": chance.choice(TTLS)}),
        (2, "pass_time", lambda: {"seconds": chance.choice([20.0, 61.0])}),
    ]
    jobs = [step for step in job_programs.draw(chance, length=10 * length) if step[0] in ABOUT_JOBS]
    kinds += [
        (weight, kind, _next_of([arguments for drawn, arguments in jobs if drawn == kind]))
        for kind, weight in ABOUT_JOBS.items()
    ]
    return kinds


def joined() -> Program:
    """Return the first steps of programs: without replicas nothing happens."""
    return [("join", {"replica": replica, "ttl": 30.0}) for replica in REPLICAS]


def drawn(chance: random.Random, kinds: Kinds, length: int) -> Program:
    """Return `length` of these steps."""
    chosen = chance.choices(kinds, [weight for weight, _, _ in kinds], k=length)
    return [(kind, arguments()) for _, kind, arguments in chosen]


def _registered(chance: random.Random) -> list[str]:
    return sorted(chance.choice([{"s"}, {*NAMES}, {*NAMES}]))


def _first_commit(name: str) -> dict[str, Any]:
    write = {"name": name, "standing": "zero", "ruler": "a", "definition": "d", "above": []}
    return {
        "name": name,
        "expects": [(name, "none", None)],
        "writes": [write],
        "declares": True,
        "not_before_in": 0.0,
        "run": None,
        "tick_in": 0.0,
        "start_on": "",
        "rooms": [],
        "lines": [],
    }


def _ends(writes: list[dict[str, Any]]) -> bool:
    """Return whether these writes delete the schedule, which then has no run."""
    return any(write["standing"] is None for write in writes)


def _next_of(drawn: list[dict[str, Any]]) -> Callable[[], dict[str, Any]]:
    """Return a function that returns one after the other, and starts over at the end."""
    taken = 0

    def take() -> dict[str, Any]:
        nonlocal taken
        taken += 1
        return drawn[taken % len(drawn)]

    return take
