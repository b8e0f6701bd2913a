"""A lock, and the last free place of a semaphore: what holds for one holds for the other."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from tenure.core.leases import Acquired, Busy, Lease
from tenure.stores.contract import Store
from tests.contract import calls
from tests.contract.kept_connections import KeptConnections
from tests.contract.store_makers import MakeStore

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


@pytest.fixture
async def kept(store: Store) -> int:
    """1 if this store keeps something for each idle key, else 0."""
    await calls.use(store, "probe")
    pruned = await calls.prune_leases(store, idle=0)
    assert pruned in (0, 1)
    return pruned


@pytest.fixture(scope="session")
def _kept_connections() -> Iterator[KeptConnections]:
    connections = KeptConnections()
    yield connections
    connections.close()


@pytest.fixture
def kept_connections(request: pytest.FixtureRequest) -> KeptConnections | None:
    """The connections that this test shares with others; None if it opens its own."""
    params = request.node.callspec.params if hasattr(request.node, "callspec") else {}
    is_own = request.node.get_closest_marker("own_connections") is not None
    if is_own or params.get("family") != "postgres":
        return None
    connections: KeptConnections = request.getfixturevalue("_kept_connections")
    return connections


@pytest.fixture
def _function_scoped_runner(
    _function_scoped_runner: asyncio.Runner, kept_connections: KeptConnections | None
) -> Iterator[asyncio.Runner]:
    """The runner of pytest-asyncio, or that of kept connections."""
    if kept_connections is None:
        yield _function_scoped_runner
        return
    yield kept_connections.runner
    kept_connections.end_test()


@pytest.fixture
def make_store(
    request: pytest.FixtureRequest,
    make_store: MakeStore,
    kept_connections: KeptConnections | None,
) -> MakeStore:
    """As everywhere; for the server that the tests share, with kept connections."""
    if kept_connections is None:
        return make_store
    shared_url = request.getfixturevalue("postgres_server").app_url
    keeping = kept_connections.store

    def make(url: str, **options) -> Store:
        return keeping(url, **options) if url == shared_url else make_store(url, **options)

    return make
