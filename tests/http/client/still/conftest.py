"""Either client without a server, on a clock that stands still, with a submitted job."""

import pytest

from tests.http.client.both_clients import got
from tests.http.client.still_clock import StillClock, stored
from tests.http.network import Network


@pytest.fixture
def clock() -> StillClock:
    return StillClock()


@pytest.fixture
async def client(kind, network: Network, clock: StillClock):
    client = kind("http://server", transport=network, clock=clock)
    yield client
    await got(client.close())


@pytest.fixture
async def job(client, network: Network):
    network.expect(stored())
    job = await got(client.submit("/reports", {}))
    network.sent.clear()
    return job
