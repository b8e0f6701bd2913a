"""The pytest fixtures of the rig, and the hooks that share servers among parallel workers."""

import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Literal, NoReturn, Protocol
from urllib.parse import urlsplit

import pytest

from tests.rig.processes import Fleet
from tests.rig.proxy import Proxy
from tests.rig.rights import as_app, make_postgres_roles, redis_user
from tests.rig.servers import Postgres, Server, Valkey, find_postgres, find_valkey

_FIND = {"valkey": find_valkey, "postgres": find_postgres}


@dataclass(frozen=True)
class Endpoint:
    """Where a server shared by many tests listens; it cannot be stopped by one of them."""

    url: str
    """For its administrator, who may do everything."""

    @property
    def app_url(self) -> str:
        """For a user with the least rights that a store needs."""
        return as_app(self.url)

    @property
    def port(self) -> int:
        """The port within the url."""
        port = urlsplit(self.url).port
        assert port is not None
        return port


class PrivateValkey(Protocol):
    """Makes a started Valkey server for one test; takes the arguments of `Valkey`."""

    def __call__(
        self, *, config: dict[str, str] | None = None, password: str | None = None
    ) -> Valkey:
        """Start one more server."""


class PrivatePostgres(Protocol):
    """Makes a started PostgreSQL server for one test; takes the arguments of `Postgres`."""

    def __call__(self, *, durable: bool = False, config: dict[str, str] | None = None) -> Postgres:
        """Start one more server."""


class ProxyTo(Protocol):
    """Makes a started proxy to a server for one test."""

    def __call__(self, server: Endpoint | Server) -> Proxy:
        """Start one more proxy; `proxy.url(server.url)` is where its clients connect to."""


class SharedServers:
    """The servers of one pytest run: started on first use, all closed at its end."""

    def __init__(self) -> None:
        self._running: dict[str, Server] = {}

    def url(self, kind: str) -> str | None:
        """Return the url of the shared server, or None when its program is missing."""
        if _FIND[kind]() is None:
            return None
        if kind not in self._running:
            self._running[kind] = self._start(kind)
        return self._running[kind].url

    @staticmethod
    def _start(kind: str) -> Server:
        if kind == "valkey":
            return Valkey(config=redis_user()).__enter__()
        server = Postgres().__enter__()
        make_postgres_roles(server.url)
        return server

    def close(self) -> None:
        """End all servers that were started."""
        while self._running:
            self._running.popitem()[1].close()


class BorrowedServers(SharedServers):
    """Servers that run longer than one pytest run: another process starts and closes them."""

    def __init__(self, urls: Mapping[str, str]) -> None:
        super().__init__()
        self._urls = dict(urls)

    def url(self, kind: str) -> str | None:
        return self._urls.get(kind)


SERVERS = pytest.StashKey[SharedServers]()
"""Where a run keeps its servers; a plugin may put borrowed ones there while it is configured."""


def pytest_configure(config: pytest.Config) -> None:
    """Provide for the servers of this run; none is started yet."""
    config.stash[SERVERS] = SharedServers()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config) -> None:
    """Start the servers before the workers: they inherit where a fresh cluster is."""
    for kind in _FIND:
        config.stash[SERVERS].url(kind)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker of pytest-xdist, before it starts, where the servers of the run are."""
    servers = node.config.stash[SERVERS]
    node.workerinput["tenure_urls"] = {kind: servers.url(kind) for kind in _FIND}


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the servers of this run."""
    config.stash[SERVERS].close()


@pytest.fixture(scope="session")
def valkey_server(pytestconfig: pytest.Config) -> Endpoint:
    """The Valkey server shared by all tests of the run: use `namespace`, never FLUSHALL."""
    return _shared(pytestconfig, "valkey")


@pytest.fixture(scope="session")
def postgres_server(pytestconfig: pytest.Config) -> Endpoint:
    """The PostgreSQL server shared by all tests of the run: use `namespace`."""
    return _shared(pytestconfig, "postgres")


@pytest.fixture
def namespace() -> str:
    """A name that no other test has, of the characters a-z, 0-9, _ and -."""
    return f"t{secrets.token_hex(5)}"


@pytest.fixture
def private_valkey() -> Iterator[PrivateValkey]:
    """Make Valkey servers that this test alone may kill, pause and restart."""
    require("valkey")
    with ExitStack() as stack:

        def make(*, config: dict[str, str] | None = None, password: str | None = None) -> Valkey:
            return stack.enter_context(Valkey(config=config, password=password))

        yield make


@pytest.fixture
def private_postgres() -> Iterator[PrivatePostgres]:
    """Make PostgreSQL servers that this test alone may kill, pause and restart."""
    require("postgres")
    with ExitStack() as stack:

        def make(*, durable: bool = False, config: dict[str, str] | None = None) -> Postgres:
            return stack.enter_context(Postgres(durable=durable, config=config))

        yield make


@pytest.fixture
def proxy() -> Iterator[ProxyTo]:
    """Make proxies that can break the connections of this test to a server, shared or private."""
    with ExitStack() as stack:

        def make(server: Endpoint | Server) -> Proxy:
            protocol: Literal["resp", "postgres"]
            protocol = "postgres" if server.url.startswith("postgres") else "resp"
            return stack.enter_context(Proxy(server.port, protocol))

        yield make


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    """Start child programs that all end with this test."""
    with Fleet() as children:
        yield children


def _shared(config: pytest.Config, kind: str) -> Endpoint:
    worker_input = getattr(config, "workerinput", None)
    if worker_input is None:
        url = config.stash[SERVERS].url(kind)
    else:
        url = worker_input["tenure_urls"][kind]
    return Endpoint(url) if url else _missing(kind)


def require(kind: str) -> None:
    """Skip the test, or in CI fail it, if there is no program of this server."""
    if _FIND[kind]() is None:
        _missing(kind)


def _missing(kind: str) -> NoReturn:
    message = f"NO {kind.upper()} SERVER PROGRAM FOUND: install the wheel named in the test extras"
    if os.environ.get("CI") == "true":
        pytest.fail(message)
    pytest.skip(message)


@pytest.fixture
def forgotten_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `retention` be as short as a test says: it cannot wait for a minute."""
    monkeypatch.setattr("tenure.core.jobs.retention.RETENTION_MIN", 0.0)
