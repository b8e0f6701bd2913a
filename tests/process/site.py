"""The place of a test with several processes: one store, and everybody on it."""

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from tenure import Tenure
from tenure.core.model import Lease
from tenure.errors import StoreUnavailable
from tests.rig.processes import Child, Fleet
from tests.rig.sizes import SIZE
from tests.rig.spawn import alive
from tests.rig.waiting import wait_until_async

# What a loaded machine may add to the end of a lease before a listing shows it.
LISTING_SLACK = 1.0


@dataclass
class Site:
    """A store that processes share."""

    family: str
    url: str
    namespace: str
    fleet: Fleet
    has_outages: bool = False
    """Whether the test takes the server away at times."""

    def app(self) -> Tenure:
        """Return one more app on the store, for the test itself."""
        return Tenure(self.url, namespace=self.namespace)

    def start(self, program: str, *arguments: object) -> Child:
        """Start one of the programs of this folder on the store."""
        module = f"tests.process.{program}"
        return self.fleet.start("-m", module, self.url, self.namespace, *map(str, arguments))

    def start_holders(self, ttl: float, *names: str) -> list[Child]:
        """Start a holder for each lock name, all at once, and return when all of them are open."""
        children = [self.start("holder", name, ttl) for name in names]
        for child in children:
            child.expect("ready", SIZE.patience)
        return children

    def pause(self, stop: Callable[[], object], go_on: Callable[[], object]) -> None:
        """Stop a process; on SQLite, not inside a write."""
        stopped = pause_between_writes(self.family, self.url, stop, go_on)
        assert stopped, "the process always writes"

    async def end(self) -> None:
        """End all children; what they held must go with them, no later than it says itself."""
        for child in self.fleet.children:
            child.kill()
        left = [child.pid for child in self.fleet.children if alive(child.pid)]
        assert not left, f"still alive: {left}"
        told = [event for child in self.fleet.children for event in child.events]
        outages = [event for event in told if event["kind"] == "unavailable"]
        assert self.has_outages or not outages, outages
        async with self.app() as app:
            leases = await listed(app)
            longest = max((lease.expires_in for lease in leases), default=0.0)
            await wait_until_async(
                lambda: _nothing(app), longest + LISTING_SLACK, f"{len(leases)} leases have ended"
            )


def pause_between_writes(
    family: str, url: str, stop: Callable[[], object], go_on: Callable[[], object]
) -> bool:
    """Stop a process; on SQLite, not inside a write. Say whether it stands still.

    A process that is stopped inside a write keeps the lock of the file, and then nobody else can
    write, whatever Tenure does.
    """
    for _ in range(20):
        stop()
        if family != "sqlite" or _can_write(Path(url.removeprefix("sqlite:///"))):
            return True
        go_on()
    return False


def _can_write(file: Path) -> bool:
    with closing(sqlite3.connect(file, timeout=0.4, isolation_level=None)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return False
        connection.execute("ROLLBACK")
        return True


async def listed(app: Tenure, name: str = "") -> list[Lease]:
    """Return who holds and who waits, also from a store that is just coming back."""
    deadline = asyncio.get_running_loop().time() + SIZE.patience
    while True:
        try:
            return await app.locks(name)
        except StoreUnavailable:
            if asyncio.get_running_loop().time() > deadline:
                raise
            await asyncio.sleep(0.05)


async def until_waiting(app: Tenure, name: str, number: int) -> None:
    """Return when that many stand in the line for a lock."""

    async def stand_there() -> bool:
        return sum(lease.waiting for lease in await listed(app, name)) == number

    await wait_until_async(stand_there, SIZE.patience, f"{number} wait for {name!r}")


async def _nothing(app: Tenure) -> bool:
    return not await listed(app)
