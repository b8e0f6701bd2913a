"""What a store promises about transactions of the user, on the database of the store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol, TypeAlias

from tenure.core.jobs.records import Inserted, JobRecord, NewJob, Settled, Settlement
from tenure.core.leases import Lease

__all__ = ["Purpose", "UserTransaction"]

Purpose: TypeAlias = Literal["guard()", "within()", "transaction()"]
"""The user's call, for messages."""


class UserTransaction(Protocol):
    """A connection of the user, seen from the store. Errors of its driver are raised unchanged.

    Only `commit` commits. All calls but `begin` and `rollback` raise ConfigError, and change
    nothing, if no transaction is open or the connection leads to another database.
    """

    @property
    def blocks(self) -> bool:
        """Whether it is a synchronous connection: then no call ever waits for an event loop."""
        ...

    async def begin(self, *, on_loop: bool) -> None:
        """Begin a transaction. With `on_loop`, other tasks of the event loop run while it waits.

        Raises ConfigError if one is open already, because ending a nested one commits nothing.
        """
        ...

    async def commit(self) -> None:
        """Commit what `begin` began. Raises ConfigError if the user has ended it meanwhile."""
        ...

    async def rollback(self) -> None:
        """Roll back what `begin` began; harmless if it has ended."""
        ...

    async def insert(self, jobs: Sequence[NewJob]) -> list[Inserted]:
        """Do what the store's `insert` does, as part of the transaction.

        No other connection sees the jobs, and no worker is woken, before the user has committed.
        """
        ...

    async def get(self, ids: Sequence[str]) -> list[JobRecord | None]:
        """Return jobs by id, as the transaction sees them."""
        ...

    async def hold_lease(self, lease: Lease) -> bool:
        """Return whether a lease is held, and lock it until the transaction ends."""
        ...

    async def hold(self, id_: str, fence: int) -> bool:
        """Return whether a job runs under that fence, and lock it until the transaction ends.

        That does not block beats and the recovery of other jobs, unless all writers share one lock.
        """
        ...

    async def settle(self, settlement: Settlement) -> Settled:
        """Do what the store's `settle` does, as part of the transaction."""
        ...
