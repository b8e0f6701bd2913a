"""The replicas of the tour: real processes, and everything they told."""

import asyncio
import json
import os
import signal
import sqlite3
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from tenure import Tenure
from tour.replica import TTL, clockwork_app, store_url

T = TypeVar("T")

NAMES = ("api-1", "api-2", "api-3")


class Broken(Exception):
    """Something that was promised did not happen in time."""


@dataclass(frozen=True)
class Fact:
    """Something a replica told: what happened, and when on the clock of the machine."""

    replica: str
    what: str
    at: float
    fence: int
    text: str


class Fleet:
    """Starts the replicas and ends every one of them, however the tour ends."""

    def __init__(self, program: Path, folder: Path, draw: Callable[[str], None]) -> None:
        self.facts: list[Fact] = []
        self.app = Tenure(store_url(folder), replica_ttl=TTL)
        self._program = program
        self._folder = folder
        self._draw = draw
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._listeners: list[asyncio.Task[None]] = []
        self._killed: set[str] = set()
        self._news = asyncio.Event()

    async def __aenter__(self) -> Self:
        await self.app.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for name in self._processes:
            self.kill(name)
        await asyncio.gather(*self._listeners, return_exceptions=True)
        await self.app.close()

    async def start(self, *names: str) -> None:
        """Start replicas and wait until they are ready for orders."""
        before = len(self.facts)
        for name in names:
            self._killed.discard(name)
            self._processes[name] = process = await asyncio.create_subprocess_exec(
                sys.executable,
                *(str(self._program), "replica", name, str(self._folder)),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                # A group of its own, so that Ctrl-C reaches the tour alone, which then ends it.
                process_group=0 if os.name == "posix" else None,
            )
            self._listeners.append(asyncio.create_task(self._listen(name, process)))
        await self.until(lambda: self.told("ready", since=before, times=len(names)), "they start")

    def order(self, name: str, order: str, **details: float) -> None:
        stdin = self._processes[name].stdin
        stdin.write(json.dumps({"order": order, **details}).encode() + b"\n")

    def clockwork(self) -> Tenure:
        """Return an app that sees the timers, not open yet."""
        return clockwork_app(self._folder)

    def pid(self, name: str) -> int:
        return self._processes[name].pid

    def kill(self, name: str) -> None:
        """SIGKILL: no farewell, nothing is given back."""
        self._killed.add(name)
        with suppress(ProcessLookupError):
            self._processes[name].kill()

    async def bury(self, name: str) -> None:
        """Kill, and wait until all that was told is heard: by this one, and by frozen ones."""
        self.kill(name)
        await self._processes[name].wait()
        await asyncio.sleep(0.2)

    async def freeze(self, name: str) -> None:
        """SIGSTOP, at a moment when the replica is not in the middle of a transaction.

        There it would hold SQLite's own lock, and everybody would wait for the thaw.
        """
        while True:
            self._processes[name].send_signal(signal.SIGSTOP)
            if all(is_free(file) for file in self._folder.glob("*.db")):
                return
            self.thaw(name)
            await asyncio.sleep(0.01)

    def thaw(self, name: str) -> None:
        self._processes[name].send_signal(signal.SIGCONT)

    def told(
        self, what: str, by: str | None = None, since: int = 0, *, times: int = 1
    ) -> list[Fact]:
        """Return the matching facts once there are at least `times` of them, else nothing."""
        found = [
            fact for fact in self.facts[since:] if fact.what == what and by in (None, fact.replica)
        ]
        return found if len(found) >= times else []

    async def until(
        self,
        condition: Callable[[], T],
        what: str,
        *,
        within: float = 10.0,
        progress: Callable[[], str] | None = None,
    ) -> T:
        """Return what the condition returns once it is true; raise Broken if it takes too long."""
        deadline = time.monotonic() + within
        while not (found := condition()):
            if time.monotonic() > deadline:
                raise Broken(f"within {within:g} s it did not happen that {what}")
            if progress is not None:
                self._draw(progress())
            self._check_alive()
            self._news.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), 0.05)
        return found

    async def until_in_line(self, key: str, names: Iterable[str], within: float = 10.0) -> None:
        """Wait until the store shows exactly these replicas waiting for a lock, in this order."""
        deadline = time.monotonic() + within
        while True:
            leases = await self.app.locks(key)
            if [lease.meta["replica"] for lease in leases if lease.waiting] == list(names):
                return
            if time.monotonic() > deadline:
                raise Broken(f"within {within:g} s {', '.join(names)} did not wait for {key!r}")
            await asyncio.sleep(0.02)

    def _check_alive(self) -> None:
        for name, process in self._processes.items():
            if process.returncode is not None and name not in self._killed:
                raise Broken(f"{name} ended with status {process.returncode}")

    async def _listen(self, name: str, process: asyncio.subprocess.Process) -> None:
        while line := await process.stdout.readline():
            self.facts.append(Fact(replica=name, **json.loads(line)))
            self._news.set()
        await process.wait()


def is_free(file: Path) -> bool:
    """Return whether an SQLite file can be written to now."""
    with closing(sqlite3.connect(file, timeout=0.2)) as db:
        try:
            db.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return False
        return True
