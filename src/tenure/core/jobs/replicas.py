"""Records of replicas, their heartbeats, and the jobs that dead replicas leave behind.

A replica is a process that runs jobs or timers. It renews one record, and all its claims depend on
that record.
"""

from __future__ import annotations

from typing import Final, Literal

from msgspec import Struct

from tenure.core.bounds import Fence, Instant, Length, Span
from tenure.core.jobs.records import JobRecord
from tenure.core.leases import Meta

__all__ = [
    "CANCELS_MAX",
    "RESERVED_FOR",
    "RESTARTS_MAX",
    "STATS_FOR",
    "STATS_MAX",
    "Beat",
    "Orphans",
    "Recovered",
    "ReplicaRecord",
    "Stats",
]

RESTARTS_MAX: Final = 500
"""The most delays that one beat restarts after the store's clock was set back."""
CANCELS_MAX: Final = 200
"""The most cancellations in the answer to one beat. More come with the next beats."""
RESERVED_FOR: Final = 5.0
"""For how many seconds the jobs of a dead replica are reserved for the first recovery."""
STATS_FOR: Final = 3600.0
"""For how many seconds a store keeps what a beat has left there."""
STATS_MAX: Final = 1000
"""The most values in one answer."""


class Stats(Struct, frozen=True):
    """A value that a worker leaves in the store for readers. Opaque to stores."""

    source: str
    """The worker, which keeps this name if its replica is declared dead and joins again."""
    body: bytes


class Beat(Struct, frozen=True):
    """The answer to a beat of a replica that the store knows."""

    cancels: list[str]
    """Its running jobs with a requested cancellation, at most CANCELS_MAX."""
    held: int | None
    """How many running jobs of it the store has; None: not counted this time."""
    expired: bool
    """Whether `orphans` would find jobs, of any replica."""
    now: int
    """The instant of this answer, by the clock that expires replicas."""
    more: bool = False
    """Whether more delays must restart than RESTARTS_MAX. Beat again at once then."""


class Orphans(Struct, frozen=True):
    """Jobs whose replica is dead, or that ran past their deadline."""

    now: int
    """The instant of this answer, by the store's clock."""
    jobs: list[JobRecord]
    """Running jobs, without payloads, checkpoints, results and errors."""
    aside: list[tuple[str, str]] = []
    """Ids and replicas of unreadable jobs, which were set aside."""
    dead: list[str] = []
    """Replicas that this call has marked as dead, and no call before it. With or without jobs."""


class Recovered(Struct, frozen=True, kw_only=True):
    """A job that was taken from a dead replica, or that ran past its deadline."""

    id: str
    replica: str
    state: Literal["waiting", "failed", "cancelled"] | None
    """Its new state. None: its record cannot be read and was set aside."""
    losses: int = 0


class ReplicaRecord(Struct, frozen=True, kw_only=True):
    """A process that runs jobs or timers."""

    id: str
    meta: Meta
    joined: Instant
    ttl: Length
    expires_in: Span
    """Seconds until it expires, as of the answer; 0 or less if it has expired."""
    dead: bool = False
    """Whether it was declared dead: it cannot come back under this id."""
    held: Fence = 0
