"""Many schedules on one kind of store: their results, and whether enough happened in them."""

import os
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.interleavings.postgres_rig import PostgresRig
from tests.interleavings.programs import Schedule, drawn
from tests.interleavings.redis_rig import RedisRig
from tests.interleavings.scheduler import Rig, Run, ViolationError
from tests.interleavings.sqlite_rig import SqliteRig
from tests.model.programs import shortest
from tests.rig.servers import Postgres, Valkey
from tests.sim.shorten import interpreter

FAMILIES = ("sqlite", "redis", "postgres")
COLUMNS = (
    "schedules",
    "calls",
    "calls that overlapped",
    "statements",
    "blocked statements",
    "scripts forgotten",
    "cuts before",
    "cuts after",
    "cuts amidst",
    "cancelled",
    "calls without an answer",
    "repeats",
    "orders tried",
)

# Minimum counts per schedule, about half of the usual ones: fewer would show nothing.
_FLOORS = {
    "calls": 9.0,
    "calls that overlapped": 6.0,
    "statements": 20.0,
    "cuts before": 0.15,
    "cuts after": 0.25,
    "cancelled": 0.2,
    "repeats": 0.8,
    "orders tried": 25.0,
}
_FLOORS_OF = {
    "sqlite": {"blocked statements": 1.5},
    "postgres": {"blocked statements": 0.2, "cuts amidst": 0.02},
    "redis": {"scripts forgotten": 0.5, "cuts amidst": 0.02},
}


@contextmanager
def running(family: str, url: str | None = None) -> Iterator[Rig]:
    """Open a rig on a file or server of its own, or on an empty database for it alone."""
    with ExitStack() as stack:
        if family == "sqlite":
            memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # a folder in it
            folder = stack.enter_context(tempfile.TemporaryDirectory(dir=memory))
            yield stack.enter_context(SqliteRig(Path(folder)).running())
        elif family == "redis":
            url = url or stack.enter_context(Valkey()).url
            yield stack.enter_context(RedisRig(url).running())
        else:
            url = url or stack.enter_context(Postgres()).url
            yield stack.enter_context(PostgresRig(url).running())


@dataclass
class Sum:
    """The results of some schedules."""

    counts: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    failed: list[tuple[Schedule, str]] = field(default_factory=list)

    def add(self, other: "Sum") -> None:
        self.counts += other.counts
        self.seconds += other.seconds
        self.failed += other.failed

    def missing(self, family: str) -> list[str]:
        """Return the counts that are too low."""
        schedules = self.counts["schedules"]
        floors = {**_FLOORS, **_FLOORS_OF[family]}
        return [
            f"{what}: {self.counts[what]} in {schedules} schedules, at least {most * schedules:.0f}"
            for what, most in floors.items()
            if self.counts[what] < most * schedules
        ]


def run_many(
    family: str,
    kind: str,
    seeds: Sequence[int],
    *,
    url: str | None = None,
    failures: int = 10,
    **how: Any,
) -> Sum:
    """Run the schedules of some seeds; stop after a number of failures."""
    total = Sum()
    left = list(seeds)
    began = time.perf_counter()
    while left and len(total.failed) < failures:
        with running(family, url) as rig:
            # A store that failed is not used for the next schedule.
            failed = False
            while left and not failed:
                schedule = drawn(kind, left.pop(0), **how)
                if (why := violation(schedule, rig)) is not None:
                    total.failed.append((schedule, str(why)))
                    failed = True
            total.counts += rig.counts
    total.seconds = time.perf_counter() - began
    return total


def violation(schedule: Schedule, rig: Rig) -> ViolationError | None:
    """Run a schedule; return where the store differed from the specification, if it did."""
    try:
        Run(schedule, rig).go()
    except ViolationError as why:
        with suppress(ViolationError):  # it may hang forever
            rig.drain()
        rig.finished()
        return why
    return None


def shortened(schedule: Schedule, rig: Rig) -> Schedule:
    """Leave out calls and cuts as long as the store still differs."""

    def fails(steps: list[Any]) -> bool:
        return violation(schedule._replace(steps=tuple(steps)), rig) is not None

    steps = shortest(list(schedule.steps), fails)
    for place, step in enumerate(steps):
        if step.cut:
            uncut = [*steps[:place], step._replace(cut=""), *steps[place + 1 :]]
            steps = uncut if fails(uncut) else steps
    return schedule._replace(steps=tuple(steps))


def replay_command(family: str, schedule: Schedule) -> str:
    """Return the command that runs the schedule again."""
    which = f"--store {family} --kind {schedule.kind} --seed {schedule.seed}"
    return f"{interpreter()} -m tests.interleavings {which}"
