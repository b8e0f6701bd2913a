"""How the Redis store finds the primary behind Sentinel and in a cluster, and follows it."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
import redis
from redis.crc import key_slot

from tenure.core.clock import SystemClock
from tenure.core.leases import Grade
from tenure.core.redaction import redact
from tenure.errors import ConfigError, StoreUnavailable
from tenure.stores.redis import RedisStore, topology
from tenure.stores.redis.rights import NEEDED_RIGHTS
from tenure.stores.redis.topology import address_of
from tests.contract.calls import ask, be_refused, take
from tests.rig.fixtures import PrivateValkey
from tests.rig.impostor import Answer, Impostor, impostor
from tests.rig.servers import Valkey
from tests.rig.sizes import SIZE
from tests.rig.wait import wait_until, wait_until_async

Open = Callable[[str], Awaitable[RedisStore]]
QUICK = "socket_timeout=0.5&socket_connect_timeout=1"


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
    "url",
    [
        "redis+sentinel://ann:secret@one:1,two:2,[::1]:3/shop/4?sentinel_password=secret",
        "valkeys+sentinel://:secret@one/shop?sentinel_username=eve&sentinel_password=secret",
        "rediss+cluster://ann:secret@one:1,two:2/0?ssl_cert_reqs=none",
        "valkey+cluster://one,two,three?password=secret",
    ],
)
def test_urls_of_groups_are_read_and_shown_without_passwords(url: str):
    address = address_of(url, "{tenure:x}:")
    assert "secret" not in address.text
    assert "secret" not in redact(url)
    assert address.text.split("://")[1].count("***") == url.count("secret")


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("redis+sentinel://:secret@host:1", "the name of the service is missing"),
        ("redis+sentinel://:secret@host:1/", "the name of the service is missing"),
        ("redis+sentinel://:secret@host:1/shop/one", "the database must be a number"),
        ("redis+sentinel://:secret@/shop", "a host is missing"),
        ("redis+sentinel://:secret@host,,host/shop", "a host is missing"),
        ("redis+sentinel://:secret@host/shop?sentinel_pass=secret", "Use redis+sentinel://"),
        ("redis+sentinel://:secret@host/shop?no_such_option=1", "Use redis+sentinel://"),
        ("redis+sentinel://:secret@host:port/shop", "Use redis+sentinel://"),
        ("redis+cluster://:secret@host:1/3", "a cluster has no databases but 0"),
        ("redis+cluster://", "a host is missing"),
        ("redis+cluster://:secret@host/?socket_timeout=soon", "Use redis+cluster://"),
    ],
)
def test_urls_of_groups_that_cannot_work_are_refused(url: str, reason: str):
    with pytest.raises(ConfigError, match="is not a URL that can work") as caught:
        address_of(url, "{tenure:x}:")
    assert reason in str(caught.value)
    assert "secret" not in f"{caught.value!r} {caught.value.__cause__!r}"


# Sentinel.


class Pointer:
    """What a Sentinel says, as the test wants it."""

    def __init__(self, server: Valkey) -> None:
        self.server = server

    def __call__(self, words: list[str]) -> Any:
        assert words == ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "shop"]
        return ["127.0.0.1", str(self.server.port)]


def sentinel_url(*sentinels: Impostor) -> str:
    places = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in sentinels)
    return f"redis+sentinel://{places}/shop?{QUICK}"


async def keys_of(server: Valkey) -> int:
    with redis.Redis.from_url(server.url) as client:
        return await asyncio.to_thread(client.dbsize)


def demote(server: Valkey, primary: Valkey) -> None:
    """Make a replica of a primary, as a Sentinel does; its clients stay connected."""
    with redis.Redis.from_url(server.url) as client:
        client.replicaof("127.0.0.1", str(primary.port))


async def until_taken(store: RedisStore, key: str, holder: str) -> None:
    """Acquire as soon as the store is there again."""

    async def taken() -> bool:
        try:
            return bool(await ask(store, key, holder))
        except StoreUnavailable:
            return False

    await wait_until_async(taken, SIZE.patience, "the store is there again")


async def test_a_demoted_primary_is_left_without_an_error(
    open_store: Open, private_valkey: PrivateValkey
):
    old, new = private_valkey(), private_valkey()
    pointer = Pointer(old)
    async with impostor(pointer) as sentinel:
        store = await open_store(sentinel_url(sentinel))
        assert store.traits.grade is Grade.C
        await take(store, "key", "ann")
        pointer.server = new
        demote(old, new)
        # Nothing was done by who refused it, so it is done at the new one, in the same call.
        await take(store, "other", "ann")
        assert await keys_of(new) == 3


async def test_refused_commands_keep_their_order_and_arrive_once(
    open_store: Open, private_valkey: PrivateValkey
):
    old, new = private_valkey(), private_valkey()
    pointer = Pointer(old)
    async with impostor(pointer) as sentinel:
        store = await open_store(sentinel_url(sentinel))
        pointer.server = new
        demote(old, new)
        sender = store._open_sender
        sender.send("PING")  # so that what follows is written, and refused, together
        replies = [sender.send("RPUSH", "list", number) for number in range(50)]
        await asyncio.sleep(0.01)
        replies += [sender.send("RPUSH", "list", number) for number in range(50, 100)]
        assert [await reply for reply in replies] == list(range(1, 101))
        assert await store.ask("LRANGE", "list", 0, -1) == [b"%d" % n for n in range(100)]


async def test_a_replica_is_not_taken_for_the_primary(
    open_store: Open, private_valkey: PrivateValkey
):
    old, new = private_valkey(), private_valkey()
    pointer = Pointer(old)
    async with impostor(pointer) as sentinel:
        store = await open_store(sentinel_url(sentinel))
        lease = await take(store, "key", "ann")
        # A Sentinel that does not know yet. What a replica says of a lease may be old.
        demote(old, new)
        with pytest.raises(StoreUnavailable, match="not the primary"):
            await ask(store, "other", "ann")
        with pytest.raises(StoreUnavailable, match="not the primary"):
            await store.leases.renew([lease])
        with pytest.raises(StoreUnavailable, match="not the primary"):
            await store.leases.find()
        pointer.server = new
        await until_taken(store, "key", "ben")


async def test_a_primary_that_was_replaced_unawares_is_left(
    open_store: Open, private_valkey: PrivateValkey, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(topology, "_LOOK_EVERY", 0.2)
    old, new = private_valkey(), private_valkey()
    pointer = Pointer(old)
    async with impostor(pointer) as sentinel:
        store = await open_store(sentinel_url(sentinel))
        async with store.watch(("lease", "ben")) as watch:
            pointer.server = new
            # It serves on, unaware of the change, and no client asks it for anything.
            await wait_until_async(lambda: _is_at(store, new), SIZE.patience, "it is left")
            lease = await take(store, "key", "ann")
            assert await keys_of(new) > 0
            # Those who sleep are woken by the new one.
            assert await watch.wait(20)
        async with store.watch(("lease", "ben")) as watch:
            await be_refused(store, "key", "ben", waiting=60)
            await store.leases.release([lease])
            assert await watch.wait(20)


async def _is_at(store: RedisStore, server: Valkey) -> bool:
    try:
        await store.ping()
    except StoreUnavailable:
        return False
    return store.address.place.port == server.port


async def test_one_sentinel_alone_is_not_believed(
    open_store: Open, private_valkey: PrivateValkey, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(topology, "_LOOK_EVERY", 0.2)
    server, other = private_valkey(), private_valkey()
    pointers = [Pointer(server), Pointer(server), Pointer(server)]
    async with AsyncExitStack() as stack:
        sentinels = [await stack.enter_async_context(impostor(pointer)) for pointer in pointers]
        store = await open_store(sentinel_url(*sentinels))
        pointers[1].server = other  # it is cut off, and remembers old times
        before = sentinels[1].times("SENTINEL")
        was_asked = lambda: sentinels[1].times("SENTINEL") > before + 1  # noqa: E731 - short
        await wait_until_async(was_asked, SIZE.patience, "the one was asked")
        await take(store, "key", "ann")
        assert await keys_of(other) == 0


async def test_a_primary_that_hangs_is_left_in_bounded_time(
    open_store: Open, private_valkey: PrivateValkey
):
    old, new = private_valkey(), private_valkey()
    pointer = Pointer(old)
    async with impostor(pointer) as sentinel, impostor(_silence) as mute:
        store = await open_store(sentinel_url(mute, sentinel))
        old.pause()
        pointer.server = new
        began = time.monotonic()
        with pytest.raises(StoreUnavailable, match="did not answer in time"):
            await ask(store, "key", "ann")
        await until_taken(store, "key", "ann")
        assert time.monotonic() - began < 10
        old.resume()
        assert await keys_of(new) > 0


def _silence(words: list[str]) -> Any:
    raise ConnectionError(words)  # which ends the connection without an answer


# Clusters.


class Node:
    """A node of a cluster that says of every slot where it is, and refuses the rest."""

    def __init__(self, refusal: str) -> None:
        self.refusal = refusal
        self.port = 0

    def __call__(self, words: list[str]) -> Any:
        if words[:2] == ["CLUSTER", "SLOTS"]:
            return [[0, 16383, ["", self.port, "id"]]]
        if words[0] == "HELLO":
            return ["server", "valkey", "role", "master"]
        return redis.ResponseError(self.refusal)


@pytest.mark.parametrize(
    ("refusal", "tries"), [("MOVED 1 127.0.0.1:1", 3), ("CLUSTERDOWN x", 1), ("TRYAGAIN x", 1)]
)
async def test_a_node_that_refuses_is_not_asked_for_ever(
    open_store: Open, refusal: str, tries: int
):
    node = Node(refusal)
    async with impostor(node) as place:
        node.port = place.port
        with pytest.raises(StoreUnavailable, match=r"cluster|another node"):
            await open_store(f"redis+cluster://127.0.0.1:{place.port}?{QUICK}")
        assert place.times("INFO") == tries


async def test_a_namespace_is_found_wherever_its_slot_is(
    open_store: Open, private_valkey: PrivateValkey, namespace: str
):
    """Two nodes; one knows the namespace, the URL names the other, and then they change."""
    settings = {"cluster-enabled": "yes", "cluster-allow-replica-migration": "no"}
    first, second = nodes = private_valkey(config=settings), private_valkey(config=settings)
    slot = key_slot(f"{{tenure:{namespace}}}".encode())
    ids = join(first, second, slot)
    store = await open_store(f"redis+cluster://127.0.0.1:{second.port}?{QUICK}")
    await take(store, "key", "ann")
    assert await keys_of(first) == 4
    # The slot moves, with all its keys: what was sent to the old node is done at the new one.
    with redis.Redis.from_url(first.url) as client:
        client.flushall()
    for node in reversed(nodes):
        command(node, "CLUSTER", "SETSLOT", str(slot), "NODE", ids[1])
    await take(store, "key", "ben")
    assert await keys_of(second) > 0


def join(first: Valkey, second: Valkey, slot: int) -> list[str]:
    """Make a cluster of two, in which the first has the slot and the second all others."""
    ids = [command(node, "CLUSTER", "MYID") for node in (first, second)]
    command(first, "CLUSTER", "ADDSLOTS", str(slot))
    others = [str(number) for number in range(16384) if number != slot]
    command(second, "CLUSTER", "ADDSLOTS", *others)
    for epoch, node in enumerate((first, second), 1):
        command(node, "CLUSTER", "SET-CONFIG-EPOCH", str(epoch))
    command(first, "CLUSTER", "MEET", "127.0.0.1", str(second.port))
    for node in (first, second):
        wait_until(
            lambda member=node: "cluster_slots_ok:16384" in command(member, "CLUSTER", "INFO"), 20
        )
        wait_until(lambda member=node: "cluster_state:ok" in command(member, "CLUSTER", "INFO"), 20)
    return ids


def command(server: Valkey, *words: str) -> Any:
    with redis.Redis.from_url(server.url) as client:
        reply = client.execute_command(*words)
    return reply.decode() if isinstance(reply, bytes) else reply


async def test_nodes_that_do_not_answer_or_do_not_know_are_passed_over(
    open_store: Open, private_valkey: PrivateValkey
):
    server = private_valkey()
    for answer in (_silence, lambda _: [], lambda _: redis.ResponseError("LOADING wait")):
        node = Node("")
        node.port = server.port
        async with AsyncExitStack() as stack:
            bad = [await stack.enter_async_context(impostor(answer)) for _ in range(2)]
            good = await stack.enter_async_context(impostor(node))
            places = ",".join(f"127.0.0.1:{each.port}" for each in (*bad, good))
            store = await open_store(f"redis+cluster://{places}?{QUICK}")
            assert store.address.place.port == server.port
            await store.ping()
            assert [each.times("CLUSTER") for each in (*bad, good)] == [1, 1, 1]


async def test_each_search_begins_with_another_node(open_store: Open):
    nodes = [Node("CLUSTERDOWN x") for _ in range(3)]
    async with AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(impostor(node)) for node in nodes]
        for node in nodes:
            node.port = servers[0].port
        places = ",".join(f"127.0.0.1:{server.port}" for server in servers)
        cluster = topology.Cluster(f"redis+cluster://{places}?{QUICK}", "tag")
        places_found = [await cluster._find() for _ in range(3)]
        assert {place.port for place in places_found} == {servers[0].port}
        assert [server.times("CLUSTER") for server in servers] == [1, 1, 1]


# URLs that lead to the wrong servers.


def _no_such_service(words: list[str]) -> Any:
    assert words[0] == "SENTINEL"


def _no_log_in(words: list[str]) -> Any:
    return redis.ResponseError(f"NOAUTH Authentication required for {words[0]}.")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (_no_such_service, "names the service 'shop', which the sentinel .* does not know"),
        (_no_log_in, "add sentinel_password="),
    ],
)
async def test_an_answer_of_a_sentinel_without_a_primary_blames_the_url(
    open_store: Open, answer: Answer, reason: str
):
    async with impostor(answer) as sentinel:
        with pytest.raises(ConfigError, match=reason):
            await open_store(sentinel_url(sentinel))


async def test_the_log_in_of_sentinels_is_their_own(
    open_store: Open, private_valkey: PrivateValkey
):
    server = private_valkey(password="secret")
    async with impostor(Pointer(server)) as sentinel:
        url = f"{sentinel_url(sentinel)}&password=secret&db=1"
        await open_store(f"{url}&sentinel_username=eve&sentinel_password=p%40ss")
        assert ["AUTH", "eve", "p@ss"] in sentinel.heard
        assert not sentinel.times("SELECT")
        assert "secret" not in str(sentinel.heard)


async def test_the_least_rights_are_enough_to_find_the_primary(
    open_store: Open, private_valkey: PrivateValkey
):
    server = private_valkey()
    command(server, "ACL", "SETUSER", "ann", "on", ">secret", *NEEDED_RIGHTS.split())
    async with impostor(Pointer(server)) as sentinel:
        store = await open_store(sentinel_url(sentinel).replace("//", "//ann:secret@"))
        await take(store, "key", "ann")


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("redis+sentinel://{}/shop", "as a sentinel, which it is not.*Use the port of a sentinel"),
        ("redis+cluster://{}", "which is not part of a cluster. Use redis://"),
    ],
)
async def test_a_single_server_is_no_group(
    open_store: Open, private_valkey: PrivateValkey, url: str, reason: str
):
    server = private_valkey()
    with pytest.raises(ConfigError, match=reason):
        await open_store(url.format(f"127.0.0.1:{server.port}"))


async def test_the_doctor_says_what_is_wrong_with_the_url(private_valkey: PrivateValkey):
    server = private_valkey()
    url = f"redis+cluster://127.0.0.1:{server.port}"
    store = RedisStore(url, namespace="x", clock=SystemClock())
    findings = {finding.subject: finding for finding in await store.examine()}
    assert findings["topology"].level == "error"
    assert "not part of a cluster" in findings["topology"].detail
    assert "redis://" in findings["topology"].advice


async def test_the_doctor_says_so_if_a_server_hangs_up_while_it_is_asked():
    def hang_up(words: list[str]) -> Any:
        if words[0] == "INFO":
            raise ConnectionError
        return ["server", "valkey", "role", "master"]

    async with impostor(hang_up) as server:
        url = f"redis://127.0.0.1:{server.port}?{QUICK}"
        store = RedisStore(url, namespace="x", clock=SystemClock())
        [finding] = [each for each in await store.examine() if each.level == "error"]
    assert finding.subject == "connection"


async def test_a_sentinel_is_no_store(open_store: Open):
    async with impostor(lambda _: "redis_mode:sentinel\r\n") as sentinel:
        with pytest.raises(ConfigError, match=r"Use redis\+sentinel://host:26379/service-name"):
            await open_store(f"redis://127.0.0.1:{sentinel.port}")


async def test_a_group_or_cluster_without_a_reachable_server_is_an_outage(open_store: Open):
    for kind in ("sentinel", "cluster"):
        with pytest.raises(StoreUnavailable, match="answers"):
            await open_store(f"redis+{kind}://127.0.0.1:1,127.0.0.1:2/{'shop' * (kind[0] == 's')}")
