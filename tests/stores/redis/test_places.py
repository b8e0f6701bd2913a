"""Where the primary of a Redis group or cluster is looked for, and when it is left.

The network is a stand-in here, and time is virtual. Real servers are in test_redis_topology.py.
"""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from redis import exceptions
from redis.asyncio import SSLConnection

from tenure.stores.redis.address import Address
from tenure.stores.redis.errors import Misled
from tenure.stores.redis.topology import Cluster, Group, Place, address_of
from tests.stores.redis.wires import Cable
from tests.unit.virtual_time import in_virtual_time, now, settle

TAG = "{tenure:x}:"
LOOK_EVERY = 2.0


class Network:
    """Answers for all servers, as the test wants it."""

    def __init__(self) -> None:
        self.answers: dict[Place, Any] = {}
        """By place: a reply, an error, a function of the words; None if it says nothing."""
        self.heard: list[tuple[Place, tuple[str, ...]]] = []
        self.open: set[Any] = set()

    def of(self, place: Place, words: tuple[str, ...]) -> Any:
        self.heard.append((place, words))
        if words == ("HELLO",):
            return [b"server", b"valkey", b"role", b"master"]
        answer = self.answers[place]
        return answer(words) if callable(answer) else answer

    def places_asked(self, command: str) -> list[Place]:
        return [place for place, words in self.heard if words[0] == command]


class Probe:
    """A connection to one server."""

    def __init__(self, network: Network, place: Place) -> None:
        self._network = network
        self.place = place
        self._reply: Any = None

    async def send_command(self, *words: str) -> None:
        self._reply = self._network.of(self.place, words)

    async def read_response(self) -> Any:
        if self._reply is SILENCE:
            await asyncio.sleep(600)
        if isinstance(self._reply, Exception):
            raise self._reply
        return self._reply

    async def disconnect(self, *, nowait: bool) -> None:
        assert nowait
        self._network.open.discard(self)


SILENCE = object()
"""In the place of an answer."""


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> Iterator[Network]:
    network = Network()

    async def reach(address: Address) -> Probe:
        options = address._options()
        place = Place(options["host"], options["port"])
        if place not in network.answers:
            raise exceptions.ConnectionError(f"{place} is away")
        probe = Probe(network, place)
        network.open.add(probe)
        return probe

    monkeypatch.setattr(Address, "reach", reach)
    yield network
    assert not network.open


A, B, C = Place("a", 26379), Place("b", 26379), Place("c", 26379)
FIRST, SECOND = Place("one", 1), Place("two", 2)


def points_to(place: Place) -> list[bytes]:
    return [place.host.encode(), b"%d" % place.port]


def group() -> Group:
    return Group("redis+sentinel://a,b,c/shop")


async def place_of(address: Group | Cluster) -> Place | None:
    connection = await address.reach()
    await connection.disconnect(nowait=True)
    assert connection.place == address.place
    return address.place


# URLs.


def test_the_parts_of_a_sentinel_url():
    url = (
        "rediss+sentinel://ann:s%40cret@one:1,two,[::1]:3/the%20shop/4"
        "?sentinel_username=eve&socket_timeout=2&sentinel_password=p%40ss&db=5&ssl_cert_reqs=none"
    )
    address = address_of(url, TAG)
    assert isinstance(address, Group)
    assert (address.service, address.moves, address.timeout) == ("the shop", True, 2)
    assert address.seeds == [Place("one", 1), Place("two", 26379), Place("::1", 3)]
    options = address._options()
    assert address._make is SSLConnection
    assert (options["host"], options["port"]) == ("one", 1)
    assert (options["username"], options["password"]) == ("ann", "s@cret")
    assert not [name for name in options if name.startswith("sentinel")]
    assert [place for place, _ in address._sentinels] == address.seeds
    for place, sentinel in address._sentinels:
        options = sentinel._options()
        assert sentinel._make is SSLConnection
        assert (options["host"], options["port"]) == place
        assert (options["username"], options["password"]) == ("eve", "p@ss")
        assert (options.get("db"), sentinel.timeout) == (None, 2)


@pytest.mark.parametrize(
    ("url", "database"), [("a/shop/4", 4), ("a/shop", None), ("a/shop/", None), ("a/shop?db=3", 3)]
)
def test_the_database_of_a_group(url: str, database: int | None):
    assert address_of(f"redis+sentinel://{url}", TAG)._options().get("db") == database


@pytest.mark.parametrize(
    ("options", "login"),
    [
        ("", (None, None)),
        ("?sentinel_password=p", (None, "p")),
        ("?sentinel_username=eve&sentinel_password=p", ("eve", "p")),
    ],
)
def test_the_log_in_of_a_sentinel(options: str, login: tuple[str | None, str | None]):
    address = address_of(f"redis+sentinel://ann:secret@a/shop{options}", TAG)
    assert isinstance(address, Group)
    [(_, sentinel)] = address._sentinels
    login_options = sentinel._options()
    assert (login_options.get("username") or None, login_options.get("password") or None) == login


def test_the_parts_of_a_cluster_url():
    address = address_of("VALKEY+cluster://ann:secret@one:1,two/0?socket_timeout=2", TAG)
    assert isinstance(address, Cluster)
    assert address.seeds == [Place("one", 1), Place("two", 6379)]
    assert (address.user, address.timeout, address.moves) == ("ann", 2, True)
    assert address.slot == Cluster("redis+cluster://one", "{tenure:x}:other").slot


def test_a_place_is_shown_as_in_a_url():
    assert [str(place) for place in (Place("one", 1), Place("::1", 2))] == ["one:1", "[::1]:2"]


# Sentinels.


@in_virtual_time
async def test_each_search_asks_the_next_sentinel(network: Network):
    address = group()
    network.answers = dict.fromkeys((A, B, C, FIRST), points_to(FIRST))
    for _ in range(4):
        assert await place_of(address) == FIRST
    assert network.places_asked("SENTINEL") == [A, B, C, A]
    assert network.heard[0] == (A, ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "shop"))


@pytest.mark.parametrize(
    "answer", [None, SILENCE, exceptions.ResponseError("LOADING wait"), "away"]
)
@in_virtual_time
async def test_a_sentinel_without_an_answer_is_passed_over(network: Network, answer: Any):
    address = group()
    network.answers = {A: answer, B: answer, C: points_to(FIRST), FIRST: ""}
    if answer == "away":
        del network.answers[A], network.answers[B]
    assert await place_of(address) == FIRST
    # Each that is silent costs a quarter of the time for a connection.
    assert now() == (2 * 5 / 4 if answer is SILENCE else 0)


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ([], r"no sentinel answers \(a:26379 is away; b:26379 is away; c:26379 is away\)"),
        ([SILENCE] * 3, r"no sentinel answers \(no answer in time\)"),
        ([SILENCE, None], "names the service 'shop', which the sentinel b:26379 does not know"),
        ([exceptions.ResponseError("NOAUTH log in")], "was refused by the sentinel a:26379"),
        ([SILENCE, exceptions.AuthenticationError("no")], "was refused by the sentinel b:26379"),
        ([exceptions.ResponseError("ERR unknown command")], "names a:26379 as a sentinel"),
    ],
)
@in_virtual_time
async def test_without_an_answer_of_a_sentinel_the_worst_reason_is_reported(
    network: Network, answers: list[Any], expected: str
):
    network.answers = dict(zip((A, B, C), answers, strict=False))
    with pytest.raises(exceptions.RedisError, match=expected) as caught:
        await group().reach()
    assert isinstance(caught.value, Misled) is ("names" in expected or "refused" in expected)


@pytest.mark.parametrize("hello", [[b"role", b"replica"], [], exceptions.ConnectionError("no")])
@in_virtual_time
async def test_only_a_server_that_says_so_is_the_primary(
    network: Network, monkeypatch: pytest.MonkeyPatch, hello: Any
):
    network.answers = {A: points_to(FIRST), FIRST: ""}
    of = network.of
    monkeypatch.setattr(network, "of", lambda place, w: hello if w == ("HELLO",) else of(place, w))
    address = group()
    with pytest.raises(exceptions.ConnectionError):
        await address.reach()
    assert address.place is None


# Connections that are left.


def opened(address: Group | Cluster) -> Cable:
    cable = Cable(lambda _: None, lambda _cable, _why: None)
    address.opened(cable)  # type: ignore[arg-type]
    return cable


@in_virtual_time
async def test_another_primary_ends_the_connections_to_the_old_one(network: Network):
    address = group()
    network.answers = {
        A: points_to(FIRST),
        B: points_to(FIRST),
        C: points_to(SECOND),
        FIRST: "",
        SECOND: "",
    }
    await place_of(address)
    cables = [opened(address) for _ in range(2)]
    await place_of(address)
    assert [cable.reason for cable in cables] == [None, None]
    await place_of(address)
    assert ["two:2" in str(cable.reason) for cable in cables] == [True, True]
    await settle()
    assert not address._wires


@pytest.mark.parametrize(
    ("answers", "leaves"),
    [((FIRST, FIRST, FIRST), False), ((FIRST, FIRST, SECOND), False), ((SECOND, SECOND), True)],
)
@in_virtual_time
async def test_a_primary_is_left_if_two_sentinels_in_a_row_name_another(
    network: Network, answers: tuple[Place, ...], leaves: bool
):
    address = group()
    network.answers = dict.fromkeys((A, B, C, FIRST), points_to(FIRST))
    await place_of(address)
    cables = [opened(address), opened(address)]
    network.answers |= dict(zip((A, B, C), map(points_to, answers), strict=False))
    await asyncio.sleep(LOOK_EVERY - 0.1)
    assert len(network.places_asked("SENTINEL")) == 1
    await asyncio.sleep(5 * LOOK_EVERY)
    for cable in cables:
        assert (cable.reason is not None) is leaves
        assert not leaves or "the primary is now two:2" in str(cable.reason)
        cable.abort(exceptions.ConnectionError("over"))
    await settle()
    assert address._guard is None


@in_virtual_time
async def test_sentinels_are_asked_as_long_as_a_connection_is_open(network: Network):
    address = group()
    network.answers = dict.fromkeys((A, B, C, FIRST), points_to(FIRST))
    await place_of(address)
    first, second = opened(address), opened(address)
    await asyncio.sleep(1.5 * LOOK_EVERY)
    assert len(network.places_asked("SENTINEL")) == 2
    network.answers.clear()  # an outage of all of them ends nothing
    await asyncio.sleep(LOOK_EVERY)
    network.answers = dict.fromkeys((A, B, C, FIRST), points_to(FIRST))
    first.break_off()
    await asyncio.sleep(LOOK_EVERY)
    assert len(network.places_asked("SENTINEL")) == 3
    second.break_off()
    await asyncio.sleep(5 * LOOK_EVERY)
    assert len(network.places_asked("SENTINEL")) == 3
    third = opened(address)
    await asyncio.sleep(1.5 * LOOK_EVERY)
    assert len(network.places_asked("SENTINEL")) == 4
    third.break_off()
    await settle()


# Clusters.

NODES = "redis+cluster://one:1,two:2"


def slots(*ranges: tuple[int, int, list[Any]]) -> list[Any]:
    """Return what CLUSTER SLOTS says."""
    return [
        [first, last, *([host, port, b"id"] for host, port in owners)]
        for first, last, owners in ranges
    ]


@pytest.mark.parametrize(("before", "after"), [(0, 0), (5, 0), (0, 5), (5, 5)])
@in_virtual_time
async def test_the_owner_of_the_slot_is_the_primary(network: Network, before: int, after: int):
    address = Cluster(NODES, TAG)
    slot = address.slot
    network.answers[FIRST] = slots(
        (0, slot - before - 1, [(b"low", 7)]),
        (slot - before, slot + after, [(b"right", 8), (b"replica", 9)]),
        (slot + after + 1, 16383, [(b"high", 7)]),
    )
    network.answers[Place("right", 8)] = ""
    assert await place_of(address) == Place("right", 8)


@pytest.mark.parametrize("host", [b"", None, b"?"])
@in_virtual_time
async def test_a_node_without_a_host_is_at_the_host_that_was_asked(network: Network, host: Any):
    address = Cluster(NODES, TAG)
    network.answers = {SECOND: slots((0, 16383, [(host, 5)])), Place("two", 5): ""}
    assert await place_of(address) == Place("two", 5)


@pytest.mark.parametrize(
    ("answer", "expected", "is_misled"),
    [
        (exceptions.ConnectionError("reset"), r"no node of the cluster answers \(reset\)", False),
        (slots((0, 0, [(b"low", 7)])), "no node serves slot", False),
        ([], "no node serves slot", False),
        (exceptions.ResponseError("ERR This instance has cluster support disabled"), "two:2", True),
        (exceptions.ResponseError("ERR unknown command 'CLUSTER'"), "not part of a clus", True),
        (exceptions.AuthenticationError("NOAUTH log in"), "NOAUTH log in", False),
    ],
)
@in_virtual_time
async def test_without_an_answer_of_a_node_the_worst_reason_is_reported(
    network: Network, answer: Any, expected: str, is_misled: bool
):
    network.answers = {FIRST: exceptions.ConnectionError("reset"), SECOND: answer}
    with pytest.raises(exceptions.RedisError, match=expected) as caught:
        await Cluster(NODES, TAG).reach()
    assert isinstance(caught.value, Misled) is is_misled
    assert network.places_asked("CLUSTER") == [FIRST, SECOND]


@in_virtual_time
async def test_nodes_that_were_seen_are_asked_too_and_those_that_left_are_not(network: Network):
    address = Cluster(NODES, TAG)
    new, late = Place("new", 3), Place("late", 4)
    everything = [(b"one", 1), (b"new", 3)]
    network.answers = dict.fromkeys((FIRST, SECOND, new, late), slots((0, 16383, everything)))
    for _ in range(4):
        await place_of(address)
    assert network.places_asked("CLUSTER") == [FIRST, SECOND, FIRST, new]
    network.answers = dict.fromkeys(
        (FIRST, SECOND, late), slots((0, 16383, [(b"one", 1), (b"late", 4)]))
    )
    network.heard.clear()
    for _ in range(5):
        await place_of(address)
    assert set(network.places_asked("CLUSTER")) == {FIRST, SECOND, late}


# What the doctor is told.


def sentinel_facts(replicas: int, others: int) -> Callable[[tuple[str, ...]], Any]:
    def answer(words: tuple[str, ...]) -> Any:
        assert words == ("SENTINEL", "MASTER", "shop")
        facts = {"num-slaves": replicas, "num-other-sentinels": others}
        return [text.encode() for pair in facts.items() for text in map(str, pair)]

    return answer


@pytest.mark.parametrize(
    ("replicas", "others", "level", "detail"),
    [
        (1, 2, "ok", "with 1 replica and 3 sentinels"),
        (2, 5, "ok", "with 2 replicas and 6 sentinels"),
        (1, 1, "warning", "with 1 replica and 2 sentinels: if one of them fails"),
        (1, 0, "warning", "1 sentinel: if one of them fails"),
        (0, 2, "warning", "with 0 replicas and 3 sentinels: no replica can take over"),
    ],
)
@in_virtual_time
async def test_a_group_is_counted(
    network: Network, replicas: int, others: int, level: str, detail: str
):
    network.answers = {A: sentinel_facts(replicas, others)}
    finding = await group().census()
    assert (finding.level, finding.subject) == (level, "topology")
    assert detail in finding.detail
    assert bool(finding.advice) is (level == "warning")


@pytest.mark.parametrize(
    ("owners", "level", "detail"),
    [
        ([(b"one", 1)], "warning", "at one:1, with 0 replicas: no replica can take over"),
        ([(b"one", 1), (b"two", 2)], "ok", "cluster of 2 nodes"),
        ([(b"one", 1), (b"new", 3)], "ok", "cluster of 3 nodes"),
        ([(b"one", 1), (b"two", 2)], "ok", "with 1 replica"),
    ],
)
@in_virtual_time
async def test_a_cluster_is_counted(network: Network, owners: Any, level: str, detail: str):
    network.answers = {FIRST: slots((0, 16383, owners))}
    finding = await Cluster(NODES, TAG).census()
    assert finding.level == level
    assert detail in finding.detail
