"""Fixtures for tests with several processes, on every store that processes can share."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.contract.worlds import chosen_families
from tests.process.site import Site
from tests.process.workshop import Workshop, opened
from tests.rig.draw import draw_stores
from tests.rig.processes import Fleet
from tests.rig.servers import Postgres, Valkey

pytest.register_assert_rewrite("tests.process.history")

_SHARED = ("sqlite", "redis", "postgres")


def pytest_configure(config: pytest.Config) -> None:
    """Make the mark known by which a test names the stores it is about."""
    config.addinivalue_line("markers", "on(*families): runs on these stores only")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out the stores that a test is not about; memory is never shared by processes."""
    items[:] = [item for item in items if _fits(item)]


def _fits(item: pytest.Item) -> bool:
    callspec = getattr(item, "callspec", None)
    if item.path.parent != Path(__file__).parent or callspec is None:
        return True
    mark = item.get_closest_marker("on")
    families = mark.args if mark else _SHARED
    return callspec.params.get("family", families[0]) in families


@pytest.fixture
def server(request: pytest.FixtureRequest, family: str) -> Valkey | Postgres:
    """The server of `site`, as the test's own: it may be killed and restarted."""
    return _own_server(request, family)


def _own_server(request: pytest.FixtureRequest, family: str) -> Valkey | Postgres:
    if family == "redis":
        # Nothing acknowledged is lost, so what a test sees comes from the outage alone.
        return request.getfixturevalue("private_valkey")(config={"appendfsync": "always"})
    return request.getfixturevalue("private_postgres")()


@pytest.fixture
def site_url(request: pytest.FixtureRequest) -> str:
    """Where the store of `site` is: what else a test asks for decides."""
    if "server" in request.fixturenames:
        return request.getfixturevalue("server").url
    return request.getfixturevalue(
        "blank_url" if "blank_url" in request.fixturenames else "world_url"
    )


@pytest.fixture
async def site(
    request: pytest.FixtureRequest, family: str, site_url: str, namespace: str, fleet: Fleet
) -> AsyncIterator[Site]:
    """A store for several processes, on which nothing may be left when all of them have ended."""
    has_outages = "server" in request.fixturenames
    site = Site(family, site_url, namespace, fleet, has_outages)
    yield site
    await site.end()


@pytest.fixture
async def shop(
    request: pytest.FixtureRequest, site: Site, tmp_path: Path
) -> AsyncIterator[Workshop]:
    """A workshop on one store."""
    own = request.getfixturevalue("server") if site.has_outages else None
    async with opened(site, tmp_path, own) as shop:
        yield shop


@pytest.fixture
async def shops(
    request: pytest.FixtureRequest, namespace: str, fleet: Fleet, tmp_path: Path
) -> AsyncIterator[list[Workshop]]:
    """A workshop on every store, as tests that mostly wait can do so on all at once."""
    urls = {
        "sqlite": lambda: f"sqlite:///{tmp_path / 'tenure.db'}",
        "redis": lambda: request.getfixturevalue("valkey_server").url,
        "postgres": lambda: request.getfixturevalue("postgres_server").url,
    }
    chosen = [family for family in _SHARED if family in chosen_families(request.config)]
    chosen = draw_stores(request, chosen)
    sites = [Site(family, urls[family](), namespace, fleet) for family in chosen]
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(opened(site, tmp_path)) for site in sites]
    for site in sites:
        await site.end()


@pytest.fixture
async def shops_with_servers(
    request: pytest.FixtureRequest, namespace: str, fleet: Fleet, tmp_path: Path
) -> AsyncIterator[list[Workshop]]:
    """A workshop on every store with a server, which is the test's own to kill and restart."""
    chosen = [
        family for family in ("redis", "postgres") if family in chosen_families(request.config)
    ]
    chosen = draw_stores(request, chosen)
    servers = {family: _own_server(request, family) for family in chosen}
    sites = [
        Site(family, servers[family].url, namespace, fleet, has_outages=True) for family in chosen
    ]
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(opened(site, tmp_path, servers[site.family]))
            for site in sites
        ]
    for site in sites:
        await site.end()
