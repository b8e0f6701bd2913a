"""Schedules: programs of `tests.model`, divided among several callers and cut into windows.

The calls of one window are made concurrently. A seed decides the program, the caller of each call,
the cuts, and the order in which calls wait or go on.
"""

import random
from collections.abc import Iterable
from typing import Any, NamedTuple

from tests.model import job_programs, programs, schedule_programs, scheduling_programs

CALLERS = 4
STORES = 3
HANDS = 2  # replicas with timers, on the first store objects: so two callers share one
KINDS = ("leases", "jobs", "commits", "timers")
PASSING = ("pass_time", "pass_time_until_an_end")
AT_ITS_REPLY = -1
_POOL = 120
_WINDOWS = 7
_ANYTHING = ("",)
# Themes of windows: mostly calls that could interfere with each other.
_REVIVAL = ("beat", "beat", "recover", "recover", "claim", "settle")
_LEASE_THEMES = (
    ("acquire", "acquire", "release"),
    ("acquire", "renew", "release", "release_by_holder"),
    ("mark", "mark", "release", "acquire", "look"),
    ("acquire", "prune", "acquire_again", "release_by_holder"),
    _ANYTHING,
)
_JOB_THEMES = (
    ("claim", "claim", "claim", "insert", "cancel"),
    ("settle", "settle", "settle_again", "cancel", "note", "recover", "find"),
    ("settle", "settle", "settle_again", "leave", "bury"),
    _REVIVAL,
    ("recover", "recover", "beat", "claim", "bury", "leave", "note", "settle"),
    ("requeue", "requeue", "insert", "insert_again", "prune", "settle"),
    _ANYTHING,
    _ANYTHING,
)
_COMMIT_THEMES = (
    ("commit", "commit", "commit", "commit_again"),
    ("commit", "commit", "settle", "recover", "beat"),
    ("commit", "commit", "claim", "cancel_run", "settle"),
    ("commit", "commit", "declare", "declare", "look_for"),
    ("commit", "leave", "bury", "recover", "settle_again"),
    _ANYTHING,
)
_TIMER_THEMES = (
    ("advance", "advance", "advance", "advance_again"),
    ("advance", "advance", "settle", "recover", "beat"),
    ("advance", "advance", "claim", "cancel_run", "settle"),
    ("register", "register", "advance", "freeze", "thaw"),
    ("register", "register", "register", "advance"),
    ("register", "forget", "advance", "declare", "freeze"),
    ("advance", "leave", "bury", "recover", "settle_again"),
    _ANYTHING,
)
ERRANDS = ("register", "advance", "advance_again", "freeze", "thaw", "forget", "declare")
"""Steps about timers that take a replica several calls; all others are one call."""


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
    """All decisions about a run, made before it starts."""

    kind: str
    seed: int
    steps: tuple[Step, ...]

    def chance(self, window: int) -> random.Random:
        """Return the random numbers of a window, independent of what was left out."""
        return random.Random(f"{self.kind} {self.seed} {window}")


def drawn(kind: str, seed: int, *, cuts: bool = True, windows: bool = True) -> Schedule:
    """Return the schedule of a seed; without windows, one call is made at a time."""
    chance = random.Random(f"{kind} {seed}")
    if kind == "leases":
        pool = _Pool(programs.draw(chance, length=_POOL))
        steps = list(_dealt_out(chance, pool, _LEASE_THEMES))
    elif kind == "commits":
        pool = _Pool(schedule_programs.draw(chance, length=_POOL))
        first = pool.take("join", "join", "join", "commit")
        steps = [Step(0, caller, *step) for caller, step in enumerate(first)]
        steps += _dealt_out(chance, pool, _COMMIT_THEMES)
    elif kind == "timers":
        pool = _Pool(_forward(scheduling_programs.draw(chance, length=_POOL)))
        first = pool.take("join", "join", "join", "register")
        steps = [Step(0, caller, *step) for caller, step in enumerate(first)]
        steps += _dealt_out(chance, pool, _TIMER_THEMES)
    else:
        program = job_programs.draw(chance, length=_POOL)
        pool = _Pool(_crowded(program, chance.choice([2, 3, 5])))
        first = [("join", {"replica": replica, "ttl": 3.0}) for replica in job_programs.REPLICAS]
        first += pool.take("insert", "insert", "insert")
        steps = [Step(0, caller % CALLERS, *step) for caller, step in enumerate(first)]
        steps += _dealt_out(chance, pool, _JOB_THEMES)
    if not windows:
        steps = [step._replace(window=number) for number, step in enumerate(steps)]
    if cuts and chance.random() < 0.8:  # some run without cuts, to get further
        steps = [_perhaps_cut(chance, step) for step in steps]
    return Schedule(kind, seed, tuple(steps))


class _Pool:
    """The steps of a program, to be taken by name."""

    def __init__(self, program: programs.Program) -> None:
        self._left = list(program)

    def take(self, *names: str) -> programs.Program:
        """Return the next step of each name, if there is one; an empty name takes any step."""
        taken = []
        for name in names:
            fitting = (step for step in self._left if not name or step[0] == name)
            if step := next((step for step in fitting if name or step[0] not in PASSING), None):
                self._left.remove(step)
                taken.append(step)
        return taken


def _forward(program: programs.Program) -> programs.Program:
    """Return the program without steps that may set a cursor back, so that each tick runs once."""
    steps = [(name, dict(arguments)) for name, arguments in program if name != "reset"]
    for name, arguments in steps:
        if name == "advance":
            arguments["to_in"] = min(0.0, arguments["to_in"])
    return steps


def _crowded(program: programs.Program, jobs: int) -> programs.Program:
    """Return the program on this many jobs only, so that calls meet."""

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
    chance: random.Random, pool: _Pool, themes: tuple[tuple[str, ...], ...]
) -> Iterable[Step]:
    """Return windows of related calls, with time in between."""
    for window in range(1, _WINDOWS + 1):
        theme = chance.choice(themes)
        if theme is _REVIVAL:  # when replicas have expired
            yield Step(2 * window, 0, "pass_time", {"seconds": 3.1})
        elif chance.random() < 0.4:
            for step in pool.take(chance.choice(PASSING)):
                yield Step(2 * window, 0, *step)
        names = [chance.choice(theme) for _ in range(chance.choice([2, 3, 3, 4]))]
        callers = chance.sample(range(CALLERS), CALLERS)
        for caller, (name, arguments) in zip(callers, pool.take(*names), strict=False):
            # Each caller claims for itself: a replica has one claim under way, on one store.
            replica = job_programs.REPLICAS[caller % STORES]
            own = {"replica": replica} if name.startswith("claim") else {}
            yield Step(2 * window + 1, caller, name, {**arguments, **own})


def _perhaps_cut(chance: random.Random, step: Step) -> Step:
    if step.name in PASSING or chance.random() < 0.7:  # most calls are not cut
        return step
    # The first points are those before any effect, the last ones are different for each call.
    at = chance.choice([0, 1, 2, 3, 5, 8, 13, AT_ITS_REPLY, AT_ITS_REPLY, AT_ITS_REPLY])
    return step._replace(cut=chance.choice(["break", "break", "cancel"]), at=at)
