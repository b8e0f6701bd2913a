"""What stores keep about replicas: their records, heartbeats, and the jobs they leave behind.

A replica is a process that runs work. It renews one record; every job it claims stands on that.
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
    "Beat",
    "Orphans",
    "Recovered",
    "ReplicaRecord",
]

RESTARTS_MAX: Final = 500
"""The most pauses that begin anew with one beat, after the store's clock was set back."""
CANCELS_MAX: Final = 200
"""The most cancels in the answer to one beat; the rest comes with the next ones."""
RESERVED_FOR: Final = 5.0
"""For so many seconds the jobs of a dead replica are left to the replica that looked first."""


class Beat(Struct, frozen=True):
    """The answer to a beat of a replica that is still known."""

    cancels: list[str]
    """Its running jobs with a pending cancel, until they settle; at most CANCELS_MAX."""
    held: int | None
    """How many jobs the store thinks it runs; None: not counted this time."""
    expired: bool
    """Whether `orphans` would find something, for whichever replica."""
    now: int
    """The instant of this answer, by the clock that tells which replicas have expired."""
    more: bool = False
    """Whether more pauses may have to begin anew than the RESTARTS_MAX of this beat: beat again."""


class Orphans(Struct, frozen=True):
    """Jobs that were found to run nowhere, or past their deadline."""

    now: int
    """The instant of this answer, by the store's clock."""
    jobs: list[JobRecord]
    """Running ones, without their payloads, checkpoints, results and errors."""
    aside: list[tuple[str, str]] = []
    """Ids and replicas of jobs that cannot be read. They were set aside."""


class Recovered(Struct, frozen=True, kw_only=True):
    """One job that was taken from a replica that is gone, or that ran past its deadline."""

    id: str
    replica: str
    state: Literal["waiting", "failed", "cancelled"] | None
    """What became of it. None: its record cannot be read; it was set aside."""
    losses: int = 0


class ReplicaRecord(Struct, frozen=True, kw_only=True):
    """A process that runs work."""

    id: str
    meta: Meta
    joined: Instant
    ttl: Length
    expires_in: Span
    """Seconds left when the store answered; 0 or less if it has expired."""
    dead: bool = False
    """Its jobs are being recovered: it cannot come back under this id."""
    held: Fence = 0
