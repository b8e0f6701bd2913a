"""What a store keeps about timers and schedules, and what its calls take and answer.

A schedule is a versioned document. The store compares versions and counts runs; the modules beside
this one decide what the documents mean (`documents`, `registration`, `ticks`, `pauses`).
Instants are whole microseconds of the store's clock, durations seconds.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from msgspec import Struct

from tenure.core.bounds import Fence, Instant
from tenure.core.jobs.records import JobRecord, NewJob

__all__ = [
    "BLOCKING_MAX",
    "DECISIONS_MAX",
    "DECLARED_ANEW_AFTER",
    "TIMERS_QUEUE",
    "Commit",
    "CommitOutcome",
    "Committed",
    "Declared",
    "Expected",
    "Room",
    "ScheduleHead",
    "ScheduleList",
    "ScheduleRecord",
    "TickLine",
    "Write",
]

TIMERS_QUEUE: Final = "@timers"
"""The queue of all runs of timers. Triggered runs and reruns wait there."""
DECISIONS_MAX: Final = 100
"""How many lines of history a schedule keeps."""
DECLARED_ANEW_AFTER: Final = 10.0
"""A declaration younger than this many seconds is not rewritten."""
BLOCKING_MAX: Final = 200
"""How many runs a refusal names that fill a room."""


class TickLine(Struct, frozen=True, kw_only=True):
    """A line of a schedule's history: what became of a tick, or of several in a row."""

    like: str = ""
    """If the newest line has the same value, it is extended instead. Empty: never."""
    first: Instant
    """The nominal instant of the first tick."""
    last: Instant
    ticks: Fence = 1
    at: Instant = 0
    """When it was written; the store fills it in."""
    body: str
    """Opaque to the store."""


class ScheduleRecord(Struct, frozen=True, kw_only=True):
    """A schedule as the store has it."""

    name: str
    version: str
    """The id of the commit that wrote it last."""
    definition: str
    """Opaque, and up to 256 KiB; `standing` and `ruler` are opaque, too, and small."""
    standing: str
    ruler: str
    declared: Instant
    """When a replica last declared this ruler."""
    last_run: Instant = 0
    """The nominal instant of the last tick that ran; 0 if none did."""
    last_job: str = ""
    live: Fence = 0
    """Its unfinished runs. The count stops at COUNT_MAX."""
    lines: tuple[TickLine, ...] = ()
    """Its history, newest line first; as many lines as the caller requested."""

    @property
    def latest(self) -> TickLine | None:
        """The newest line of its history."""
        return self.lines[0] if self.lines else None


class ScheduleList(Struct, frozen=True):
    """Schedules, and the store's time when it read them."""

    now: int
    records: list[ScheduleRecord]


class Declared(Struct, frozen=True):
    """The answer to a declaration."""

    now: int
    lost: list[str]
    """Names that do not exist, or for which another ruler is in force."""


class Expected(Struct, frozen=True):
    """The state that a commit was planned from. If it has changed, the commit is stale."""

    name: str
    version: str
    """Empty: the schedule does not exist."""
    silent_for: float | None = None
    """If set, no replica must have declared it for this many seconds."""


class Write(Struct, frozen=True):
    """A document to write. It gets the id of its commit as version."""

    name: str
    standing: str | None
    """None deletes the schedule and its history."""
    ruler: str = ""
    definition: str | None = None
    """None keeps the stored one."""
    above: tuple[str, ...] = ()
    """The schedules that it continues: it takes the latest of their last runs, and the highest of
    their fences."""


class Room(Struct, frozen=True):
    """A limit of unfinished runs of the commit's schedule."""

    most: int
    on: str = ""
    """Only runs on this replica count; empty: all runs, waiting ones included."""
    instead: TickLine | None = None
    """The line to write in place of the run if there is no room. None: refuse the commit."""


class Commit(Struct, frozen=True, kw_only=True):
    """A change of documents together with the run that it starts, as one atomic step."""

    id: str
    """Identifies this commit, and its run. It becomes the version of the documents it writes."""
    name: str
    """The schedule whose run, rooms and lines these are."""
    expects: tuple[Expected, ...] = ()
    writes: tuple[Write, ...] = ()
    declares: bool = False
    """Whether it counts as a declaration of `name`."""
    not_before: int = 0
    run: NewJob | None = None
    tick: int = 0
    """The nominal instant of the run."""
    start_on: str = ""
    """The replica on which the run starts at once; empty: the run waits in its queue."""
    rooms: tuple[Room, ...] = ()
    """Checked in this order."""
    lines: tuple[TickLine, ...] = ()
    """Written in any case, before the line of the run or of a full room."""
    run_line: TickLine | None = None
    """Written with the run."""


CommitOutcome: TypeAlias = Literal["done", "instead", "stale", "early", "gone", "expired", "full"]


class ScheduleHead(Struct, frozen=True):
    """The state of a schedule without its definition: what a tick is decided on.

    A stale commit is answered with the heads that differ from what it expected.
    """

    name: str
    version: str
    """Empty: the schedule does not exist, and the other fields say nothing."""
    standing: str = ""
    ruler: str = ""
    last_run: int = 0
    last_job: str = ""


class Committed(Struct, frozen=True, kw_only=True):
    """The answer to a commit, by `outcome`.

    - done: it was carried out, now or when it was sent before; `run` is its run.
    - instead: `room` is full, so its run was not made; everything else was carried out.

    With all others it was refused, and nothing has changed:

    - stale: a schedule is not as expected; `heads` says how it is.
    - early: it is not yet `not_before`.
    - gone: the store does not know the replica `start_on`, or has declared it dead.
    - expired: that replica has missed its heartbeats.
    - full: `room` is full and has no `instead`; the runs `blocking` fill it.
    """

    outcome: CommitOutcome
    now: int
    run: JobRecord | None = None
    room: int = 0
    blocking: tuple[str, ...] = ()
    heads: tuple[ScheduleHead, ...] = ()
