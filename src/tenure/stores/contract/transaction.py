"""What a store promises about transactions of the user's own, on the database that it lives in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol, TypeAlias

from tenure.core.jobs.records import Inserted, JobRecord, NewJob, Settled, Settlement
from tenure.core.leases import Lease

__all__ = ["Purpose", "UserTransaction"]

Purpose: TypeAlias = Literal["guard()", "within()", "transaction()"]
"""The call of the user's, for messages."""


class UserTransaction(Protocol):
    """A connection of the user's own, seen from the store. What its driver raises leaves as it is.

    Only `commit` commits. All calls but `begin` and `rollback` raise ConfigError, and change
    nothing, if no transaction is open or the connection leads to another database.
    """

    @property
    def blocks(self) -> bool:
        """Whether it is a synchronous connection: then no call ever waits for an event loop."""
        ...

    async def begin(self, *, on_loop: bool) -> None:
        """Begin a transaction; `on_loop`, let others on the event loop run while this waits.

        Raises ConfigError if one is open already: a transaction within it would be no commit.
        """
        ...

    async def commit(self) -> None:
        """End what `begin` began. Raises ConfigError if the user has ended it meanwhile."""
        ...

    async def rollback(self) -> None:
        """Undo what `begin` began; harmless if that has happened."""
        ...

    async def insert(self, jobs: Sequence[NewJob]) -> list[Inserted]:
        """Do what the store's `insert` does, as part of the transaction.

        Nobody else sees the jobs, and nobody is woken, before the user has committed.
        """
        ...

    async def get(self, ids: Sequence[str]) -> list[JobRecord | None]:
        """Return jobs by id, as the transaction sees them."""
        ...

    async def hold_lease(self, lease: Lease) -> bool:
        """Say whether a lease is held, and let nobody take it over before the transaction ends."""
        ...

    async def hold(self, id_: str, fence: int) -> bool:
        """Say whether a job runs under that fence, and let nobody take it before the end.

        Beats, and recovery of other jobs, are not held up by it, unless all writers share one lock.
        """
        ...

    async def settle(self, settlement: Settlement) -> Settled:
        """Do what the store's `settle` does, as part of the transaction."""
        ...
