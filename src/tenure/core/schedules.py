"""What stores keep about timers and schedules, and what the calls of the contract take and answer.

A schedule has a cursor: the nominal instant of its last tick that was decided. Ticks at or below it
can never run again. Definitions are bytes that no store looks into. Instants are whole microseconds
of the store's clock, durations seconds.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from msgspec import Struct

from tenure.core.records import JobRecord, NewJob
from tenure.core.soundness import Fence, Instant

__all__ = [
    "DECISIONS_MAX",
    "DECLARED_FOR",
    "DIGESTS_MAX",
    "EVERYTHING",
    "TIMERS_QUEUE",
    "Advance",
    "Advanced",
    "Bound",
    "Decision",
    "Freeze",
    "Full",
    "Moved",
    "Planted",
    "Planting",
    "ScheduleRecord",
]

EVERYTHING: Final = "*"
"""The name under which all schedules are frozen at once."""
TIMERS_QUEUE: Final = "@timers"
"""The queue of all runs of timers. Those wait there that were triggered, or that run again."""
DECLARED_FOR: Final = 60.0
"""Seconds for which a definition rules after somebody has planted it or moved its cursor."""
DIGESTS_MAX: Final = 10
"""How many earlier definitions of a schedule are known again."""
DECISIONS_MAX: Final = 100
"""How many decisions of a schedule are remembered."""


class Planting(Struct, frozen=True, kw_only=True):
    """A schedule as a replica declares it."""

    name: str
    digest: str
    """Tells one definition from another."""
    calendar: str = ""
    """The same for definitions with the same ticks: the next one goes on where one was."""
    definition: bytes
    renamed_from: tuple[str, ...] = ()


class Planted(Struct, frozen=True, kw_only=True):
    """How a declared schedule stands."""

    revision: int
    """Under which to move its cursor; 0: another definition rules, leave it alone."""
    cursor: int
    last_run: int = 0
    """The nominal instant of the last tick that ran; 0 if none did."""
    now: int


class Decision(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of a tick; or of several in a row that came to the same, without a run."""

    outcome: Literal["ran", "skipped", "missed"]
    reason: str = ""
    first: Instant
    """The nominal instant of the first of them."""
    last: Instant
    ticks: Fence = 1
    at: Instant = 0
    """When it was decided; the store fills it in."""
    job: str = ""
    """The run."""
    replica: str = ""
    """Where the run was born; empty if it had to wait for somebody."""


Full: TypeAlias = Literal["skip", "hold", "cancel"]


class Bound(Struct, frozen=True, kw_only=True):
    """How many unfinished runs there may be, and what happens to a tick that is one too many."""

    most: int
    reason: str
    full: Full
    """Skip it; or hold it, so that somebody tries again; or cancel the others, and hold it."""


class Advance(Struct, frozen=True, kw_only=True):
    """A move of a schedule's cursor, together with what it causes."""

    id: str
    """Names this very move, so that a repeat is recognised; that of `run`, if there is one."""
    name: str
    revision: int
    seen: int | None = None
    """The cursor that it was planned from. None: the cursor does not count, and stays."""
    to: int
    """The nominal instant of the tick: the new cursor, not before `seen`."""
    due: int
    """Refused before this instant."""
    run: NewJob | None = None
    replica: str = ""
    """Where the run is born running; empty: it waits in its queue."""
    rest: float = 0.0
    """Refused until the last run has finished, and so long after that."""
    limit: Bound | None = None
    """Over all unfinished runs of the schedule."""
    own: Bound | None = None
    """Over those that run on `replica`."""
    passed: tuple[Decision, ...] = ()
    """Ticks that do not run, and why; oldest first."""
    forced: bool = False
    """Whether it runs although the schedule is frozen."""


Moved: TypeAlias = Literal["done", "skipped", "held", "passed", "early", "gone", "unknown"]


class Advanced(Struct, frozen=True, kw_only=True):
    """The answer to a move.

    done: it happened. skipped: the cursor has moved, the run was not made; `reason` says why.
    Nothing has changed otherwise - held: there is no room now (or the replica has expired), try
    again. passed: somebody else has moved the cursor, or another definition rules. early: try
    again in `ready_in` seconds. gone: there is no such replica. unknown: nor such a schedule.
    """

    outcome: Moved
    cursor: int = 0
    """Where it is now."""
    revision: int = 0
    """Of the definition that rules."""
    last_run: int = 0
    now: int
    reason: str = ""
    ready_in: float = 0.0
    run: JobRecord | None = None


class Freeze(Struct, frozen=True, kw_only=True):
    """A pause of one schedule, or of all."""

    since: Instant
    until: Instant | None = None
    """Ticks before this instant are skipped; None: all of them."""
    reason: str = ""


class ScheduleRecord(Struct, frozen=True, kw_only=True):
    """A schedule as the store has it."""

    name: str
    revision: Fence
    definition: bytes
    cursor: Instant
    last_run: Instant = 0
    last_job: str = ""
    live: Fence = 0
    """Its unfinished runs."""
    planted: Instant
    """When it was first planted."""
    declared: Instant
    """When somebody who declares it was last heard of."""
    successor: str = ""
    """Its new name, if it was renamed."""
    freeze: Freeze | None = None
    """Its own; the one of EVERYTHING is asked for by that name."""
    latest: Decision | None = None
