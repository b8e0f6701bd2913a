"""The entries that the simulated store writes about a call."""

import pytest

from tenure.core.jobs.records import Settlement
from tests.sim.clock import StoreClock
from tests.sim.history import History
from tests.sim.server import Server


@pytest.fixture
def history() -> History:
    return History()


@pytest.fixture
async def server(history: History) -> Server:
    server = Server(StoreClock(lambda: 0.0), history)
    server.recorder.caller = "m0.1"
    await server.open()
    return server


async def test_a_replica_that_joins(server: Server, history: History):
    await server.jobs.beat(["r"], ttl=10, meta={})
    joined, beaten = history.entries
    assert (joined.what, joined.replica, joined.holder, joined.ttl) == ("joined", "r", "m0.1", 10)
    assert (beaten.what, beaten.replica, beaten.ok, beaten.ids) == ("beat", "r", True, [])


async def test_the_dead_do_not_join(server: Server, history: History):
    await server.jobs.beat(["r"], ttl=10, meta={})
    server.data.jobs.replicas["r"].dead = True
    await server.jobs.beat(["r"], ttl=10, meta={})
    [_, _, beaten] = history.entries
    assert (beaten.what, beaten.ok) == ("beat", False)


async def test_the_time_that_a_process_is_told(server: Server, history: History):
    pong = await server.ping()
    [entry] = history.entries
    assert (entry.what, entry.holder, entry.now) == ("read the time", "m0.1", pong.now)


async def test_an_end_is_that_of_the_process_that_asks(server: Server, history: History):
    end = Settlement(id="j", fence=1, outcome="succeeded", state="succeeded")
    assert await server.jobs.settle([end]) == ["lost"]
    [settled] = history.entries
    assert (settled.what, settled.holder, settled.answer) == ("settled", "m0.1", "lost")
