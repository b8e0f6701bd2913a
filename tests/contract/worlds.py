"""The worlds that tests open stores on: one per kind of store, empty for each test.

    async def test_something(store): ...        one opened store, on a clock moved by hand
    async def test_something(world): ...        several: `await world.store()` opens one more
    async def test_something(real_world): ...   the same on the clock of the server

A test that asks for one of them runs once per kind of store; `--stores=memory,sqlite` chooses.
`--lease-store=my_store:MyStore` runs the tests with the marker `leases` on a store of your own
instead; see docs/write-a-store.md.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from string import Formatter
from typing import Any

import asyncpg
import pytest

from tenure.core.clock import Clock, SystemClock
from tenure.stores.connect import connect
from tenure.stores.contract import Store
from tenure.testing import ManualClock
from tests.contract.store_makers import MakeStore, maker
from tests.rig.rights import as_owner

FAMILIES = ("memory", "sqlite", "redis", "postgres")
YOURS = "yours"
"""The family of a store that `--lease-store` names."""


class World:
    """A place for stores, and all stores that were opened on it through `store`."""

    def __init__(
        self, family: str, url: str, namespace: str, clock: Clock, make: MakeStore = connect
    ) -> None:
        self._make = make
        self.family = family
        self.url = url
        self.namespace = namespace
        self.clock = clock
        self._opened = AsyncExitStack()

    def unopened(self, namespace: str | None = None) -> Store:
        """Return one more store object; the caller opens and closes it."""
        return self._make(self.url, namespace=namespace or self.namespace, clock=self.clock)

    async def store(self, namespace: str | None = None) -> Store:
        """Return one more store object, open until the end of the test."""
        store = self.unopened(namespace)
        self._opened.push_async_callback(store.close)
        await store.open()
        return store

    async def close(self) -> None:
        """Close every store that `store` opened."""
        await self._opened.aclose()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let a run choose its stores."""
    parser.addoption(
        "--stores",
        default=",".join(FAMILIES),
        help=f"the stores to test, out of {','.join(FAMILIES)}",
    )
    parser.addoption(
        "--lease-store", metavar="MODULE:CLASS", help="test the leases of this store instead"
    )
    parser.addoption(
        "--lease-url",
        default="mine://{folder}/leases",
        metavar="URL",
        help="the URL for --lease-store (default: %(default)s); {folder} is a new folder per test",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers of these tests."""
    config.addinivalue_line("markers", "leases: needs neither jobs nor schedules")
    config.addinivalue_line("markers", "realtime: runs on the clock of the store (real_world)")
    config.addinivalue_line("markers", "own_connections: shares none with other tests")


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Check the options once, rather than in each test."""
    config = session.config
    try:
        maker(config.getoption("--lease-store"))
    except Exception as error:
        msg = f"--lease-store cannot be imported: {error}. Is its folder on PYTHONPATH?"
        raise pytest.UsageError(msg) from error
    url = config.getoption("--lease-url")
    if {field for _, field, _, _ in _fields(url) if field is not None} - {"folder"}:
        raise pytest.UsageError(f"--lease-url: {url!r} may contain {{folder}} and no other braces")


def _fields(url: str) -> list[tuple[str, str | None, str | None, str | None]]:
    try:
        return list(Formatter().parse(url))
    except ValueError as error:
        raise pytest.UsageError(f"--lease-url: {error} in {url!r}") from error


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test that needs a store on every chosen one."""
    if "family" in metafunc.fixturenames:
        metafunc.parametrize("family", chosen_families(metafunc.config), scope="session")


_PLANNED = pytest.StashKey[dict[str, set[str]]]()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark tests in real time, and record the plan before tests are deselected."""
    if config.getoption("--lease-store"):
        others = [item for item in items if item.get_closest_marker("leases") is None]
        items[:] = [item for item in items if item.get_closest_marker("leases") is not None]
        config.hook.pytest_deselected(items=others)
    planned: dict[str, set[str]] = {}
    for item in items:
        if "real_world" in getattr(item, "fixturenames", ()):
            item.add_marker("realtime")
        if item.path.parent == Path(__file__).parent:
            test = f"{item.path.name}::{getattr(item, 'originalname', item.name)}"
            families = planned.setdefault(test, set())
            if (callspec := getattr(item, "callspec", None)) and "family" in callspec.params:
                families.add(callspec.params["family"])
    config.stash[_PLANNED] = planned


def planned_tests(config: pytest.Config) -> dict[str, set[str]]:
    """Return, for each collected test of the contract, the stores it was to run on."""
    return config.stash[_PLANNED]


def chosen_families(config: pytest.Config) -> list[str]:
    """Return the stores of `--stores`, or the store of `--lease-store`."""
    if config.getoption("--lease-store"):
        return [YOURS]
    chosen = [name.strip() for name in config.getoption("--stores").split(",")]
    if unknown := set(chosen) - set(FAMILIES):
        raise pytest.UsageError(f"--stores: no such store: {', '.join(sorted(unknown))}")
    return chosen


@pytest.fixture
def world_url(request: pytest.FixtureRequest, family: str, namespace: str, tmp_path: Path) -> str:
    """Where the store of this test lives, for a user with no more rights than a store needs.

    Only the namespace is the test's own on a server.
    """
    if family == YOURS:
        return str(request.config.getoption("--lease-url")).format(folder=tmp_path)
    if family == "redis":
        return request.getfixturevalue("valkey_server").app_url
    if family == "postgres":
        return request.getfixturevalue("postgres_server").app_url
    return f"sqlite:///{tmp_path / 'tenure.db'}" if family == "sqlite" else f"memory://{namespace}"


@pytest.fixture
def make_store(pytestconfig: pytest.Config) -> MakeStore:
    """The function that creates a store object from a URL."""
    return maker(pytestconfig.getoption("--lease-store"))


@pytest.fixture
def clock() -> ManualClock:
    """The clock of `world` and `store`; it stands still until moved."""
    return ManualClock()


@pytest.fixture
async def world(
    family: str, world_url: str, namespace: str, clock: ManualClock, make_store: MakeStore
) -> AsyncIterator[World]:
    """A world in which the test decides the time."""
    async with _closing(World(family, world_url, namespace, clock, make_store)) as world:
        yield world


@pytest.fixture
async def real_world(
    family: str, world_url: str, namespace: str, make_store: MakeStore
) -> AsyncIterator[World]:
    """A world in which the store decides the time."""
    async with _closing(World(family, world_url, namespace, SystemClock(), make_store)) as world:
        yield world


@pytest.fixture
async def blank_world(
    family: str, blank_url: str, namespace: str, clock: ManualClock, make_store: MakeStore
) -> AsyncIterator[World]:
    """A world on which no store was ever opened, so that its format does not exist yet."""
    async with _closing(World(family, blank_url, namespace, clock, make_store)) as world:
        yield world


@pytest.fixture
def blank_url(
    request: pytest.FixtureRequest, family: str, world_url: str, namespace: str
) -> Iterator[str]:
    """A URL on which no store was ever opened, with the right to migrate.

    Only PostgreSQL keeps something outside the namespace.
    """
    if family != "postgres":
        yield world_url
        return
    server = request.getfixturevalue("postgres_server").url

    async def ask_server(statement: str) -> None:
        connection = await asyncpg.connect(server)
        try:
            await connection.execute(statement)
        finally:
            await connection.close()

    asyncio.run(ask_server(f'CREATE DATABASE "{namespace}" OWNER tenure_owner'))
    yield f"{as_owner(server).rpartition('/')[0]}/{namespace}"
    asyncio.run(ask_server(f'DROP DATABASE "{namespace}" WITH (FORCE)'))


@pytest.fixture
async def store(world: World) -> Store:
    """One opened store."""
    return await world.store()


@asynccontextmanager
async def _closing(world: World) -> AsyncIterator[World]:
    """Close the world after the test; fail if the event loop has reported an error meanwhile."""
    noise: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: noise.append(context))
    try:
        yield world
    finally:
        await world.close()
    assert not noise
