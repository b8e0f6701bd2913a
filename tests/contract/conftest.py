"""A lock, and the last free place of a semaphore: what holds for one holds for the other."""

from dataclasses import dataclass, field

import pytest

from tenure.core.leases import Acquired, Busy, Lease
from tenure.stores.contract import Store
from tests.contract import calls

AGES = 10_000_000.0


@dataclass
class Place:
    """One free place on a key: the only one, or the last one of a semaphore."""

    store: Store
    limit: int
    key: str = "place"
    others: list[Lease] = field(default_factory=list)

    async def ask(self, holder: str, **details) -> Acquired:
        """Acquire it; return any answer."""
        return await calls.ask(self.store, self.key, holder, limit=self.limit, **details)

    async def take(self, holder: str, **details) -> Lease:
        """Acquire it, and be granted."""
        return await calls.take(self.store, self.key, holder, limit=self.limit, **details)

    async def be_refused(self, holder: str, **details) -> Busy:
        """Acquire it, and be refused."""
        return await calls.be_refused(self.store, self.key, holder, limit=self.limit, **details)

    async def holder(self) -> str | None:
        """Return its holder."""
        taken = {lease.holder for lease in self.others}
        rest = [
            holder for holder in await calls.holders(self.store, self.key) if holder not in taken
        ]
        assert len(rest) <= 1
        return rest[0] if rest else None

    async def line(self) -> list[str]:
        """Return the waiters for it."""
        return await calls.line(self.store, self.key)


@pytest.fixture(params=[1, 5], ids=["lock", "last-of-five"])
async def place(request: pytest.FixtureRequest, store: Store) -> Place:
    """A lock, or a semaphore with five places, four of them taken for a long time."""
    place = Place(store, limit=request.param)
    for number in range(request.param - 1):
        place.others.append(await place.take(f"other-{number}", ttl=AGES))
    return place
