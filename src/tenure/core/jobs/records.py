"""Records of jobs, and the arguments and answers of the job calls of a store.

Payloads, results, errors and checkpoints are opaque bytes. Instants are whole microseconds of the
store's clock, durations are seconds.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import asdict

from tenure.core.bounds import Counter, Fence, Instant, Length, Priority, Span
from tenure.core.jobs.history import AttemptOutcome
from tenure.core.jobs.states import STATES, JobState

__all__ = [
    "BATCH_BYTES",
    "BATCH_MAX",
    "COUNT_MAX",
    "PRIORITIES",
    "SOON",
    "TAGGED_MAX",
    "Cancelled",
    "Claimed",
    "Deleted",
    "InsertOutcome",
    "Inserted",
    "JobDraft",
    "JobRecord",
    "NewJob",
    "Note",
    "Page",
    "Pruned",
    "QueueCounts",
    "Requeued",
    "Settled",
    "Settlement",
    "Stranded",
    "Tagged",
    "Unique",
    "retention_of",
]

BATCH_MAX: Final = 200
"""The most jobs in one call to a store. Redis serves no other client while it runs a script."""
BATCH_BYTES: Final = 4 * 1024 * 1024
"""The most bytes of payloads or results in one call, so that the store answers within seconds. A
single larger one gets a call of its own.
"""
COUNT_MAX: Final = 10_000
"""Counts stop here, so that the cost of counting a queue does not grow with its length."""
PRIORITIES: Final = range(10)
"""0 is served first."""
SOON: Final = 5.0
"""Idle workers poll at least this often. Jobs due within this time wake them earlier."""

TAGGED_MAX: Final = 1000
"""How many jobs of a tag a count visits, the newest by id."""


class Unique(Struct, frozen=True, kw_only=True):
    """A key that at most one job has at a time."""

    key: str
    digest: str = ""
    """Equal for equal requests. Another digest under the same key is a mismatch."""
    keep: float = 0.0
    """The key is taken until the job has finished, and for at least these seconds after the insert.
    """
    with_job: bool = False
    """Whether the key also stays for the retention of the finished job. Needs a `keep` above 0."""

    @property
    def written_keep(self) -> float:
        """Return `keep` as stores write it: negative for a key that stays with its job."""
        return -self.keep if self.with_job else self.keep


class JobDraft(Struct, frozen=True, kw_only=True):
    """A job before it has an id. Each `with_id` makes another job."""

    task: str
    queue: str = "default"
    priority: int = 5
    payload: bytes = b""
    tags: tuple[str, ...] = ()
    delay: float = 0.0
    """Seconds from the insert until it is due."""
    at: int | None = None
    """The instant at which it is due in place of `delay`, by the store's clock."""
    timeout: float | None = None
    """Seconds from a claim to the deadline of that attempt."""
    retention: float = 0.0
    """Seconds to keep it after it has succeeded or was cancelled."""
    retention_failed: float = 0.0
    """Seconds to keep it after it has failed."""
    options: str = ""
    """Options that only `core.jobs.options` reads. Opaque to stores."""
    unique: Unique | None = None

    def with_id(self, id_: str) -> NewJob:
        """Return the job to insert."""
        return NewJob(id=id_, **asdict(self))


class NewJob(JobDraft, frozen=True, kw_only=True):
    """A job to insert."""

    id: str
    """A UUIDv7 as text, made by the caller, so that a repeated insert has the same id."""
    schedule: str = ""
    """The schedule whose run it is. Only `commit` accepts such a job."""


InsertOutcome: TypeAlias = Literal["created", "existing", "mismatch", "busy"]


class Inserted(Struct, frozen=True, eq=False):
    """The answer for one inserted job."""

    outcome: InsertOutcome
    id: str
    """The job that has the unique key: the inserted job if it was created or is busy."""
    at: int = 0
    """When the store decided this: the `created` of a job that this call created."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Inserted):
            return NotImplemented
        return (self.outcome, self.id) == (other.outcome, other.id)

    def __hash__(self) -> int:
        return hash((self.outcome, self.id))


class JobRecord(Struct, frozen=True, kw_only=True, array_like=True):
    """A job as the store has it. Every store returns columns in the order of these fields."""

    id: str
    task: str
    queue: str
    priority: Priority
    state: JobState
    payload: bytes
    tags: tuple[str, ...] = ()
    timeout: Length | None = None
    retention: Length = 0.0
    retention_failed: Length = 0.0
    options: str = ""
    created: Instant
    due: Instant
    attempt: Counter = 0
    """How often it was claimed. Never decreases."""
    failures: Counter = 0
    losses: Counter = 0
    fence: Fence = 0
    """Grows with every claim and every return to waiting."""
    revision: Fence = 1
    """Grows with every change."""
    replica: str = ""
    """The replica that runs it; empty unless it is running."""
    started: Instant = 0
    """When the current or last attempt was claimed; 0 if there was none."""
    progress: Span | None = None
    message: str = ""
    checkpoint: bytes | None = None
    cancelling: bool = False
    """Whether cancellation was requested. Only while it is running."""
    reason: str = ""
    """Why it is cancelled or being cancelled; or in one word why it failed: "error", "lost"..."""
    finished: Instant = 0
    result: bytes | None = None
    error: bytes | None = None
    """The report of the last failure; removed on success."""
    history: bytes = b""
    """One line per attempt, oldest first; see `core.jobs.history`."""
    schedule: str = ""

    @property
    def kept_for(self) -> float:
        """Seconds for which it is kept once it has finished, by its state."""
        return retention_of(self, self.state)

    def is_due(self, now: int) -> bool:
        """Return whether its due time has come, as far as the record shows.

        A job that was due when it was created or started stays due if the store's clock is set
        back.
        """
        return self.due <= max(now, self.created, self.started)


def retention_of(job: NewJob | JobRecord, state: JobState) -> float:
    """Return how many seconds a job is kept after it has finished in `state`."""
    return job.retention_failed if state == "failed" else job.retention


class Claimed(Struct, frozen=True):
    """The answer to a claim."""

    jobs: list[JobRecord]
    next_in: float | None = None
    """With fewer jobs than requested: seconds until the next one is due, if the store knows."""


class Settlement(Struct, frozen=True, kw_only=True):
    """The end of an attempt and what it changes, as `core.jobs.endings` decides."""

    id: str
    fence: int
    outcome: AttemptOutcome
    state: Literal["waiting", "succeeded", "failed", "cancelled"]
    by: str = ""
    """The replica that settles it, if that is not the replica of the attempt."""
    yields_to_cancel: bool = False
    """Whether a pending cancellation wins. It always does if `state` is "waiting"."""
    delay: float = 0.0
    """Seconds until a waiting job is due; 0: it keeps its due time."""
    failures: Literal[0, 1] = 0
    """Added to the job's failures; `losses` likewise."""
    losses: Literal[0, 1] = 0
    result: bytes | None = None
    """The result of a job that succeeds."""
    error: bytes | None = None
    """None keeps the stored one, unless the job succeeds or fails."""
    reason: str = ""
    """Why it fails or is cancelled; empty keeps the stored one. A success has none."""
    history: bytes | None = None
    """Replaces the stored history; None keeps it."""

    @property
    def mark(self) -> str:
        """Kept by stores with the fence, to recognise a repeated settlement."""
        return self.outcome[0] + self.by

    @property
    def move(self) -> str:
        """Its effects as one word for scripts: a digit each for state, yields, failures and losses.

        The mark follows. The digit of the state is its index in STATES.
        """
        state = STATES.index(self.state)
        return f"{state}{self.yields_to_cancel:d}{self.failures}{self.losses}{self.mark}"


Settled: TypeAlias = Literal["settled", "cancelled", "repeated", "lost", "unreadable"]


class Note(Struct, frozen=True, kw_only=True):
    """A report of a running job. None keeps what is stored."""

    id: str
    fence: int
    progress: float | None = None
    message: str | None = None
    checkpoint: bytes | None = None


class QueueCounts(Struct, frozen=True, kw_only=True):
    """The state of a queue. Counts stop at COUNT_MAX."""

    queue: str
    waiting: int
    running: int
    oldest: float | None = None
    """Seconds since the oldest due job became due; None if none is due."""
    paused_for: float | None = None
    """Seconds until a paused queue resumes; infinite if it waits for `resume`."""
    pause_reason: str = ""
    """Why it was paused, as its caller wrote it."""


class Pruned(Struct, frozen=True):
    """What a `prune` has removed."""

    leases: int
    jobs: int
    more: bool
    """Whether there is more to remove: call again."""


class Tagged(Struct, frozen=True):
    """The number of jobs with a tag, among those that the count visited."""

    unfinished: int
    recent: int
    oldest: float = 0.0
    """Seconds since the oldest of the recent jobs was created."""


Cancelled: TypeAlias = Literal["cancelled", "requested", "finished"]
Requeued: TypeAlias = Literal["requeued", "unfinished", "conflict", "refused"]
Deleted: TypeAlias = Literal["deleted", "running"]


class Stranded(Struct, frozen=True, kw_only=True):
    """An unfinished job that no worker will ever finish without repair."""

    id: str
    why: Literal["unreadable", "orphan"]
    """Why: its unreadable record was set aside, or its replica is unknown to the store, and
    `recover` can take it.
    """
    where: str
    """The table or key that contains it."""
    replica: str = ""
    left: float = 0.0
    """Seconds until a record that was set aside is removed."""


class Page(Struct, frozen=True):
    """A page of a list. It may be short or empty without being the last page."""

    jobs: list[JobRecord]
    cursor: str | None
    """Where the next page begins; None on the last page."""
    stranded: list[Stranded] = []
    """Stranded jobs, if the caller requested them."""
    visited: int = 0
    """How many jobs a search by `id_end` or `error` looked at for this page."""
