"""Programs of schedule calls, drawn at random, that a `SchedulePair` runs through."""

import random
from collections.abc import Callable
from typing import Any

from tenure.core.schedules import EVERYTHING
from tests.model import job_programs
from tests.model.programs import Program
from tests.model.schedule_pair import FIRST_RUN

REPLICAS = job_programs.REPLICAS
NAMES = ("s", "s", "s", "s", "s", "ü 日", "ü 日", EVERYTHING + "s")
TTLS = (3.0, 30.0, 100.0)
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


def draw(chance: random.Random, *, length: int) -> Program:
    """Return a program that depends on `chance` alone."""
    # All replicas agree on the bounds in most programs, as they do in life.
    fulls = chance.choice([("skip",), ("hold",), ("cancel",), ("skip", "hold", "cancel")])

    def name() -> str:
        return chance.choice(NAMES)

    def recent() -> int:
        return int(chance.expovariate(0.5))

    def planting() -> dict[str, Any]:
        return {
            "name": name(),
            "digest": chance.choice("aaaabc"),
            "renamed_from": chance.choice([(), (), ("s",), ("never", name()), (name(), name())]),
        }

    def run() -> dict[str, Any]:
        return {
            "task": chance.choice("xy"),
            "queue": chance.choice(job_programs.QUEUES),
            "payload": chance.choice([b"", b"\0p"]),
            "tags": chance.choice([(), (), ("t",)]),
            "timeout": chance.choice([None, None, 3.0]),
            "retention": chance.choice([0.0, 4.0, 60.0]),
            "rerun": chance.random() < 0.5,
        }

    def bound(reason: str) -> tuple[int, str, str] | None:
        if chance.random() < 0.2:
            return None
        return chance.choice([1, 1, 2]), reason, chance.choice(fulls)

    def passed() -> list[tuple[str, str, int]]:
        outcome = chance.choice(["skipped", "missed"])
        return [
            (outcome, chance.choice(["late", "limit"]), chance.choice([1, 3]))
            for _ in range(chance.choice([0, 0, 0, 1, 2]))
        ]

    def move() -> dict[str, Any]:
        return {
            "name": name(),
            "to_in": chance.choice([-1.0, -0.000_001, 0.0, 0.0, 0.0]),
            "due_in": chance.choice([0.0] * 9 + [-1.0, 0.000_001, 2.0]),
            "seen": chance.choice(["here"] * 20 + ["before", "none", "none"]),
            "behind": chance.choice([0] * 19 + [1]),
            "run": run() if chance.random() < 0.85 else None,
            "replica": chance.choice(["", *REPLICAS]),
            "rest": chance.choice([0.0] * 9 + [1.5]),
            "limit": bound("limit"),
            "own": bound("overlap"),
            "passed": passed(),
            "forced": chance.random() < 0.1,
        }

    kinds: list[tuple[float, str, Callable[[], dict[str, Any]]]] = [
        (10, "plant", lambda: {"schedules": [planting() for _ in range(chance.choice([1, 1, 3]))]}),
        (45, "advance", move),
        (6, "advance_again", lambda: {"which": recent()}),
        (
            3,
            "freeze",
            lambda: {
                "name": chance.choice([name(), EVERYTHING]),
                "until_in": chance.choice([None, 1.0, 2.0]),
                "reason": chance.choice(["", "release"]),
            },
        ),
        (3, "thaw", lambda: {"name": chance.choice([name(), EVERYTHING])}),
        (1, "prune_schedules", lambda: {"idle": chance.choice([5.0, 65.0])}),
        (
            2,
            "look_for",
            lambda: {
                "names": chance.choice([None, [EVERYTHING, name()], [name(), "never"]]),
                "limit": chance.choice([1, 2, 1000]),
            },
        ),
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
    weights = [weight for weight, _, _ in kinds]
    drawn = chance.choices(kinds, weights, k=length)
    # Where nobody has joined and nothing was planted, nothing happens.
    first: Program = [("join", {"replica": one, "ttl": 30.0}) for one in REPLICAS]
    planted = chance.choice([{"s"}, {*NAMES}, {*NAMES}])
    begin = [{"name": one, "digest": "a", "renamed_from": ()} for one in sorted(planted)]
    first.append(("plant", {"schedules": begin}))
    return [*first, *((kind, arguments()) for _, kind, arguments in drawn)]


def _next_of(drawn: list[dict[str, Any]]) -> Callable[[], dict[str, Any]]:
    """Return a way to take one after the other; and the first again when they are used up."""
    taken = 0

    def take() -> dict[str, Any]:
        nonlocal taken
        taken += 1
        return drawn[taken % len(drawn)]

    return take
