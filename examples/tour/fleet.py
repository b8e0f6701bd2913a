"""The replicas that take orders: real processes, and the facts that they report."""

import asyncio
import json
import signal
import sqlite3
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from tenure import Tenure
from tour.processes import Broken, Processes
from tour.replica import store_url

NAMES = ("node-1", "node-2", "node-3")


@dataclass(frozen=True)
class Fact:
    """A report of a replica: what happened, and when by the monotonic clock of the machine."""

    replica: str
    what: str
    at: float
    fence: int
    text: str


class Fleet(Processes):
    """Gives orders to replicas and collects their reports."""

    def __init__(self, program: Path, folder: Path, draw: Callable[[str], None]) -> None:
        super().__init__(draw)
        self.facts: list[Fact] = []
        self.app = Tenure(store_url(folder))
        self._program = program
        self._folder = folder

    async def __aenter__(self) -> Self:
        await self.app.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await super().__aexit__(kind, error, trace)
        await self.app.close()

    def hear(self, name: str, line: str) -> None:
        self.facts.append(Fact(replica=name, **json.loads(line)))

    async def start(self, *names: str) -> None:
        """Start replicas and wait until they are ready for orders."""
        before = len(self.facts)
        for name in names:
            await self.spawn(
                name, sys.executable, str(self._program), "replica", name, str(self._folder)
            )
        await self.until(
            lambda: self.facts_of("ready", since=before, times=len(names)),
            "the replicas to start",
            within=40,
        )

    def order(self, name: str, order: str, **details: float) -> None:
        self._write(name, json.dumps({"order": order, **details}) + "\n")

    async def freeze(self, name: str) -> float:
        """Stop a replica with SIGSTOP, outside of any SQLite transaction.

        In a transaction it would hold SQLite's own lock and block all others until the thaw.
        Return the time of the last stop: after a thaw in between it may have renewed its lease.
        """
        while True:
            self._signal(name, signal.SIGSTOP)
            frozen_at = time.monotonic()
            while not stands_still(self.pid(name)):  # noqa: ASYNC110 - there is no event
                await asyncio.sleep(0.01)
            if all(is_free(file) for file in self._folder.glob("*.db")):
                return frozen_at
            self.thaw(name)
            await asyncio.sleep(0.2)  # enough to end the transaction, also on a busy machine

    def thaw(self, name: str) -> None:
        self._signal(name, signal.SIGCONT)

    def facts_of(
        self, what: str, by: str | None = None, since: int = 0, *, times: int = 1
    ) -> list[Fact]:
        """Return the matching facts once there are at least `times` of them, else an empty list."""
        facts = [
            fact for fact in self.facts[since:] if fact.what == what and by in (None, fact.replica)
        ]
        return facts if len(facts) >= times else []

    async def until_in_line(self, key: str, names: Iterable[str], within: float = 30.0) -> None:
        """Wait until the store shows exactly these replicas waiting for a lock, in this order."""
        deadline = time.monotonic() + within
        while True:
            leases = await self.app.locks(key)
            if [lease.meta["replica"] for lease in leases if lease.waiting] == list(names):
                return
            if time.monotonic() > deadline:
                raise Broken(
                    f"{', '.join(names)} did not join the line for {key!r} in {within:g} s"
                )
            await asyncio.sleep(0.02)


def stands_still(pid: int) -> bool:
    """Return whether a process has stopped, which may be a moment after the signal."""
    try:
        states = [
            thread.read_text().rpartition(")")[2].split()[0]
            for thread in Path(f"/proc/{pid}/task").glob("*/stat")
        ]
    except OSError:  # a thread has ended
        return False
    # Without /proc, as on macOS, the list is empty and the process counts as stopped.
    return set(states) <= {"T"}


def is_free(file: Path) -> bool:
    """Return whether no transaction is open on an SQLite file."""
    with closing(sqlite3.connect(file, timeout=0.2)) as db:
        try:
            db.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError:
            return False
        return True
