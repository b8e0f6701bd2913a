"""The promise of every store. The store in plain Python is the same promise, executable.

Rules for all calls:

- One call decides one thing, atomically, and may be repeated after a lost reply: the caller made
  the ids before the first send, so nothing is created, counted or ended twice. What a repeat
  answers depends on the call:
  - As the first time: `acquire`, `renew`, `mark`, `beat`, `insert`; `claim` with what still runs;
    `settle` with "repeated", as long as no later attempt has settled; `commit` of a run as long as
    the run is there. A `commit` without a run is stale, and finds its own id as version.
  - As things are now: `release` (False), `cancel` ("finished"), `requeue` ("unfinished"),
    `delete` (None), `orphans` with what is still to be settled, and `prune` with what is left to
    do. The first answer is lost in these cases.
  - Done again: `note` (the revision grows), `pause` (begins anew; with 0 seconds, it ends a
    pause made meanwhile), `declare`, and `requeue` of a job that has finished again meanwhile.
    Tenure itself never repeats a `requeue`.
- The store's clock decides. Durations go in; a virtual clock (`Clock.for_server`) replaces the
  server's for tests. Something that ends at instant t is over *at* t.
- A clock that was set back prolongs nothing by more than its own length: what was renewed in the
  future counts as renewed now. The next `acquire` of a lease key writes that down; `find` need not.
- Nothing a caller passes in is interpreted: names are case-sensitive Unicode, and one namespace
  never sees another.
- Losing is an answer (False, `Busy`, "lost"), not an exception. Errors of a driver become
  `StoreError`, or `StoreUnavailable` if a later try may help.
- A call whose caller is cancelled may still be carried out, but never after a call about the same
  thing (a name, key, job, queue, replica or schedule) that begins later. So a release never
  overtakes the acquire that it undoes.
- A store object belongs to the event loop that opened it; `clone` makes one for another loop.
- A damaged record (`core.bounds`) never fails a call about other records. Lists leave it out,
  batches answer as if it did not exist, and an unfinished job is set aside. `damage` names it.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Literal, Protocol, Self, TypeAlias

from tenure.core.clock import Clock
from tenure.core.jobs.records import Pruned
from tenure.core.leases import Finding, Pong, Topic, Traits
from tenure.stores.contract.jobs import Jobs
from tenure.stores.contract.leases import Leases
from tenure.stores.contract.schedules import Schedules
from tenure.stores.contract.transaction import Purpose, UserTransaction
from tenure.stores.damage import Damage

__all__ = [
    "Jobs",
    "LeaseStore",
    "Leases",
    "Migrate",
    "Purpose",
    "Schedules",
    "Store",
    "UserTransaction",
    "Watch",
]

Migrate: TypeAlias = Literal["auto", "check", "skip"]


class Watch(Protocol):
    """An armed wake-up: a change from now on ends the next `wait`."""

    async def wait(self, timeout: float | None) -> bool:
        """Return True after a wake-up on one of the topics, False after `timeout` seconds.

        A hint only: a wake-up may come without a change, and it may get lost.
        """
        ...


class LeaseStore(Protocol):
    """A connection to a place that keeps at least leases for all replicas of a service."""

    clock: Clock
    namespace: str
    damage: Damage
    """The damaged records that calls of this object have found."""

    @property
    def leases(self) -> Leases:
        """Leases and marks, for locks, semaphores, elections and run-once."""
        ...

    @property
    def url(self) -> str:
        """The URL without its password, for messages."""
        ...

    @property
    def traits(self) -> Traits:
        """The abilities and guarantees of this store. The grade is known once it is open."""
        ...

    async def open(self, migrate: Migrate = "auto") -> None:
        """Connect, and bring the store's format up to date (or, with "check", only look).

        "check" writes nothing, not even an empty file. "skip" does not check the format: for a
        clone, whose original has done so. Opening an open store is harmless, and a closed one can
        be opened again.

        Raises ConfigError when the format is too new or, with "check", not up to date.
        """
        ...

    async def close(self) -> None:
        """Close all connections. Leases stay as they are. Closing twice is harmless."""
        ...

    def abandon(self) -> None:
        """Drop all connections at once, because their event loop is closed."""
        ...

    def clone(self) -> Self:
        """Return an unopened second connection to the same data, for another event loop."""
        ...

    async def ping(self) -> Pong:
        """Return the store's time, and the random id of its data.

        Another id than before means that all earlier data is gone: the server was started without
        its data, or the file or schema was replaced. Where a namespace can be lost alone, it has
        its own id, which this call creates if there is none. The id is empty if the store is too
        full to create it.
        """
        ...

    async def examine(self) -> list[Finding]:
        """Return findings about the server or file of this store: facts and problems.

        Works on an open store and on an unopened one, whose obstacles are among the findings. It
        changes nothing, and does not raise if the store does not answer. Afterwards the grade in
        `traits` is known, if the server or file could be reached.

        The finding "grade" begins with the letter of the grade. The finding "scope" contains the
        word "process", "host" or "machines" (for a fleet).
        """
        ...

    async def prune(self, *, idle: float, limit: int = 1000) -> Pruned:
        """Remove up to `limit` idle keys and `limit` finished jobs. The answer says if more remain.

        Workers and lock keepers call it, with `idle` = 1 hour. A store that removes nothing grows
        by a record for each name that was ever used.

        Leases: keys without holders and waiters, last granted `idle` seconds ago, and whose last
        lease that expired did so `idle` seconds ago or more: the holder of a lock that it has held
        for hours has died, and the next grant must still take over. Fences still grow afterwards.
        Stores that keep nothing for an idle key remove none.

        Jobs: finished ones whose retention is over; also unique keys that are free by now, and
        jobs that were set aside long ago.
        """
        ...

    def watch(self, *topics: Topic) -> AbstractAsyncContextManager[Watch]:
        """Arm a wake-up. Enter it, try once more, then wait, so that no change is missed.

        A wake-up reaches all store objects on the same data, in any process. Without push, poll
        for it: `stores.watchers` has an example.

        If it cannot be armed, it is entered all the same, and each `wait` takes its full time until
        it can: progress never depends on wake-ups.
        """
        ...

    def within(self, connection: object, purpose: Purpose) -> UserTransaction:
        """Take part in the user's own transaction on `connection`, a connection to this database.

        Raises ConfigError if the store has no transactions to take part in, or does not know this
        kind of connection.
        """
        ...


class Store(LeaseStore, Protocol):
    """A connection to a place that keeps leases, jobs and schedules."""

    @property
    def jobs(self) -> Jobs:
        """Jobs, and the replicas that run them."""
        ...

    @property
    def schedules(self) -> Schedules:
        """Timers and schedules."""
        ...
