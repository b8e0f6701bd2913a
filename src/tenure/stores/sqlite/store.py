"""The store object: its parts, and the calls about the whole file."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tenure.core.clock import Clock
from tenure.core.jobs.records import Pruned
from tenure.core.leases import Finding
from tenure.stores.contract import Purpose, UserTransaction
from tenure.stores.sqlite.connection import Connection
from tenure.stores.sqlite.doctor import examine
from tenure.stores.sqlite.finished import prune
from tenure.stores.sqlite.jobs import Jobs
from tenure.stores.sqlite.leases import Leases
from tenure.stores.sqlite.schedules import Schedules
from tenure.stores.sqlite.transaction import SqliteTransaction

__all__ = ["SqliteStore"]


class SqliteStore(Connection):
    """Keeps everything in one file, in write-ahead mode; its clock is the host's."""

    def __init__(self, url: str, *, namespace: str, clock: Clock, path: Path | None = None) -> None:
        super().__init__(url, namespace=namespace, clock=clock, path=path)
        self.leases = Leases(self)
        self.jobs = Jobs(self)
        self.schedules = Schedules(self)

    async def examine(self) -> list[Finding]:
        grade = self.traits.grade
        return await asyncio.to_thread(
            examine, self.path, self.url, self.namespace, self.clock, grade
        )

    async def prune(self, *, idle: float, limit: int = 1000) -> Pruned:
        # In several transactions, because other calls wait for the write lock meanwhile. They need
        # not reach the disk: a later prune repeats what a power loss undoes.
        leases = await self.leases.prune(idle, limit)
        jobs, more = await self.run(lambda tx: prune(tx, limit))
        return Pruned(leases, jobs, more=more or leases == limit)

    def within(self, connection: object, purpose: Purpose) -> UserTransaction:
        return SqliteTransaction(self, connection, purpose)
