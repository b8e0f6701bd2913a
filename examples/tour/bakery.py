"""The jobs of the tour: loaves that take a moment to bake, and a ledger outside of the store."""

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from tenure import Task, Tenure, current_job

LOAVES = 200
SECONDS = 0.2  # to bake one
OVENS = 4  # jobs a worker runs at a time


class Ledger:
    """What was baked, by loaf. It refuses a write whose fence is older than the one it has."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "ledger.db"
        with closing(self._connect()) as db, db:
            db.execute("CREATE TABLE IF NOT EXISTS loaf (id INTEGER PRIMARY KEY, fence)")

    def write(self, loaf: int, fence: int) -> bool:
        """Return whether the write was accepted."""
        with closing(self._connect()) as db, db:
            done = db.execute(
                "INSERT INTO loaf VALUES (:loaf, :fence) "
                "ON CONFLICT (id) DO UPDATE SET fence = :fence WHERE fence <= :fence",
                {"loaf": loaf, "fence": fence},
            )
            return done.rowcount == 1

    def loaves(self) -> list[int]:
        with closing(self._connect()) as db:
            return [loaf for (loaf,) in db.execute("SELECT id FROM loaf ORDER BY id")]

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self._file, timeout=10)


def declare(app: Tenure, folder: Path, tell: Callable[..., None]) -> Task[[int], int]:
    """Declare the task, in a replica that bakes and in the tour that orders."""

    @app.task
    async def bake(loaf: int) -> int:
        job = current_job()
        tell("began", fence=job.fence, text=job.id)
        try:
            await asyncio.sleep(SECONDS)
        finally:
            # Also when it is cancelled: that stands for a write that nobody could stop in time.
            accepted = Ledger(folder).write(loaf, job.fence)
            tell("baked" if accepted else "refused", fence=job.fence, text=job.id)
        return loaf

    return bake
