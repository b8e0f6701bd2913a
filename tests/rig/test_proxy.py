import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import asyncpg
import pytest
import redis
import redis.asyncio

from tests.rig.fixtures import Endpoint, ProxyTo
from tests.rig.proxy import Proxy
from tests.rig.wait import wait_until_async
from tests.rig.wire import Postgres, Resp

Dial = Callable[..., redis.asyncio.Redis]
DialPostgres = Callable[[], Awaitable[asyncpg.Connection]]

LOST = (redis.ConnectionError, redis.TimeoutError)
LOST_POSTGRES = (OSError, asyncpg.PostgresConnectionError, asyncpg.InterfaceError)


@pytest.fixture
def line(proxy: ProxyTo, valkey_server: Endpoint) -> Proxy:
    return proxy(valkey_server)


@pytest.fixture
async def dial(line: Proxy, valkey_server: Endpoint) -> AsyncIterator[Dial]:
    """Make clients that go through the proxy, have one connection and never try again."""
    clients: list[redis.asyncio.Redis] = []

    def connect(**options: object) -> redis.asyncio.Redis:
        options = {"socket_timeout": 30, "single_connection_client": True, **options}
        client = redis.asyncio.Redis.from_url(line.url(valkey_server.url), retry=None, **options)
        clients.append(client)
        return client

    yield connect
    for client in clients:
        await client.aclose()


@pytest.fixture
async def direct(valkey_server: Endpoint) -> AsyncIterator[redis.asyncio.Redis]:
    """A client that does not go through the proxy."""
    async with redis.asyncio.Redis.from_url(valkey_server.url) as client:
        yield client


@pytest.fixture
def postgres_line(proxy: ProxyTo, postgres_server: Endpoint) -> Proxy:
    return proxy(postgres_server)


@pytest.fixture
async def dial_postgres(
    postgres_line: Proxy, postgres_server: Endpoint
) -> AsyncIterator[DialPostgres]:
    connections: list[asyncpg.Connection] = []

    async def connect() -> asyncpg.Connection:
        connection = await asyncpg.connect(postgres_line.url(postgres_server.url))
        connections.append(connection)
        return connection

    yield connect
    for connection in connections:
        connection.terminate()


@pytest.fixture
async def table(postgres_server: Endpoint, namespace: str) -> AsyncIterator[asyncpg.Connection]:
    """A direct connection, and the table named `counter` of this test with one row, n = 0."""
    connection = await asyncpg.connect(postgres_server.url)
    await connection.execute(
        f"CREATE TABLE {namespace} (n int); INSERT INTO {namespace} VALUES (0)"
    )
    yield connection
    await connection.execute(f"DROP TABLE {namespace}")
    await connection.close()


# Valkey


async def test_a_healthy_proxy_changes_nothing(line: Proxy, dial: Dial, namespace: str):
    for version in (2, 3):
        client = dial(protocol=version)
        await client.set(namespace, b"x" * 1_000_000)
        assert await client.get(namespace) == b"x" * 1_000_000
        assert await client.lrange(namespace + "-none", 0, -1) == []
    assert line.connections == 2


async def test_commands_are_counted_one_by_one_in_a_pipeline_and_introductions_are_not(
    line: Proxy, dial: Dial, namespace: str
):
    async with dial(client_name="me").pipeline(transaction=False) as pipeline:
        for _ in range(5):
            pipeline.incr(namespace)
        assert await pipeline.execute() == [1, 2, 3, 4, 5]
    assert line.commands == 5


async def test_traffic_is_each_request_with_its_reply(line: Proxy, dial: Dial):
    client = dial()
    await client.ping()
    before = line.traffic
    await client.ping()
    await client.ping()
    assert line.traffic.round_trips - before.round_trips == 2
    ping, pong = b"*1\r\n$4\r\nPING\r\n", b"+PONG\r\n"
    assert line.traffic.size - before.size == 2 * len(ping + pong)


async def test_cut_before_has_no_effect_on_the_server(
    line: Proxy, dial: Dial, direct: redis.asyncio.Redis, namespace: str
):
    client = dial()
    line.cut_before(2, match="INCR")
    assert await client.incr(namespace) == 1
    with pytest.raises(LOST):
        await client.incr(namespace)
    assert await direct.get(namespace) == b"1"
    assert await dial().incr(namespace) == 2


async def test_cut_after_has_its_effect_though_the_client_saw_an_error(
    line: Proxy, dial: Dial, direct: redis.asyncio.Redis, namespace: str
):
    client = dial()
    line.cut_after(1, match=b"INCR")
    with pytest.raises(LOST):
        await client.incr(namespace)
    assert await direct.get(namespace) == b"1"
    assert await dial().incr(namespace) == 2


@pytest.mark.parametrize(("fault", "effects"), [(Proxy.cut_before, b"2"), (Proxy.cut_after, b"3")])
async def test_a_cut_in_a_pipeline_has_effect_up_to_the_command_it_aims_at(
    fault: Callable[..., None],
    effects: bytes,
    line: Proxy,
    dial: Dial,
    direct: redis.asyncio.Redis,
    namespace: str,
):
    client = dial()
    await client.ping()
    fault(line, 3, match="INCR")
    async with client.pipeline(transaction=False) as pipeline:
        for _ in range(5):
            pipeline.incr(namespace)
        with pytest.raises(LOST):
            await pipeline.execute()
    assert await direct.get(namespace) == effects


async def test_a_held_reply_comes_when_let_go(
    line: Proxy, dial: Dial, direct: redis.asyncio.Redis, namespace: str
):
    client = dial()
    held = line.hold_reply(match="INCR")
    answer = asyncio.create_task(client.incr(namespace))
    await asyncio.to_thread(held.wait_until_held)
    assert await direct.get(namespace) == b"1"
    assert await dial().get(namespace) == b"1"
    assert not answer.done()
    held.let_go()
    assert await answer == 1


async def test_waiting_for_a_held_reply_has_a_deadline(line: Proxy):
    with pytest.raises(AssertionError, match="no reply"):
        line.hold_reply().wait_until_held(0.01)


async def test_frozen_traffic_arrives_late_even_when_the_client_has_gone(
    line: Proxy, dial: Dial, direct: redis.asyncio.Redis, namespace: str
):
    client = dial()
    await client.ping()
    line.freeze()
    answer = asyncio.create_task(client.incr(namespace))
    await wait_until_async(lambda: line.kept_back)
    answer.cancel()
    await client.aclose()
    assert await direct.get(namespace) is None
    line.thaw()
    await wait_until_async(lambda: direct.get(namespace))
    await wait_until_async(lambda: line.connections == 0)
    assert await dial().ping()


async def test_one_way_to_the_server_loses_only_replies(
    line: Proxy, dial: Dial, direct: redis.asyncio.Redis, namespace: str
):
    client = dial()
    await client.ping()
    line.one_way("to_server")
    answer = asyncio.create_task(client.incr(namespace))
    await wait_until_async(lambda: direct.get(namespace))
    await wait_until_async(lambda: line.kept_back)
    assert not answer.done()
    line.heal()
    assert await answer == 1


async def test_one_way_to_the_client_loses_only_commands(
    line: Proxy, dial: Dial, direct: redis.asyncio.Redis, namespace: str
):
    client = dial()
    subscription = client.pubsub()
    await subscription.subscribe(namespace)
    assert await subscription.get_message(timeout=5)
    await client.ping()
    line.one_way("to_client")
    answer = asyncio.create_task(client.incr(namespace))
    await wait_until_async(lambda: line.kept_back)
    await direct.publish(namespace, "news")
    message = await subscription.get_message(timeout=5)
    assert message
    assert message["data"] == b"news"
    assert await direct.get(namespace) is None
    line.heal()
    assert await answer == 1
    await subscription.aclose()


@pytest.mark.parametrize("protocol", [2, 3])
async def test_messages_of_a_subscription_are_no_replies(
    protocol: int, line: Proxy, dial: Dial, direct: redis.asyncio.Redis, namespace: str
):
    client = dial(protocol=protocol)
    subscription = client.pubsub()
    await subscription.subscribe(namespace, namespace + "-2")
    for _ in range(2):
        assert await subscription.get_message(timeout=5)
    await direct.publish(namespace, "news")
    held = line.hold_reply(match="PING")
    await subscription.ping()
    await asyncio.to_thread(held.wait_until_held)
    held.let_go()
    kinds = {(await subscription.get_message(timeout=5) or {}).get("type") for _ in range(2)}
    assert kinds == {"message", "pong"}
    await subscription.aclose()


async def test_delay_adds_up_over_both_directions_and_ends_when_healed(line: Proxy, dial: Dial):
    client = dial()
    await client.ping()
    line.delay(0.05)
    start = time.monotonic()
    await client.ping()
    assert time.monotonic() - start >= 0.1
    line.delay(1000)
    answer = asyncio.create_task(client.ping())
    await wait_until_async(lambda: line.kept_back)
    line.heal()
    assert await answer


async def test_refused_clients_cannot_connect_while_open_connections_stay(line: Proxy, dial: Dial):
    client = dial()
    await client.ping()
    line.refuse()
    with pytest.raises(redis.ConnectionError):
        await dial().ping()
    assert await client.ping()
    line.accept()
    assert await dial().ping()


async def test_cut_all_cuts_every_connection_even_a_frozen_one(line: Proxy, dial: Dial):
    clients = [dial(), dial()]
    for client in clients:
        await client.ping()
    line.freeze()
    answers = [asyncio.create_task(client.ping()) for client in clients]
    await wait_until_async(lambda: line.kept_back == 2)
    line.cut_all()
    assert line.connections == 0
    for answer in answers:
        with pytest.raises(redis.ConnectionError):
            await answer
    line.heal()
    assert await dial().ping()


async def test_heal_forgets_faults_that_did_not_happen_yet(line: Proxy, dial: Dial, namespace: str):
    line.cut_before(match="INCR")
    line.cut_after(match="INCR")
    held = line.hold_reply(match="INCR")
    line.refuse()
    line.heal()
    assert await dial().incr(namespace) == 1
    with pytest.raises(AssertionError):
        held.wait_until_held(0)


def test_a_dead_server_looks_like_a_cut():
    with (
        Proxy(1, "resp") as nowhere,
        redis.Redis(port=nowhere.port, retry=None) as client,
        pytest.raises(redis.ConnectionError),
    ):
        client.ping()


def test_the_proxy_works_while_no_loop_of_the_test_runs(line: Proxy, valkey_server: Endpoint):
    with redis.Redis.from_url(line.url(valkey_server.url), retry=None) as client:
        line.cut_after(match="PING")
        with pytest.raises(redis.ConnectionError):
            client.ping()
        assert client.ping()


def test_the_url_keeps_everything_but_the_place(line: Proxy):
    url = "postgresql://tenure:secret@127.0.0.1:5/tenure?a=b"
    assert line.url(url) == f"postgresql://tenure:secret@127.0.0.1:{line.port}/tenure?a=b"


def test_a_closed_proxy_has_ended_its_thread_and_can_be_closed_again(valkey_server: Endpoint):
    proxy = Proxy(valkey_server.port, "resp")
    proxy.close()
    proxy = Proxy(valkey_server.port, "resp").start()
    with redis.Redis(port=proxy.port) as client:
        assert client.ping()
        proxy.close()
        proxy.close()
    assert not proxy._thread.is_alive()


# PostgreSQL


async def test_postgres_commands_do_not_depend_on_what_is_prepared(
    postgres_line: Proxy, dial_postgres: DialPostgres, table: asyncpg.Connection, namespace: str
):
    connection = await dial_postgres()
    counts = []
    for _ in range(2):
        before = postgres_line.commands
        async with connection.transaction():
            await connection.execute(f"UPDATE {namespace} SET n = n + $1", 1)
        counts.append(postgres_line.commands - before)
    assert counts == [3, 3]
    assert await table.fetchval(f"SELECT n FROM {namespace}") == 2


async def test_postgres_traffic_counts_preparing_and_leaves_notifications_out(
    postgres_line: Proxy, dial_postgres: DialPostgres, table: asyncpg.Connection, namespace: str
):
    connection = await dial_postgres()
    heard = asyncio.Event()
    await connection.add_listener(namespace, lambda *_: heard.set())
    before = postgres_line.traffic
    await connection.fetchval("SELECT $1::int", 1)
    prepared = postgres_line.traffic
    assert prepared.round_trips - before.round_trips == 2
    await connection.fetchval("SELECT $1::int", 1)
    after = postgres_line.traffic
    assert after.round_trips - prepared.round_trips == 1

    await table.execute(f"NOTIFY {namespace}")
    await heard.wait()
    assert postgres_line.traffic == after


@pytest.mark.parametrize(("fault", "effect"), [(Proxy.cut_before, 1), (Proxy.cut_after, 2)])
async def test_postgres_connections_are_cut_before_or_after_the_effect(
    fault: Callable[..., None],
    effect: int,
    postgres_line: Proxy,
    dial_postgres: DialPostgres,
    table: asyncpg.Connection,
    namespace: str,
):
    connection = await dial_postgres()
    fault(postgres_line, 2, match=f"UPDATE {namespace}")
    update = f"UPDATE {namespace} SET n = n + $1"
    await connection.execute(update, 1)
    with pytest.raises(LOST_POSTGRES):
        await connection.execute(update, 1)
    assert await table.fetchval(f"SELECT n FROM {namespace}") == effect


@pytest.mark.parametrize(("fault", "effect"), [(Proxy.cut_before, 0), (Proxy.cut_after, 1)])
async def test_postgres_commit_is_lost_or_only_its_reply_is(
    fault: Callable[..., None],
    effect: int,
    postgres_line: Proxy,
    dial_postgres: DialPostgres,
    table: asyncpg.Connection,
    namespace: str,
):
    connection = await dial_postgres()
    fault(postgres_line, match="COMMIT")
    with pytest.raises(LOST_POSTGRES):
        async with connection.transaction():
            await connection.execute(f"UPDATE {namespace} SET n = n + 1")
    assert await table.fetchval(f"SELECT n FROM {namespace}") == effect


async def test_a_held_postgres_reply_comes_when_let_go(
    postgres_line: Proxy, dial_postgres: DialPostgres, table: asyncpg.Connection, namespace: str
):
    connection = await dial_postgres()
    held = postgres_line.hold_reply(match="UPDATE")
    update = f"UPDATE {namespace} SET n = n + $1 RETURNING n"
    answer = asyncio.create_task(connection.fetchval(update, 1))
    await asyncio.to_thread(held.wait_until_held)
    assert await table.fetchval(f"SELECT n FROM {namespace}") == 1
    assert not answer.done()
    held.let_go()
    assert await answer == 1


async def test_a_frozen_postgres_connection_goes_on_when_thawed(
    postgres_line: Proxy, dial_postgres: DialPostgres
):
    connection = await dial_postgres()
    postgres_line.freeze()
    answer = asyncio.create_task(connection.fetchval("SELECT 7"))
    await wait_until_async(lambda: postgres_line.kept_back)
    assert not answer.done()
    postgres_line.thaw()
    assert await answer == 7


async def test_postgres_notifications_and_copies_pass(
    postgres_line: Proxy, dial_postgres: DialPostgres, table: asyncpg.Connection, namespace: str
):
    connection = await dial_postgres()
    heard: list[object] = []
    await connection.add_listener(namespace, lambda *news: heard.append(news[-1]))
    await table.execute(f"NOTIFY {namespace}, 'news'")
    await wait_until_async(lambda: heard == ["news"])
    await connection.copy_records_to_table(namespace, records=[(n,) for n in range(1, 1001)])
    assert await connection.fetchval(f"SELECT count(*) FROM {namespace}") == 1001
    await connection.remove_listener(namespace, lambda: None)


async def test_a_postgres_query_is_cancelled_through_the_proxy(
    postgres_line: Proxy, dial_postgres: DialPostgres
):
    connection = await dial_postgres()
    with pytest.raises(TimeoutError):
        await connection.execute("SELECT pg_sleep(60)", timeout=0.1)
    assert await connection.fetchval("SELECT 7") == 7


# The parsers


def pieces(stream: bytes, size: int) -> list[bytes]:
    return [stream[at : at + size] for at in range(0, len(stream), size)]


RESP3_REPLIES = [
    (b"+OK\r\n", True),
    (b"$-1\r\n", True),
    (b"*-1\r\n", True),
    (b"*0\r\n", True),
    (b"$4\r\n\r\n\r\n\r\n", True),
    (b"*2\r\n*1\r\n:1\r\n$1\r\na\r\n", True),
    (b">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nm\r\n", False),
    (b"*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nm\r\n", False),
    (b">3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n", True),
    (b"|1\r\n+ttl\r\n:1\r\n%1\r\n+k\r\n~2\r\n#t\r\n,1.5\r\n", True),
    (b"_\r\n", True),
    (b"=6\r\ntxt:hi\r\n", True),
    (b"!5\r\nERR x\r\n", True),
]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_resp_is_read_from_pieces_of_any_size(size: int):
    wire = Resp()
    stream = b"".join(raw for raw, _ in RESP3_REPLIES)
    parts = [part for piece in pieces(stream, size) for part in wire.received(piece)]
    assert [(part.raw, part.ends_reply) for part in parts] == RESP3_REPLIES


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_postgres_is_read_from_pieces_of_any_size(size: int):
    ssl = b"\0\0\0\x08\x04\xd2\x16\x2f"
    login = b"\0\0\0\x13\0\3\0\0user\0tenure\0\0"[:19]
    parse = b"P\0\0\0\x12s1\0SELECT 1\0\0\0"
    sync = b"S\0\0\0\4"
    execute = b"B\0\0\0\x0d\0s1\0\0\0\0\0\0" + b"E\0\0\0\x09\0\0\0\0\0" + sync
    query = b"Q\0\0\0\x0aBEGIN\0"
    stream = ssl + login + parse + sync + execute + query
    wire = Postgres()
    parts = [part for piece in pieces(stream, size) for part in wire.sent(piece)]
    assert [part.raw for part in parts] == [b"", login, parse + sync, execute, query]
    assert [part.command for part in parts] == [False, False, False, True, True]
    assert b"SELECT 1" in parts[3].text
