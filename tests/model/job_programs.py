"""Programs of job calls, drawn at random, that a `JobPair` runs through."""

import random
from collections.abc import Callable
from typing import Any

from tests.model.programs import Program

REPLICAS = "pqr"
QUEUES = "ab"
KEYS = (None, None, None, "u", "v")
TTLS = (1.1, 3.0, 3.0, 30.0)
DELAYS: tuple[list[float], ...] = ([0.0, 2.0], [0.0, 0.0, 0.0, 0.0], [0.000_3], [], [])
OUTCOMES = ("succeeded", "succeeded", "failed", "retry", "retry", "handed back", "cancelled")


def draw(chance: random.Random, *, length: int) -> Program:  # noqa: C901 - a table of its own
    """Return a program that depends on `chance` alone."""
    # Few jobs, so that each is met in every state; or many, so that their order matters.
    numbers = range(chance.choice([3, 6, 20]))

    def number() -> int:
        return chance.choice(numbers)

    def several() -> list[int]:
        return [number() for _ in range(chance.choice([1, 1, 2, 4]))]

    def recent() -> int:
        return int(chance.expovariate(0.5))

    def job() -> dict[str, Any]:
        return {
            "number": number(),
            "task": chance.choice("xy"),
            "queue": chance.choice(QUEUES),
            "priority": chance.choice([5, 5, chance.randrange(10)]),
            "payload": chance.choice([b"", b"\0p", b"{}"]),
            "tags": chance.choice([(), ("t",), ("s", "t")]),
            "delay": chance.choice([0.0, 0.0, 0.0, 0.000_7, 1.5]),
            "at_in": chance.choice([None, None, None, -1.0, 0.0, 2.0]),
            "timeout": chance.choice([None, None, 3.0]),
            "retention": chance.choice([0.0, 4.0, 60.0]),
            "key": chance.choice(KEYS),
            "digest": chance.choice("ddde"),
            "keep": chance.choice([0.0, 0.0, 6.0]),
        }

    def settlement() -> dict[str, Any]:
        return {
            "which": recent(),
            "outcome": chance.choice(OUTCOMES),
            "delay": chance.choice([0.0, 0.0, 1.0]),
            "result": chance.choice([None, b"", b"r"]),
            "error": chance.choice([None, b"e", b"f"]),
            "reason": chance.choice(["", "", "why"]),
            "history": chance.choice([None, None, b"", b'{"attempt":1}\n']),
        }

    def note() -> dict[str, Any]:
        return {
            "which": recent(),
            "progress": chance.choice([0.0, 0.25, chance.random()]),
            "message": chance.choice([None, "", f"at {chance.randrange(100)}"]),
            "checkpoint": chance.choice([None, b"", b"\0c"]),
        }

    def batch(make: Callable[[], Any]) -> list[Any]:
        return [make() for _ in range(chance.choice([1, 1, 2, 4]))]

    def replica() -> str:
        return chance.choice(REPLICAS)

    def queues() -> list[str]:
        return chance.choice([["a"], ["b"], ["a", "b"], ["b", "a"]])

    def filters() -> dict[str, Any]:
        every = {
            "state": chance.choice(["waiting", "running", "succeeded", "failed", "cancelled"]),
            "queue": chance.choice(QUEUES),
            "task": chance.choice("xy"),
            "tag": chance.choice("st"),
            "replica": replica(),
        }
        return {name: every[name] for name in chance.sample(sorted(every), chance.choice([1, 2]))}

    kinds: list[tuple[float, str, Callable[[], dict[str, Any]]]] = [
        (14, "insert", lambda: {"jobs": batch(job)}),
        (4, "insert_again", lambda: {"which": recent()}),
        (9, "join", lambda: {"replica": replica(), "ttl": chance.choice(TTLS)}),
        (
            5,
            "beat",
            lambda: {
                "replicas": chance.sample(REPLICAS, chance.choice([1, 3])),
                "ttl": chance.choice(TTLS),
            },
        ),
        (2, "leave", lambda: {"replica": replica()}),
        (
            2,
            "bury",
            lambda: {
                "replica": replica(),
                "started": list(numbers[::2]),
                "delays": chance.choice(DELAYS),
            },
        ),
        (
            16,
            "claim",
            lambda: {
                "replica": replica(),
                "queues": queues(),
                "limit": chance.choice([1, 2, 10]),
            },
        ),
        (3, "claim_again", lambda: {"replica": replica()}),
        (1, "claim_with_an_older_number", lambda: {"replica": replica()}),
        (14, "settle", lambda: {"settlements": batch(settlement)}),
        (3, "settle_again", lambda: {"which": recent()}),
        (4, "note", lambda: {"notes": batch(note)}),
        (
            9,
            "recover",
            lambda: {
                "delays": chance.choice(DELAYS),
                "grace": chance.choice([0.0, 1.0]),
                "limit": chance.choice([1, 3, 100]),
            },
        ),
        (6, "cancel", lambda: {"numbers": several(), "reason": chance.choice(["", "enough"])}),
        (6, "requeue", lambda: {"numbers": several()}),
        (2, "delete", lambda: {"numbers": several()}),
        (
            1.5,
            "pause",
            lambda: {"queue": chance.choice(QUEUES), "seconds": chance.choice([None, 2.0])},
        ),
        (1.5, "resume", lambda: {"queue": chance.choice(QUEUES)}),
        (3, "prune", dict),
        (3, "find", lambda: {"filters": filters(), "limit": chance.choice([1, 2, 50])}),
        (10, "pass_time", lambda: {"seconds": chance.choice([0.000_001, 0.001, 0.1, 1.0, 2.5])}),
        (6, "pass_time_until_an_end", lambda: {"which": recent(), "before": chance.choice([0, 1])}),
    ]
    weights = [weight for weight, _, _ in kinds]
    drawn = chance.choices(kinds, weights, k=length)
    # Without replicas nothing happens.
    first = [("join", {"replica": replica, "ttl": 3.0}) for replica in REPLICAS[:2]]
    return [*first, *((name, arguments()) for _, name, arguments in drawn)]
