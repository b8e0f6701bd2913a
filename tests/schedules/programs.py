"""Schedules: programs of `tests.model`, dealt out to several callers and cut into windows.

The calls of one window are made concurrently. A seed decides the program, who makes which call,
what is cut where, and in which order everything waits or goes on.
"""

import random
from collections.abc import Iterable
from typing import Any, NamedTuple

from tests.model import job_programs, programs

CALLERS = 4
STORES = 3
KINDS = ("leases", "jobs")
PASSING = ("pass_time", "pass_time_until_an_end")
AT_ITS_REPLY = -1
_STEPS = {"leases": 18, "jobs": 22}


class Step(NamedTuple):
    """One call, or time that passes."""

    window: int
    caller: int
    name: str
    arguments: dict[str, Any]
    cut: str = ""
    """Empty, "break" (its connection) or "cancel" (its caller)."""
    at: int = 0
    """After how many of the points at which it is held up it is cut, or AT_ITS_REPLY."""

    def __str__(self) -> str:
        cut = f", {self.cut} at {self.at}" if self.cut else ""
        return f"window {self.window}, caller {self.caller}{cut}: {self.name} {self.arguments}"


class Schedule(NamedTuple):
    """All that is decided before anything happens."""

    kind: str
    seed: int
    steps: tuple[Step, ...]

    def chance(self, window: int) -> random.Random:
        """Return what decides the order within a window, whatever else was left out."""
        return random.Random(f"{self.kind} {self.seed} {window}")


def drawn(kind: str, seed: int, *, cuts: bool = True, windows: bool = True) -> Schedule:
    """Return the schedule of a seed; without windows, one call is made at a time."""
    chance = random.Random(f"{kind} {seed}")
    draw = programs.draw if kind == "leases" else job_programs.draw
    program = draw(chance, length=_STEPS[kind])
    if kind == "jobs":
        program = _crowded(program, chance.choice([2, 3, 5]))
    steps = _dealt_out(chance, program, windows=windows)
    if cuts and chance.random() < 0.8:  # some go well, to reach further
        steps = (_perhaps_cut(chance, step) for step in steps)
    return Schedule(kind, seed, tuple(steps))


def _crowded(program: programs.Program, jobs: int) -> programs.Program:
    """Return the same about only so many jobs, so that calls meet."""

    def fewer(arguments: dict[str, Any]) -> dict[str, Any]:
        fewer = dict(arguments)
        for name in ("numbers", "started"):
            if name in fewer:
                fewer[name] = list(dict.fromkeys(number % jobs for number in fewer[name]))
        if "jobs" in fewer:
            fewer["jobs"] = [{**job, "number": job["number"] % jobs} for job in fewer["jobs"]]
        return fewer

    return [(name, fewer(arguments)) for name, arguments in program]


def _dealt_out(
    chance: random.Random, program: programs.Program, *, windows: bool
) -> Iterable[Step]:
    window = room = 0
    callers: list[int] = []
    for name, arguments in program:
        if name in PASSING:
            window, room = window + 1, 0
            yield Step(window, 0, name, arguments)
            continue
        if room == 0:
            window += 1
            room = chance.choice([2, 3, 3, 4]) if windows else 1
            callers = chance.sample(range(CALLERS), CALLERS)
        room -= 1
        yield Step(window, callers[room], name, arguments)


def _perhaps_cut(chance: random.Random, step: Step) -> Step:
    if step.name in PASSING or chance.random() < 0.7:  # most calls go well
        return step
    # The first points are those before any effect, the last ones are different for each call.
    at = chance.choice([0, 1, 2, 3, 5, 8, 13, AT_ITS_REPLY, AT_ITS_REPLY, AT_ITS_REPLY])
    return step._replace(cut=chance.choice(["break", "break", "cancel"]), at=at)
