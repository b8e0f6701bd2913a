"""Either client, a real server, and a network between them that misbehaves."""

from collections.abc import Iterator
from uuid import uuid4

import pytest

from tenure.http import AsyncClient, Client
from tests.http.client.both_clients import got
from tests.http.network import HurriedClock, Network
from tests.http.report_server import Server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    path = tmp_path_factory.mktemp("client") / "jobs.db"
    with Server(f"sqlite:///{path}").running() as server:
        yield server


@pytest.fixture(params=[Client, AsyncClient])
def kind(request: pytest.FixtureRequest) -> type[Client] | type[AsyncClient]:
    return request.param


@pytest.fixture
def network() -> Network:
    return Network()


@pytest.fixture
def clock() -> HurriedClock:
    return HurriedClock()


@pytest.fixture
def user() -> str:
    """A user of its own for each test, so that jobs of other tests are not counted."""
    return uuid4().hex


@pytest.fixture
async def client(kind, server: Server, network: Network, clock: HurriedClock, user: str):
    client = kind(server.url, transport=network, clock=clock, headers={"X-User": user})
    yield client
    await got(client.close())


@pytest.fixture
def gate(server: Server) -> str:
    return uuid4().hex
