"""Programs of what replicas do with schedules, drawn at random, for a `SchedulingPair`."""

import random
from typing import Any

from tenure.core.jobs.options import write_options
from tenure.core.schedules.documents import EVERYTHING
from tests.model.programs import Program
from tests.model.schedule_programs import REPLICAS, Kinds, about_runs, drawn, joined
from tests.model.schedule_programs import run as any_run
from tests.model.scheduling_pair import HANDS

NAMES = ("s", "s", "s", "s", "s", "ü 日", "ü 日", EVERYTHING + "s")
LOST = ("",) * 16 + ("request", "request again", "reply", "reply", "reply again", "reply again")
_ONCE = write_options(rerun=False)


def draw(chance: random.Random, *, length: int) -> Program:
    """Return a program that depends on `chance` alone."""
    # In most programs, as in practice, all replicas agree on the bounds.
    fulls = chance.choice([("skip",), ("hold",), ("cancel",), ("skip", "hold", "cancel")])

    def name() -> str:
        return chance.choice(NAMES)

    def recent() -> int:
        return int(chance.expovariate(0.5))

    def how() -> dict[str, Any]:
        """Return the replica that acts, and whether its answer gets lost."""
        return {"by": chance.randrange(HANDS), "lost": chance.choice(LOST)}

    def registration() -> dict[str, Any]:
        return {
            "name": name(),
            "digest": chance.choice("aaaabc"),
            "renamed_from": chance.choice([(), (), ("s",), ("never", name()), (name(), name())]),
        }

    def run() -> dict[str, Any]:
        return {**any_run(chance), "options": chance.choice(["", _ONCE])}

    def bound(reason: str, *fulls: str) -> tuple[int, str, str] | None:
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
        seen = chance.choice(["here"] * 15 + ["before"] + ["none"] * 4)
        # With a shared cursor, a replica at its bound leaves the tick to others.
        own = fulls if seen == "none" else ("hold",)
        # Ticks of `each="replica"` are mostly bounded on each replica alone.
        limit = None if seen == "none" and chance.random() < 0.6 else bound("limit", *fulls)
        return {
            "name": name(),
            "to_in": chance.choice([-1.0, -0.000_001, 0.0, 0.0, 0.0, 0.0, 1.5]),
            "due_in": chance.choice([0.0] * 9 + [-1.0, 0.000_001, 2.0]),
            "seen": seen,
            "behind": chance.choice([0] * 19 + [1]),
            "run": run() if chance.random() < 0.85 else None,
            "replica": chance.choice(["", *REPLICAS]),
            "rest": chance.choice([0.0] * 9 + [1.5]),
            "limit": limit,
            "own": bound("overlap", *own),
            "passed": passed(),
            "forced": chance.random() < 0.1,
            **how(),
        }

    kinds: Kinds = [
        (
            10,
            "register",
            lambda: {
                "schedules": [registration() for _ in range(chance.choice([1, 1, 3]))],
                **how(),
            },
        ),
        (
            3,
            "declare",
            lambda: {
                "by": chance.randrange(HANDS),
                "rulers": [
                    (ruled, chance.choice("aab")) for ruled in dict.fromkeys([name(), name()])
                ],
            },
        ),
        (45, "advance", move),
        (
            8,
            "advance_again",
            lambda: {
                "which": recent(),
                "is_asked_only": chance.random() < 0.3,
                "by_another": chance.random() < 0.1,
            },
        ),
        (
            4,
            "freeze",
            lambda: {
                "name": chance.choice([name(), EVERYTHING]),
                "until_in": chance.choice([None, 1.0, 2.0]),
                "reason": chance.choice(["", "release"]),
                **how(),
            },
        ),
        (4, "thaw", lambda: {"name": chance.choice([name(), EVERYTHING]), **how()}),
        (1, "reset", lambda: {"name": name(), **how()}),
        (1.5, "forget", lambda: {"idle": chance.choice([5.0, 65.0]), **how()}),
        *about_runs(chance, length),
    ]
    registered = chance.choice([{"s"}, {*NAMES}, {*NAMES}])
    begin = [
        {"name": registered_name, "digest": "a", "renamed_from": ()}
        for registered_name in sorted(registered)
    ]
    first: Program = [*joined(), ("register", {"by": 0, "schedules": begin})]
    return first + drawn(chance, kinds, length)
