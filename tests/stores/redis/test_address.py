"""How the Redis store finds its server and logs in, and its errors when that fails."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import redis

from tenure.core.clock import SystemClock
from tenure.core.jobs.records import Pruned
from tenure.core.leases import Grade, Lease
from tenure.errors import ConfigError, StoreError, StoreUnavailable
from tenure.stores.redis import RedisStore
from tenure.stores.redis.address import Address
from tenure.stores.redis.rights import NEEDED_RIGHTS
from tests.contract.calls import ask, be_refused, take
from tests.rig.fixtures import Endpoint, PrivateValkey
from tests.rig.sizes import SIZE
from tests.rig.wait import wait_until

Open = Callable[[str], Awaitable[RedisStore]]


@pytest.fixture
async def open_store(namespace: str) -> AsyncIterator[Open]:
    async with AsyncExitStack() as stack:

        async def make(url: str) -> RedisStore:
            store = RedisStore(url, namespace=namespace, clock=SystemClock())
            stack.push_async_callback(store.close)
            await store.open()
            return store

        yield make


# URLs.


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://host/0", "redis://host/0"),
        ("redis://:secret@host/0", "redis://:***@host/0"),
        (
            "valkeys://ann:secret@host:1/0?ssl_cert_reqs=none",
            "valkeys://ann:***@host:1/0?ssl_cert_reqs=none",
        ),
        ("redis://host/0?password=secret&db=1", "redis://host/0?password=***&db=1"),
        ("redis://ann:secret@/run/x.sock?db=1", "redis://ann:***@/run/x.sock?db=1"),
    ],
)
def test_a_url_is_shown_without_its_password(url: str, shown: str):
    assert Address(url).text == shown


@pytest.mark.parametrize(
    "url",
    [
        "redis://:secret@host/database",
        "redis://:secret@host:port/0",
        "redis://:secret@host/0?no_such_option=1",
        "redis://:secret@host/0?db=x",
        "redis://:secret@host/0?socket_timeout=soon",
        "rediss://:secret@/run/redis.sock",
        "redis://[:secret@host/0",
    ],
)
def test_a_url_that_cannot_work_is_refused_without_showing_its_password(url: str):
    with pytest.raises(ConfigError) as caught:
        Address(url)
    assert "secret" not in f"{caught.value!r} {caught.value.__cause__!r}"


def test_no_hidden_retries_whatever_the_url_says():
    for options in ("", "?retry_on_timeout=yes&protocol=3&decode_responses=yes"):
        connection = Address(f"redis://host/0{options}").connection()
        assert connection.retry.get_retries() == 0
        assert connection.protocol == 2
        assert not connection.encoder.decode_responses


async def test_a_unix_socket(open_store: Open, private_valkey: PrivateValkey, tmp_path: Path):
    socket = tmp_path / "valkey.sock"
    server = private_valkey(config={"unixsocket": str(socket)}, password="secret")
    store = await open_store(f"redis://:secret@{socket}?db=3")
    await take(store, "key", "ann")
    with redis.Redis(port=server.port, password="secret", db=3) as looker:
        assert looker.dbsize() == 4


async def test_the_scheme_of_valkey_and_a_database(open_store: Open, valkey_server: Endpoint):
    store = await open_store(f"valkey://127.0.0.1:{valkey_server.port}/5")
    await take(store, "key", "ann")
    assert store.url.startswith("valkey://")
    await store.leases.release([Lease(key="key", holder="ann")])


# Logging in.


@pytest.mark.parametrize("login", ["", ":wrong@", "ann:wrong@", "ann:secret@"])
async def test_a_wrong_login_is_a_mistake_in_the_url(
    open_store: Open, private_valkey: PrivateValkey, login: str
):
    server = private_valkey(password="secret")
    with pytest.raises(ConfigError) as caught:
        await open_store(f"redis://{login}127.0.0.1:{server.port}/0")
    text = str(caught.value)
    assert str(server.port) in text
    assert ("'ann'" if "ann" in login else "'default'") in text
    assert "secret" not in text
    assert "wrong@" not in text


async def test_a_password_changed_later_is_an_error_of_the_store(
    open_store: Open, private_valkey: PrivateValkey
):
    server = private_valkey(password="secret")
    store = await open_store(server.url)
    with redis.Redis.from_url(server.url) as operator:
        operator.config_set("requirepass", "other")
        operator.client_kill_filter(skipme=False)
    await asyncio.sleep(0.05)
    with pytest.raises(StoreError, match="refused the user"):
        await ask(store, "key", "ann")


async def test_the_error_for_a_user_without_rights_names_those_it_needs(
    open_store: Open, private_valkey: PrivateValkey, caplog: pytest.LogCaptureFixture
):
    server = private_valkey()
    with redis.Redis.from_url(server.url) as operator:
        operator.acl_setuser(
            "ann",
            enabled=True,
            passwords=["+secret"],
            keys=["{tenure:*"],
            reset_channels=True,
            commands=["+@all", "-info"],
        )
        operator.acl_setuser(
            "ben", enabled=True, passwords=["+secret"], keys=["other:*"], commands=["+@all"]
        )
    store = await open_store(f"redis://ann:secret@127.0.0.1:{server.port}/0")
    # Without rights on the channel no waiter is woken, but everything else works.
    async with store.watch(("lease", "cid")) as watch:
        lease = await take(store, "key", "ann")
        await be_refused(store, "key", "cid", waiting=60)
        assert await store.leases.release([lease]) == [True]
        assert not await watch.wait(0.05)
        await take(store, "key", "cid")
        [message] = [
            record.getMessage() for record in caplog.records if "No wake-ups" in record.getMessage()
        ]
        assert "&{tenure:" in message
        with redis.Redis.from_url(server.url) as operator:
            operator.execute_command("ACL", "SETUSER", "ann", "&{tenure:*")
        assert await watch.wait(SIZE.patience)  # it hears again, and may have missed something
    with redis.Redis.from_url(server.url) as operator:
        operator.execute_command("ACL", "SETUSER", "ann", "-zadd")
    with pytest.raises(StoreError, match=r"~\{tenure:"):
        await ask(store, "other", "ann")
    with pytest.raises(StoreError, match=r"~\{tenure:"):
        await open_store(f"redis://ben:secret@127.0.0.1:{server.port}/0")


def test_the_rights_that_are_told_are_enough(private_valkey: PrivateValkey, namespace: str):
    server = private_valkey()
    with redis.Redis.from_url(server.url) as operator:
        operator.execute_command("ACL", "SETUSER", "ann", "on", ">s", *NEEDED_RIGHTS.split())
    store = RedisStore(
        f"redis://ann:s@127.0.0.1:{server.port}/0", namespace=namespace, clock=SystemClock()
    )

    async def use() -> None:
        await store.open()
        try:
            lease = await take(store, "key", "ann")
            async with store.watch(("lease", "ben")) as watch:
                await be_refused(store, "key", "ben", waiting=60)
                assert await store.leases.mark("mark", lease, "v1")
                assert await store.leases.renew([lease]) == [True]
                assert await store.leases.release([lease]) == [True]
                assert await watch.wait(20)
            assert len(await store.leases.find()) == 1
            assert await store.prune(idle=0) == Pruned(0, 0, more=False)
            assert await store.leases.marked(["mark"]) != [None]
        finally:
            await store.close()

    asyncio.run(use())


# What the server is.


async def test_the_grade_follows_what_the_server_survives(
    open_store: Open, private_valkey: PrivateValkey
):
    durable = private_valkey()
    volatile = private_valkey(config={"appendonly": "no"})
    assert (await open_store(durable.url)).traits.grade is Grade.B
    assert (await open_store(volatile.url)).traits.grade is Grade.D
    replica = private_valkey(config={"replicaof": f"127.0.0.1 {durable.port}"})
    with redis.Redis.from_url(durable.url) as operator:
        wait_until(lambda: operator.info("replication")["connected_slaves"] == 1, 20)
    store = await open_store(durable.url)
    assert store.traits.grade is Grade.C
    await take(store, "key", "ann")
    with pytest.raises(StoreUnavailable, match="read-only replica"):
        await open_store(replica.url)


async def test_an_open_store_whose_server_becomes_a_replica_is_unavailable(
    open_store: Open, private_valkey: PrivateValkey
):
    servers = [private_valkey(), private_valkey()]
    store = await open_store(servers[0].url)
    await take(store, "key", "ann")
    with redis.Redis.from_url(servers[0].url) as operator:
        operator.replicaof("127.0.0.1", servers[1].port)
        for call in (
            ask(store, "other", "ann"),
            store.leases.release([Lease(key="key", holder="ann")]),
        ):
            with pytest.raises(StoreUnavailable):
                await call
        operator.replicaof("no", "one")
    await take(store, "other", "ann")


async def test_a_server_that_may_evict_is_warned_about_once(
    open_store: Open, private_valkey: PrivateValkey, caplog: pytest.LogCaptureFixture
):
    server = private_valkey(config={"maxmemory-policy": "volatile-lru"})
    with caplog.at_level(logging.WARNING, "tenure"):
        for _ in range(2):
            await open_store(server.url)
    (record,) = caplog.records
    assert "volatile-lru" in record.getMessage()
    assert "noeviction" in record.getMessage()


async def test_a_namespace_of_a_newer_version_is_refused(
    open_store: Open, valkey_server: Endpoint, namespace: str
):
    await open_store(valkey_server.url)
    with redis.Redis.from_url(valkey_server.url) as operator:
        operator.set(f"{{tenure:{namespace}}}:format", 99)
        with pytest.raises(ConfigError, match="99"):
            await open_store(valkey_server.url)


async def test_a_cluster_node_serves_the_namespaces_it_owns(
    open_store: Open, private_valkey: PrivateValkey
):
    node, up = private_valkey(config={"cluster-enabled": "yes"}), b"cluster_state:ok"
    with redis.Redis.from_url(node.url) as operator:
        with pytest.raises(StoreUnavailable, match="cluster"):
            await open_store(node.url)
        operator.execute_command("CLUSTER", "ADDSLOTS", *range(16384))
        wait_until(lambda: operator.execute_command("CLUSTER", "INFO").startswith(up), 20)
    store = await open_store(node.url)
    assert store.traits.grade is Grade.C
    async with store.watch(("lease", "ben")) as watch:
        lease = await take(store, "key", "ann")
        await be_refused(store, "key", "ben", waiting=60)
        await store.leases.release([lease])
        assert await watch.wait(20)


@pytest.mark.parametrize(
    ("reply", "kind", "advice"),
    [
        ("MOVED 866 127.0.0.1:7001", StoreError, "Use redis+cluster://"),
        ("CROSSSLOT Keys in request don't hash to the same slot", StoreError, "slot"),
        ("LOADING Redis is loading the dataset in memory", StoreUnavailable, "loading"),
        ("READONLY You can't write against a read only replica.", StoreUnavailable, "primary"),
        (
            "ERR Error running script (call to f_6b): @user_script: 12: -READONLY You can't write",
            StoreUnavailable,
            "primary",
        ),
        ("ERR something else", StoreError, "something else"),
    ],
)
def test_refusals_of_the_server_become_errors_of_tenure(
    reply: str, kind: type[StoreError], advice: str
):
    error = Address("redis://:secret@host/0").fault(redis.ResponseError(reply))
    assert type(error) is kind
    assert advice in str(error)
    assert "redis://:***@host/0" in str(error)
