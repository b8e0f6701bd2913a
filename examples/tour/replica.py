"""One replica of the tour: a process that takes orders on stdin and reports on stdout.

An order and a report are one line of JSON each. The process stops when its input ends, so it never
outlives the tour.
"""

import asyncio
import json
import logging
import os
import sqlite3
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

from tenure import Hold, LeaseLost, Semaphore, Tenure

TTL = 2.0


def store_url(folder: Path) -> str:
    return f"sqlite:///{folder / 'tenure.db'}"


class Counter:
    """A number in a file. An increment is a read, a pause and a write."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "counter.txt"

    def read(self) -> int:
        return int(self._file.read_text()) if self._file.exists() else 0

    def write(self, number: int) -> None:
        new = self._file.with_suffix(f".{os.getpid()}")
        new.write_text(str(number))
        new.replace(self._file)

    async def add_one(self) -> None:
        number = self.read()
        await asyncio.sleep(0.03)
        self.write(number + 1)


class Page:
    """A row that refuses writes with an older fence than the newest it has seen.

    It records each write in the same transaction, so the record has the true order. The reports
    of a replica about its writes may arrive much later.
    """

    def __init__(self, folder: Path) -> None:
        self._file = folder / "page.db"
        with closing(sqlite3.connect(self._file)) as db, db:
            db.execute("CREATE TABLE IF NOT EXISTS page (id INTEGER PRIMARY KEY, body, fence)")
            db.execute("INSERT OR IGNORE INTO page VALUES (1, 'empty', 0)")
            db.execute(
                "CREATE TABLE IF NOT EXISTS writes (id INTEGER PRIMARY KEY, fence, accepted)"
            )

    def read(self) -> tuple[str, int]:
        with closing(sqlite3.connect(self._file)) as db:
            return db.execute("SELECT body, fence FROM page WHERE id = 1").fetchone()

    def write(self, body: str, fence: int) -> bool:
        """Return whether the write was accepted."""
        with closing(sqlite3.connect(self._file)) as db, db:
            done = db.execute(
                "UPDATE page SET body = :body, fence = :fence WHERE id = 1 AND fence <= :fence",
                {"body": body, "fence": fence},
            )
            accepted = done.rowcount == 1
            db.execute("INSERT INTO writes (fence, accepted) VALUES (?, ?)", [fence, accepted])
            return accepted

    def stale_writes(self) -> list[bool]:
        """Return whether the page accepted each write that came after one with a higher fence."""
        with closing(sqlite3.connect(self._file)) as db:
            rows = db.execute(
                "SELECT accepted FROM writes AS late WHERE EXISTS "
                "(SELECT 1 FROM writes WHERE id < late.id AND fence > late.fence)"
            )
            return [bool(accepted) for (accepted,) in rows]


class Replica:
    """Carries out orders one after the other. Each order is a method of this class."""

    def __init__(self, name: str, folder: Path, app: Tenure) -> None:
        self._name = name
        self._folder = folder
        self._app = app
        self._meta = {"replica": name}
        self._counter = Counter(folder)
        self._page = Page(folder)
        self.orders: asyncio.Queue[dict[str, object]] = asyncio.Queue()

    async def serve(self) -> None:
        self.report("ready")
        while True:
            order = await self.orders.get()
            await getattr(self, str(order.pop("order")))(**order)
            self.report("done")

    def report(self, what: str, *, fence: int = 0, text: str = "") -> None:
        # All processes of a machine share the clock time.monotonic.
        fact = {"what": what, "at": time.monotonic(), "fence": fence, "text": text}
        print(json.dumps(fact), flush=True)

    async def count_unlocked(self, times: int) -> None:
        for _ in range(times):
            await self._counter.add_one()
            self.report("out")

    async def count(self, times: int) -> None:
        for _ in range(times):
            async with self._inside(self._app.lock("counter", meta=self._meta)):
                await self._counter.add_one()

    async def share(self, times: int) -> None:
        for _ in range(times):
            async with self._inside(self._app.semaphore("gpu", limit=2, meta=self._meta)):
                await asyncio.sleep(0.25)

    async def publish(self, seconds: float) -> None:
        """Write to the page under a lock several times, and once more after the lock is lost."""
        try:
            async with self._inside(self._app.lock("publish", ttl=TTL, meta=self._meta)) as hold:
                await self._write_for(seconds, hold)
        except LeaseLost as loss:
            self.report("lost", fence=loss.fence, text=loss.reason)
            # Stands for a write that was already in flight when the lock was lost.
            accepted = self._page.write(f"{self._name}, much too late", loss.fence)
            self.report("wrote" if accepted else "refused", fence=loss.fence)

    async def _write_for(self, seconds: float, hold: Hold) -> None:
        end = time.monotonic() + seconds
        try:
            while time.monotonic() < end:
                accepted = self._page.write(f"{self._name} was here", hold.fence)
                self.report("wrote" if accepted else "refused", fence=hold.fence)
                await asyncio.sleep(0.25)
        except asyncio.CancelledError:
            self.report("cancelled", fence=hold.fence)
            raise

    @asynccontextmanager
    async def _inside(self, lock: Semaphore) -> AsyncIterator[Hold]:
        async with lock as hold:
            self.report("in", fence=hold.fence)
            yield hold
            self.report("out", fence=hold.fence)


async def main(name: str, folder: Path) -> None:
    logging.getLogger("tenure").setLevel(logging.ERROR)  # the tour reports the loss itself
    async with Tenure(store_url(folder)) as app:
        replica = Replica(name, folder, app)
        serving = asyncio.ensure_future(replica.serve())
        _listen(replica.orders, serving)
        await asyncio.wait([serving])
    if not serving.cancelled():
        serving.result()


def _listen(orders: asyncio.Queue[dict[str, object]], serving: asyncio.Task[None]) -> None:
    """Read orders from stdin in a thread: not every system can read stdin asynchronously."""
    loop = asyncio.get_running_loop()

    def read() -> None:
        # Not sys.stdin: a thread inside it would disturb the end of the interpreter.
        with open(sys.stdin.fileno(), closefd=False) as lines:
            for line in lines:
                loop.call_soon_threadsafe(orders.put_nowait, json.loads(line))
        loop.call_soon_threadsafe(serving.cancel)

    threading.Thread(target=read, daemon=True).start()
