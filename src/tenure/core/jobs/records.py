"""What stores keep about jobs, and what the job calls of the contract take and answer.

Payloads, results, errors and checkpoints are bytes that no store looks into. Instants are whole
microseconds of the store's clock, durations seconds.
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
"""The most jobs in one call to a store. Nobody else is served while Redis runs a script."""
BATCH_BYTES: Final = 4 * 1024 * 1024
"""The most bytes of payloads or results in one call, but for a single larger one: a call has to be
answered within seconds."""
COUNT_MAX: Final = 10_000
"""Counts stop here, so that looking at a queue costs the same however long it is."""
PRIORITIES: Final = range(10)
"""0 is served first."""
SOON: Final = 5.0
"""Who waits for jobs looks at least so often; what is due within this time wakes them earlier."""

TAGGED_MAX: Final = 1000
"""So many jobs of a tag are looked at when they are counted, the newest by id."""


class Unique(Struct, frozen=True, kw_only=True):
    """A key that at most one job has at a time."""

    key: str
    digest: str = ""
    """What makes two requests the same; another one under the same key is a mismatch."""
    keep: float = 0.0
    """The key is taken until the job has finished, and at least for so long after the insert."""
    with_job: bool = False
    """Whether it is taken for the retention of the finished job too; only with a `keep` above 0."""

    @property
    def written_keep(self) -> float:
        """Return `keep` as stores write it: negative for a key that stays with its job."""
        return -self.keep if self.with_job else self.keep


class JobDraft(Struct, frozen=True, kw_only=True):
    """What a job is to be, before it has an id. Each `with_id` makes another job of it."""

    task: str
    queue: str = "default"
    priority: int = 5
    payload: bytes = b""
    tags: tuple[str, ...] = ()
    delay: float = 0.0
    """Seconds from the insert until it is due."""
    at: int | None = None
    """The instant at which it is due instead, by the store's clock."""
    timeout: float | None = None
    """Seconds from a claim to the deadline of that attempt."""
    retention: float = 0.0
    """Seconds to keep it after it has succeeded or was cancelled."""
    retention_failed: float = 0.0
    """Seconds to keep it after it has failed."""
    options: str = ""
    """What only `core.jobs.options` reads. Opaque to stores."""
    unique: Unique | None = None

    def with_id(self, id_: str) -> NewJob:
        """Return the job to insert."""
        return NewJob(id=id_, **asdict(self))


class NewJob(JobDraft, frozen=True, kw_only=True):
    """A job to insert."""

    id: str
    """A UUIDv7 in text form, made by the caller: a repeat of the insert has the same one."""
    schedule: str = ""
    """The schedule whose run it is; only `commit` takes such a job."""


InsertOutcome: TypeAlias = Literal["created", "existing", "mismatch", "busy"]


class Inserted(Struct, frozen=True, eq=False):
    """The answer for one inserted job. Two are equal that say the same of the same job."""

    outcome: InsertOutcome
    id: str
    """The job that has the unique key; the inserted one itself if it was created, or busy."""
    at: int = 0
    """When the store decided this. A job that was created by this call has it as `created`."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Inserted):
            return NotImplemented
        return (self.outcome, self.id) == (other.outcome, other.id)

    def __hash__(self) -> int:
        return hash((self.outcome, self.id))


class JobRecord(Struct, frozen=True, kw_only=True, array_like=True):
    """A job as the store has it. The order of its fields is that of columns, in every store."""

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
    """How often it was claimed. Never falls."""
    failures: Counter = 0
    losses: Counter = 0
    fence: Fence = 0
    """Grows with every claim and every return to waiting."""
    revision: Fence = 1
    """Grows with every change."""
    replica: str = ""
    """Where it runs; empty unless it is running."""
    started: Instant = 0
    """When the present or last attempt was claimed; 0 if there was none."""
    progress: Span | None = None
    message: str = ""
    checkpoint: bytes | None = None
    cancelling: bool = False
    """Whether a cancel is pending; only while it is running."""
    reason: str = ""
    """Why it was cancelled or is to be; or, in a word, why it failed: "error", "lost"..."""
    finished: Instant = 0
    result: bytes | None = None
    error: bytes | None = None
    """What the last failure left; gone when it succeeds."""
    history: bytes = b""
    """One line per attempt, oldest first; see `core.jobs.history`."""
    schedule: str = ""

    @property
    def kept_for(self) -> float:
        """Seconds for which it is kept, if it finishes, or has finished, in its state."""
        return retention_of(self, self.state)

    def is_due(self, now: int) -> bool:
        """Return whether it need not wait for its time, as far as the record tells.

        What was due when it was created or started is due, even if the store's clock was set back.
        """
        return self.due <= max(now, self.created, self.started)


def retention_of(job: NewJob | JobRecord, state: JobState) -> float:
    """Return for how many seconds a job is kept that finishes in a state."""
    return job.retention_failed if state == "failed" else job.retention


class Claimed(Struct, frozen=True):
    """The answer to a claim."""

    jobs: list[JobRecord]
    next_in: float | None = None
    """If fewer jobs than asked for: seconds until the next one is due, as far as is known."""


class Settlement(Struct, frozen=True, kw_only=True):
    """How one attempt ended and what that changes, as `core.endings` has decided it."""

    id: str
    fence: int
    outcome: AttemptOutcome
    state: Literal["waiting", "succeeded", "failed", "cancelled"]
    by: str = ""
    """The replica that settles it, if the attempt is not its own."""
    yields_to_cancel: bool = False
    """Whether a pending cancel makes it cancelled. It always does if `state` is "waiting"."""
    delay: float = 0.0
    """Seconds until a waiting job is due; 0: it keeps its due time."""
    failures: Literal[0, 1] = 0
    """How many to add; `losses` alike."""
    losses: Literal[0, 1] = 0
    result: bytes | None = None
    """Of a job that finishes."""
    error: bytes | None = None
    """None leaves it as it is, unless the job succeeds or fails."""
    reason: str = ""
    """Why it fails or is cancelled; empty leaves what is stored. A success has none."""
    history: bytes | None = None
    """Replaces what is stored; None leaves it."""

    @property
    def mark(self) -> str:
        """What a store keeps of it, beside the fence, to recognise a repeat."""
        return self.outcome[0] + self.by

    @property
    def move(self) -> str:
        """What it changes, in a word for scripts: state, yields, failures, losses, mark.

        One digit each, then the mark. The state is its place in STATES.
        """
        state = STATES.index(self.state)
        return f"{state}{self.yields_to_cancel:d}{self.failures}{self.losses}{self.mark}"


Settled: TypeAlias = Literal["settled", "cancelled", "repeated", "lost", "unreadable"]


class Note(Struct, frozen=True, kw_only=True):
    """What a running job says about itself. None leaves a part as it is."""

    id: str
    fence: int
    progress: float | None = None
    message: str | None = None
    checkpoint: bytes | None = None


class QueueCounts(Struct, frozen=True, kw_only=True):
    """How a queue stands. Counts stop at COUNT_MAX."""

    queue: str
    waiting: int
    running: int
    oldest: float | None = None
    """Seconds since the job that waits longest became due; None if none is due."""
    paused_for: float | None = None
    """Seconds until a paused queue resumes; infinite if that takes a `resume`."""
    pause_reason: str = ""
    """Why it was paused, in the words of the caller that did so."""


class Pruned(Struct, frozen=True):
    """How much a `prune` has removed."""

    leases: int
    jobs: int
    more: bool
    """Whether there is more to remove: call again."""


class Tagged(Struct, frozen=True):
    """How many jobs have a tag, as far as was looked."""

    unfinished: int
    recent: int
    oldest: float = 0.0
    """Seconds since the oldest of the recent ones was created."""


Cancelled: TypeAlias = Literal["cancelled", "requested", "finished"]
Requeued: TypeAlias = Literal["requeued", "unfinished", "conflict", "refused"]
Deleted: TypeAlias = Literal["deleted", "unfinished"]


class Stranded(Struct, frozen=True, kw_only=True):
    """An unfinished job that no worker will ever finish as things are."""

    id: str
    why: Literal["unreadable", "orphan"]
    """It was set aside, because its record cannot be read. Or it runs on a replica that the store
    does not know: `recover` takes it from there."""
    where: str
    """The table or the key that has it."""
    replica: str = ""
    left: float = 0.0
    """Of one that was set aside: seconds until it is removed."""


class Page(Struct, frozen=True):
    """A part of a list. It may be short, even empty, and still not be the last one."""

    jobs: list[JobRecord]
    cursor: str | None
    """Where the next page begins; None at the end."""
    stranded: list[Stranded] = []
    """If it was asked for these: unfinished jobs that nobody can finish."""
