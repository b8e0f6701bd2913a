"""Books, once per job: python -m tests.process.accountant ROLE URL NAMESPACE TABLE ...

order MOMENT   write an order and enqueue its job in one transaction; die "before" or "after" the
               commit, as a crash would have it
work           work; each job writes one line in the transaction that settles it
"""

import asyncio
import logging
import os
import random
import sqlite3
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
from msgspec.structs import asdict

from tenure import AttemptOver, Backoff, Task, Tenure, current_job
from tests.process.doomed import die
from tests.rig.stdio import tell

_SQLITE = "sqlite:///"
_LOOK_EVERY = 0.02


class Accounts:
    """The tasks, and a table of the user's own in the database of the store."""

    def __init__(self, app: Tenure, url: str, table: str) -> None:
        self.url = url
        self.insert = f"INSERT INTO {table} VALUES ('%s', {os.getpid()})"
        retry = Backoff(max_attempts=1000, base=0.01, cap=0.01)
        self.book: Task[[], int] = app.task(self._book, name="book", retry=retry)
        self.book_later = app.task(self._book_later, name="book_later", retry=None)

    async def _book(self) -> int:
        """Write one line, at a random moment."""
        job, chance = current_job(), random.Random()
        await asyncio.sleep(chance.uniform(0, 0.1))
        async with connected(self.url) as connection, job.transaction(connection) as done:
            await execute(connection, self.insert % job.id)
            # Others wait for the file meanwhile.
            await asyncio.sleep(chance.uniform(0, 0.002 if self.url.startswith(_SQLITE) else 0.1))
            done.result(os.getpid())
        await asyncio.sleep(chance.uniform(0, 0.05))
        return -1

    def _book_later(self, gate: str) -> int:
        """Wait for the gate of this attempt, deaf to everything, and write one line then."""
        job = current_job()
        tell("began", job=job.id, attempt=job.attempt)
        while not Path(f"{gate}-{job.attempt}").exists():
            time.sleep(_LOOK_EVERY)
        url = self.url
        db = sqlite3.connect(url.removeprefix(_SQLITE)) if _SQLITE in url else psycopg.connect(url)
        try:
            with job.transaction(db) as done:
                db.execute(self.insert % job.id)
                done.result(os.getpid())
        except AttemptOver:
            tell("refused", job=job.id, attempt=job.attempt)
            raise
        finally:
            db.close()


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Any]:
    """Open a connection of the user's own."""
    if url.startswith(_SQLITE):
        db = sqlite3.connect(url.removeprefix(_SQLITE), isolation_level=None)
        try:
            yield db
        finally:
            db.close()
    else:
        connection = await asyncpg.connect(url)
        try:
            yield connection
        finally:
            await connection.close()


async def execute(connection: Any, statement: str) -> None:
    done = connection.execute(statement)
    if not isinstance(connection, sqlite3.Connection):
        await done


async def order(url: str, namespace: str, table: str, moment: str) -> None:
    """Write an order and enqueue its job; die at the moment that was asked for."""
    app = Tenure(url, namespace=namespace)
    accounts = Accounts(app, url, table)
    async with app, connected(url) as connection:
        await execute(connection, "BEGIN")
        await execute(connection, accounts.insert % "order")
        job = await accounts.book.within(connection).enqueue()
        tell("enqueued", job=job.id)
        if moment == "before":
            die()
        await execute(connection, "COMMIT")
        die()


async def work(url: str, namespace: str, table: str) -> None:
    """Work until a signal."""
    app = Tenure(url, namespace=namespace, replica_ttl=1, loss_budget=50, grace=1)
    Accounts(app, url, table)
    app.on_event(lambda event: tell(type(event).__name__, **asdict(event)))
    await app.run_worker(concurrency=4)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    role, *arguments = sys.argv[1:]
    asyncio.run({"order": order, "work": work}[role](*arguments))
