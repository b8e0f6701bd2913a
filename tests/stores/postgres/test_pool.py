"""The connections of a PostgreSQL store object: how callers get one and give it back.

Connections are stand-ins here, whose answers a test decides, in virtual time. What the real ones
do is shown in test_postgres_store.py.
"""

import asyncio
import random
import socket
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import asyncpg
import pytest

from tenure.core.redaction import Secret
from tenure.errors import StoreError, StoreUnavailable
from tenure.stores.postgres.connector import Connector
from tenure.stores.postgres.pool import Pool
from tenure.testing import ManualClock
from tests.unit.virtual_time import in_virtual_time, now, settle

SIZE = 8


class Line:
    """A connection that answers when the test says so."""

    def __init__(self) -> None:
        self.statements: list[tuple[object, ...]] = []
        self.answers = asyncio.Event()
        self.answers.set()
        self.lost = asyncio.get_running_loop().create_future()
        self.error: Exception | None = None
        self.farewells = 0
        self.farewell_seconds = 0.0
        self.farewell_error: Exception | None = None
        self.cuts = 0
        self._transport: Any = None

    def is_closed(self) -> bool:
        return self.lost.done()

    async def fetch(self, *statement: object) -> list[tuple[object, ...]]:
        self.statements.append(statement)
        answer = asyncio.ensure_future(self.answers.wait())
        try:
            await asyncio.wait([answer, self.lost], return_when=asyncio.FIRST_COMPLETED)
        finally:
            answer.cancel()
        if self.is_closed():
            raise asyncpg.ConnectionDoesNotExistError("the connection was closed")
        if self.error is not None:
            raise self.error
        return [statement]

    def terminate(self) -> None:
        self.cuts += 1
        if not self.lost.done():
            self.lost.set_result(None)

    async def close(self, *, timeout: float) -> None:
        assert timeout == 1
        self.farewells += 1
        await asyncio.sleep(self.farewell_seconds)
        if self.farewell_error is not None:
            raise self.farewell_error
        self.terminate()


class Exchange:
    """Gives lines, as many as are asked for."""

    def __init__(self) -> None:
        self.first = Line()
        self.lines = [self.first]
        self.clock = ManualClock()
        self.pool = Pool(self.dial, "postgresql://host/db", self.clock, self.first)
        self.reachable = asyncio.Event()
        self.reachable.set()
        self.are_silent = False

    async def dial(self) -> Any:
        await self.reachable.wait()
        line = Line()
        if self.are_silent:
            line.answers.clear()
        self.lines.append(line)
        return line

    def be_silent(self) -> None:
        self.are_silent = True
        for line in self.lines:
            line.answers.clear()

    def answer(self) -> None:
        self.are_silent = False
        for line in self.lines:
            line.answers.set()

    async def calls(self, number: int) -> list[asyncio.Task[Any]]:
        """Begin calls, all about the same thing."""
        about = [("job", ["the same"])]
        fetch = self.pool.fetch
        calls = [asyncio.create_task(fetch("call", n, about=about)) for n in range(number)]
        await settle()
        return calls

    @property
    def sent(self) -> int:
        return sum(len(line.statements) for line in self.lines)

    async def close(self) -> None:
        self.answer()
        await self.pool.close()
        assert all(line.is_closed() for line in self.lines)
        assert not self.pool._tasks
        assert not self.pool._busy


async def fate(call: asyncio.Task[Any]) -> BaseException | None:
    await asyncio.wait([call])
    return asyncio.CancelledError() if call.cancelled() else call.exception()


@in_virtual_time
async def test_calls_one_after_the_other_share_a_connection():
    exchange = Exchange()
    for number in range(3):
        assert await exchange.pool.fetch("SELECT $1", number) == [("SELECT $1", number)]
    assert exchange.lines == [exchange.first]
    await settle()
    assert not exchange.pool._tasks
    await exchange.close()
    assert exchange.first.farewells == 1


@in_virtual_time
async def test_connections_that_were_lost_are_not_used():
    exchange = Exchange()
    exchange.be_silent()
    calls = await exchange.calls(3)
    exchange.answer()
    await asyncio.gather(*calls)
    [_, second, third] = exchange.lines
    third.terminate()
    second.terminate()
    await exchange.pool.fetch("next")
    assert exchange.first.statements[-1] == ("next",)
    assert len(exchange.lines) == 3
    exchange.first.terminate()
    await exchange.pool.fetch("on a new one")
    assert exchange.lines[-1].statements == [("on a new one",)]
    await exchange.close()


@in_virtual_time
async def test_a_call_beyond_the_eighth_waits_for_a_connection():
    exchange = Exchange()
    exchange.be_silent()
    calls = await exchange.calls(SIZE + 1)
    assert (len(exchange.lines), exchange.sent) == (SIZE, SIZE)
    exchange.first.answers.set()
    await settle()
    assert (len(exchange.lines), exchange.sent) == (SIZE, SIZE + 1)
    exchange.answer()
    await asyncio.gather(*calls)
    await exchange.close()


@pytest.mark.parametrize("outcome", [None, asyncpg.UniqueViolationError("twice")])
@in_virtual_time
async def test_a_call_that_gets_no_connection_fails_in_time_and_takes_no_place(
    outcome: Exception | None,
):
    exchange = Exchange()
    exchange.be_silent()
    calls = await exchange.calls(SIZE)
    with pytest.raises(StoreUnavailable, match="overloaded: all 8 connections"):
        await exchange.pool.fetch("late")
    assert now() == 5
    for line in exchange.lines:
        line.error = outcome
    exchange.answer()
    await asyncio.gather(*calls, return_exceptions=True)
    exchange.be_silent()
    calls = await exchange.calls(SIZE + 1)
    assert exchange.sent == 2 * SIZE
    exchange.answer()
    await asyncio.gather(*calls, return_exceptions=True)
    await exchange.close()


# Errors.


@pytest.mark.parametrize(
    ("error", "survives"),
    [
        (asyncpg.UniqueViolationError("twice"), True),
        (asyncpg.QueryCanceledError("too long"), True),
        (asyncpg.ReadOnlySQLTransactionError("a standby now"), False),
        (asyncpg.AdminShutdownError("stopping"), False),
        (TimeoutError(), False),
        (ConnectionResetError("reset"), False),
    ],
)
@in_virtual_time
async def test_an_error_costs_all_idle_connections_only_if_it_breaks_its_own(
    error: Exception, survives: bool
):
    exchange = Exchange()
    exchange.be_silent()
    calls = await exchange.calls(3)
    exchange.answer()
    await asyncio.gather(*calls)
    exchange.lines[-1].error = error
    with pytest.raises(StoreError):
        await exchange.pool.fetch("fails")
    assert [line.is_closed() for line in exchange.lines] == [not survives] * 3
    exchange.lines[-1].error = None
    await exchange.pool.fetch("works again")
    assert len(exchange.lines) == (3 if survives else 4)
    await exchange.close()


@in_virtual_time
async def test_a_server_that_cannot_be_reached_is_an_error_of_the_store():
    exchange = Exchange()
    exchange.first.terminate()

    async def dial() -> Any:
        raise ConnectionRefusedError("refused")

    exchange.pool._dial = dial
    with pytest.raises(StoreUnavailable, match="refused"):
        await exchange.pool.fetch("call")
    await exchange.close()


# Callers that are cancelled.


@in_virtual_time
async def test_later_calls_wait_for_what_a_cancelled_caller_has_sent():
    exchange = Exchange()
    exchange.be_silent()
    [first, second] = await exchange.calls(2)
    first.cancel()
    assert isinstance(await fate(first), asyncio.CancelledError)
    [later] = await exchange.calls(1)
    assert exchange.sent == 2
    second.cancel()  # while a later call waits already
    await settle()
    exchange.lines[0].answers.set()
    await settle()
    assert exchange.sent == 2
    exchange.lines[1].answers.set()
    await later
    assert exchange.sent == 3
    await exchange.pool.fetch("goes at once")
    await exchange.close()


@in_virtual_time
async def test_calls_about_other_things_do_not_wait_for_what_a_cancelled_caller_has_sent():
    exchange = Exchange()
    exchange.be_silent()
    [first] = await exchange.calls(1)
    first.cancel()
    await settle()
    exchange.are_silent = False  # connections from now on answer
    await exchange.pool.fetch("about nothing")
    await exchange.pool.fetch("other", about=[("job", ["other"]), ("key", [None, "k"])])
    await exchange.pool.fetch("another kind", about=[("queue", ["the same"])])
    both = [("key", ["k"]), ("job", [None, "other", "the same"])]
    later = asyncio.create_task(exchange.pool.fetch("several", about=both))
    await settle()
    assert exchange.sent == 4
    exchange.answer()
    await later
    await exchange.close()


@in_virtual_time
async def test_a_call_that_was_not_sent_is_dropped_with_its_caller():
    exchange = Exchange()
    exchange.be_silent()
    calls = await exchange.calls(SIZE + 1)
    calls[-1].cancel()
    assert isinstance(await fate(calls[-1]), asyncio.CancelledError)
    exchange.answer()
    await asyncio.gather(*calls[:-1])
    await settle()
    assert exchange.sent == SIZE
    await exchange.close()


@in_virtual_time
async def test_a_call_is_dropped_with_its_caller_while_a_connection_is_opened():
    exchange = Exchange()
    exchange.first.terminate()
    exchange.reachable.clear()
    [call] = await exchange.calls(1)
    call.cancel()
    await settle()
    exchange.reachable.set()
    await exchange.pool.fetch("other")
    assert exchange.lines[-1].statements == [("other",)]
    assert exchange.sent == 1
    await exchange.close()


# Idle connections.


@in_virtual_time
async def test_idle_connections_are_closed_oldest_first_down_to_one():
    exchange = Exchange()
    exchange.be_silent()
    calls = await exchange.calls(3)
    exchange.answer()
    await asyncio.gather(*calls)
    exchange.clock.shift(59)
    await exchange.pool.fetch("soon")
    await settle()
    assert not any(line.farewells for line in exchange.lines)
    exchange.clock.shift(2)
    left = []
    for _ in range(4):
        await exchange.pool.fetch("later")
        await settle()
        left.append([not line.is_closed() for line in exchange.lines])
    assert left == [[False, True, True], *[[False, False, True]] * 3]
    exchange.clock.shift(1000)
    await exchange.pool.fetch("much later")
    await settle()
    assert not exchange.lines[-1].is_closed()
    assert [line.farewells for line in exchange.lines] == [1, 1, 0]
    await exchange.close()


# Closing.


@in_virtual_time
async def test_closing_lets_a_call_end_and_refuses_new_ones():
    exchange = Exchange()
    exchange.be_silent()
    [call] = await exchange.calls(1)
    closing = asyncio.create_task(exchange.pool.close())
    await asyncio.sleep(0.5)
    with pytest.raises(StoreError, match="was closed"):
        await exchange.pool.fetch("late")
    exchange.answer()
    assert await call == [("call", 0)]
    await closing
    assert now() == 0.5
    assert exchange.first.farewells == 1
    with pytest.raises(StoreError, match="was closed"):
        await exchange.pool.fetch("later")


@in_virtual_time
async def test_closing_cuts_calls_that_take_too_long():
    exchange = Exchange()
    exchange.be_silent()
    calls = await exchange.calls(SIZE + 2)  # two of them wait for a place
    await exchange.pool.close()
    assert now() == 1
    assert not exchange.pool._tasks
    assert all(line.is_closed() for line in exchange.lines)
    await settle()
    assert all(call.done() for call in calls)
    for call in calls[-2:]:
        assert "was closed" in str(call.exception())
    assert all(isinstance(call.exception(), StoreError) for call in calls)


@in_virtual_time
async def test_calls_that_wait_for_one_of_a_cancelled_caller_end_with_closing():
    exchange = Exchange()
    exchange.be_silent()
    [first] = await exchange.calls(1)
    first.cancel()
    [second] = await exchange.calls(1)
    await exchange.pool.close()
    assert "was closed" in str(await fate(second))
    assert exchange.sent == 1


@in_virtual_time
async def test_a_cancelled_close_cuts_everything():
    exchange = Exchange()
    exchange.be_silent()
    calls = await exchange.calls(3)
    exchange.lines[-1].answers.set()
    await calls[-1]  # one connection is idle
    closing = asyncio.create_task(exchange.pool.close())
    await asyncio.sleep(0.5)
    closing.cancel()
    assert isinstance(await fate(closing), asyncio.CancelledError)
    assert now() == 0.5
    assert all(line.is_closed() for line in exchange.lines)
    for call in calls[:2]:
        assert isinstance(await fate(call), StoreError)


@in_virtual_time
async def test_farewells_take_a_second_together_and_may_fail():
    exchange = Exchange()
    exchange.be_silent()
    calls = await exchange.calls(4)
    exchange.answer()
    await asyncio.gather(*calls)
    for line in exchange.lines:
        line.farewell_seconds = 1.0
        line.farewell_error = TimeoutError()
    await exchange.pool.close()
    assert now() == 1
    assert all(line.is_closed() for line in exchange.lines)


@in_virtual_time
async def test_closing_does_not_wait_for_the_farewell_of_an_idle_connection():
    exchange = Exchange()
    exchange.be_silent()
    calls = await exchange.calls(2)
    exchange.answer()
    await asyncio.gather(*calls)
    exchange.first.farewell_seconds = 600
    exchange.clock.shift(61)
    await exchange.pool.fetch("later")
    await exchange.pool.close()
    assert now() == 1
    assert not exchange.pool._tasks


@in_virtual_time
async def test_abandoning_closes_the_sockets_of_all_connections():
    exchange = Exchange()
    exchange.be_silent()
    calls = await exchange.calls(4)
    for line in exchange.lines[:2]:
        line.answers.set()
    await asyncio.gather(*calls[:2])
    pairs = [socket.socketpair() for _ in exchange.lines]
    for line, (ours, _) in zip(exchange.lines, pairs, strict=True):
        line._transport = Transport(ours)
    exchange.pool.abandon()
    for ours, theirs in pairs:
        assert ours.fileno() == -1
        theirs.close()
    with pytest.raises(StoreError, match="was closed"):
        await exchange.pool.fetch("late")
    exchange.answer()
    await asyncio.gather(*calls)


class Transport:
    """What leads to a socket, as asyncio's transports do."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def get_extra_info(self, name: str) -> object:
        assert name == "socket"
        return self


# Opening connections.


@pytest.fixture
def connecting(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], Connector]:
    """Make a connector that connects by calling a function."""

    def make(connect: Any) -> Connector:
        monkeypatch.setattr(asyncpg, "connect", connect)
        return Connector(Secret({"dsn": "postgresql://host/db"}), random.Random(0).random)

    return make


@in_virtual_time
async def test_a_dialer_returns_a_connection_or_raises_why_there_is_none(connecting: Any):
    async def connect(dsn: str, **_: object) -> object:
        await asyncio.sleep(1)
        if len(dials) == 2:
            raise ConnectionRefusedError("refused")
        return dsn

    connector = connecting(connect)
    dials = [1]
    assert await connector.dial() == "postgresql://host/db"
    dials.append(2)
    with pytest.raises(ConnectionRefusedError):
        await connector.dial()
    assert not connector._tasks
    await connector.close()
    assert now() == 2


@pytest.mark.parametrize("fails", [False, True])
@in_virtual_time
async def test_a_connection_that_comes_after_its_caller_left_is_cut(connecting: Any, fails: bool):
    line = Line()

    async def connect(**_: Any) -> Line:
        await asyncio.sleep(0.5)
        if fails:
            raise ConnectionRefusedError("refused")
        return line

    connector = connecting(connect)
    call = asyncio.create_task(connector.dial())
    await settle()
    call.cancel()
    assert isinstance(await fate(call), asyncio.CancelledError)
    assert not line.is_closed()
    await connector.close()
    assert now() == 0.5
    await settle()
    assert line.is_closed() is not fails


@in_virtual_time
async def test_a_dialer_gives_up_on_connections_that_take_too_long(connecting: Any):
    async def connect(**_: Any) -> Line:
        await asyncio.sleep(600)
        return Line()

    connector = connecting(connect)
    calls = [asyncio.create_task(connector.dial()) for _ in range(3)]
    await settle()
    for call in calls:
        call.cancel()
    await connector.close()
    assert now() == 1
    assert not connector._tasks


@in_virtual_time
async def test_attempts_to_reach_a_server_that_is_away_are_few(connecting: Any):
    attempts: list[float] = []

    async def connect(**_: Any) -> Line:
        attempts.append(now())
        await asyncio.sleep(0.001)
        raise ConnectionRefusedError("refused")

    connector = connecting(connect)

    async def caller() -> None:
        while now() < 20:
            with pytest.raises(ConnectionRefusedError):
                await connector.dial()

    await asyncio.gather(*(caller() for _ in range(8)))
    # All eight had begun when the first attempt failed. Later pauses are of 0.5 to 1 s.
    assert 20 <= len(attempts) <= 8 + 45
    pauses = [late - early for early, late in pairwise(attempts[20:])]
    assert all(0.5 <= pause <= 1.1 for pause in pauses)
    assert len({round(pause, 3) for pause in pauses}) > 5
    await connector.close()


@in_virtual_time
async def test_callers_that_waited_for_a_server_get_connections_when_it_is_back(connecting: Any):
    is_up = False

    async def connect(**_: Any) -> Line:
        if not is_up:
            raise ConnectionRefusedError("refused")
        return Line()

    connector = connecting(connect)
    for _ in range(6):
        with pytest.raises(ConnectionRefusedError):
            await connector.dial()
    calls = [asyncio.create_task(connector.dial()) for _ in range(4)]
    await settle()
    calls[0].cancel()  # it had the turn; the next one takes it
    is_up = True
    begun = now()
    lines = await asyncio.gather(*calls[1:])
    assert len(set(map(id, lines))) == 3
    assert now() - begun <= 1
    at_once = now()
    await connector.dial()
    assert now() == at_once
    await connector.close()
