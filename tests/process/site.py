"""The setting of a test with several processes: one store and all processes that use it."""

import asyncio
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

from tenure import Tenure
from tenure.core.leases import Lease
from tenure.errors import StoreUnavailable
from tests.rig.processes import Child, Fleet
from tests.rig.sizes import SIZE
from tests.rig.spawn import alive, stands_still
from tests.rig.wait import wait_until, wait_until_async

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

    def pause(self, stop: Callable[[], Iterable[int]]) -> None:
        """Stop processes; on SQLite, not inside a write. `stop` returns their pids."""
        with no_write(self.family, self.url):
            stopped = list(stop())
            wait_until(lambda: all(map(stands_still, stopped)), SIZE.patience, "they stand still")

    async def end(self) -> None:
        """End all children; what they held must go with them, no later than it says itself."""
        for child in self.fleet.children:
            child.kill()
        left = [child.pid for child in self.fleet.children if alive(child.pid)]
        assert not left, f"still alive: {left}"
        events = [event for child in self.fleet.children for event in child.events]
        outages = [event for event in events if event["kind"] == "unavailable"]
        assert self.has_outages or not outages, outages
        async with self.app() as app:
            leases = await listed(app)
            longest = max((lease.expires_in for lease in leases), default=0.0)
            await wait_until_async(
                lambda: _nothing(app), longest + LISTING_SLACK, f"{len(leases)} leases have ended"
            )


@contextmanager
def no_write(family: str, url: str) -> Iterator[None]:
    """Hold the write lock of an SQLite file: a process that is stopped meanwhile does not have it.

    A process that is stopped inside a write keeps the lock of the file, and then no other process
    can write, whatever Tenure does.
    """
    if family != "sqlite":
        yield
        return
    file = url.removeprefix("sqlite:///")
    with closing(sqlite3.connect(file, timeout=SIZE.patience, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        finally:
            connection.execute("ROLLBACK")


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
