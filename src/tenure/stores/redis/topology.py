"""Addresses whose server may change: a group watched by Sentinel, and a cluster.

Every connection goes to the current primary: the sentinels or nodes name it, and the server itself
confirms it. When one connection of a store object finds another primary, the other connection of
the object is closed and follows.
"""

from __future__ import annotations

import asyncio
import re
from abc import abstractmethod
from collections import deque
from typing import Any, NamedTuple
from urllib.parse import SplitResult, quote, unquote, urlsplit, urlunsplit

from redis import exceptions
from redis.asyncio import Connection
from redis.crc import key_slot

from tenure.core.leases import Finding
from tenure.core.redaction import Secret, redact
from tenure.errors import ConfigError
from tenure.stores.redis.address import Address
from tenure.stores.redis.errors import Misled, missing_rights
from tenure.stores.redis.wire import Wire

__all__ = ["Cluster", "Group", "Place", "Topology", "address_of"]

# The share of the connect time for each, so that three silent ones leave enough for the primary.
_SHARE = 1 / 4
# How often to check that a primary was not replaced: one that was cut off or paused may serve on.
_LOOK_EVERY = 2.0

_ENOUGH_SENTINELS = 3
_OF_THE_PRIMARY = ("username", "password", "db")

_FORMS = {
    "sentinel": "redis+sentinel://user:password@host:26379,host:26379/service-name/0",
    "cluster": "redis+cluster://user:password@host:6379,host:6379",
}
_PORTS = {"sentinel": 26379, "cluster": 6379}


class Place(NamedTuple):
    """The host and port of one server."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def address_of(url: str, tag: str) -> Address:
    """Return the address of the server with the keys that begin with `tag`, which may change."""
    kind = url.partition("://")[0].lower().partition("+")[2]
    if not kind:
        return Address(url)
    try:
        return Group(url) if kind == "sentinel" else Cluster(url, tag)
    except ValueError as error:  # ConfigError is a ValueError as well
        reason = error.args[0] if isinstance(error, _Wrong) else "see its parts"
        msg = (
            f"{redact(url)!r} is not a URL that can work: {reason}. Use {_FORMS[kind]}, with "
            "rediss+ for TLS, and with options of a redis-py connection after '?'."
        )
        raise ConfigError(msg) from None


class _Wrong(ValueError):
    """A part of the URL cannot work."""


class Topology(Address):
    """An address that is looked up for each connection."""

    moves = True

    own_options: tuple[str, ...] = ()
    """Options of the URL that are not for connections to the primary."""

    def __init__(self, url: str, path: str) -> None:
        parts = _parts(url)
        login, at, hosts = parts.netloc.rpartition("@")
        scheme, _, kind = parts.scheme.partition("+")
        self._scheme, self._login, self._path = scheme, Secret(login + at), path
        options = [option.partition("=") for option in parts.query.split("&") if option]
        own = [option for option in options if option[0] in self.own_options]
        self._own = Secret({name: unquote(value) for name, _, value in own})
        rest = ("".join(option) for option in options if option not in own)
        self._query = Secret("&".join(rest))
        self.seeds = [_place(host, _PORTS[kind]) for host in hosts.split(",")]
        super().__init__(self._url_of(self.seeds[0]))
        self.text = redact(url)
        self.place: Place | None = None
        """The last known place of the primary."""
        self._wires: set[Wire] = set()

    @abstractmethod
    async def _find(self) -> Place:
        """Return the place of the primary by the sentinels or nodes."""

    async def reach(self) -> Connection:
        place = await self._find()
        connection = await Address(self._url_of(place)).reach()
        try:
            await _check_role(connection, place)
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        if place != self.place:
            self._leave(f"the primary is now {place}")
        self.place = place
        return connection

    @abstractmethod
    async def census(self) -> Finding:
        """Return findings about the servers, and whether they suffice for a fail-over."""

    def opened(self, wire: Wire) -> None:
        self._wires.add(wire)
        wire.closed.add_done_callback(lambda _: self._closed(wire))

    def _closed(self, wire: Wire) -> None:
        self._wires.discard(wire)

    def _leave(self, why: str) -> None:
        """End all connections. The next call of each looks up the primary again."""
        for wire in list(self._wires):
            wire.abort(exceptions.ConnectionError(why))

    async def _ask(self, address: Address, *words: str) -> Any:
        """Send a command to a sentinel or node, on a separate connection and in bounded time."""
        try:
            async with asyncio.timeout(self.connect_timeout * _SHARE):
                connection = await address.reach()
                try:
                    return await _reply(connection, *words)
                finally:
                    await connection.disconnect(nowait=True)
        except TimeoutError as error:
            raise exceptions.ConnectionError("no answer in time") from error

    def _url_of(self, place: Place) -> str:
        netloc = f"{self._login()}{place}"
        return urlunsplit((self._scheme, netloc, self._path, self._query(), ""))


class Group(Topology):
    """A primary and its replicas, watched by sentinels that name the primary."""

    own_options = ("sentinel_username", "sentinel_password")

    def __init__(self, url: str) -> None:
        service, _, database = _parts(url).path.strip("/").partition("/")
        if not service:
            raise _Wrong("the name of the service is missing")
        if database and not database.isdecimal():
            raise _Wrong(f"the database must be a number, not {database!r}")
        self.service = unquote(service)
        super().__init__(url, f"/{database}")
        self._sentinels = deque(
            (place, Address(self._url_of_sentinel(place))) for place in self.seeds
        )
        self._guard: asyncio.Task[None] | None = None

    def _url_of_sentinel(self, place: Place) -> str:
        """Return a URL for sentinels: the same TLS options and time-outs, a separate log-in."""
        user, password = (quote(self._own().get(name, ""), safe="") for name in self.own_options)
        login = f"{user}:{password}@" if user or password else ""
        options = self._query().split("&")
        query = "&".join(each for each in options if each.partition("=")[0] not in _OF_THE_PRIMARY)
        return urlunsplit((self._scheme, f"{login}{place}", "", query, ""))

    async def _find(self) -> Place:
        reply = await self.ask("GET-MASTER-ADDR-BY-NAME", self.service)
        return Place(reply[0].decode(), int(reply[1]))

    async def ask(self, *words: str) -> Any:
        """Return the answer of the first sentinel that has one, starting with another each time.

        So a sentinel that is cut off, with outdated answers, is not believed twice in a row.
        """
        troubles: list[exceptions.RedisError] = []
        for _ in range(len(self._sentinels)):
            place, sentinel = self._sentinels[0]
            self._sentinels.rotate(-1)
            try:
                reply = await self._ask(sentinel, "SENTINEL", *words)
            except exceptions.RedisError as error:
                troubles.append(_of_sentinel(place, error))
                continue
            if reply is not None:
                return reply
            troubles.append(
                Misled(
                    f"names the service {self.service!r}, which the sentinel {place} does not know",
                    "Put the name into the URL that stands in 'sentinel monitor' there.",
                )
            )
        raise _worst(troubles, "no sentinel answers")

    async def census(self) -> Finding:
        reply = await self.ask("MASTER", self.service)
        facts = dict(zip(reply[::2], reply[1::2], strict=True))
        replicas, others = int(facts[b"num-slaves"]), int(facts[b"num-other-sentinels"])
        detail = (
            f"Sentinel, service {self.service!r}: the primary is {self.place}, "
            f"with {_number(replicas, 'replica')} and {_number(1 + others, 'sentinel')}"
        )
        if not replicas:
            return _nobody_takes_over(detail)
        if 1 + others < _ENOUGH_SENTINELS:
            return Finding(
                "warning",
                "topology",
                f"{detail}: if one of them fails with the primary, there is no fail-over",
                f"Run {_ENOUGH_SENTINELS} sentinels, on machines of their own.",
            )
        return Finding("ok", "topology", detail)

    def opened(self, wire: Wire) -> None:
        super().opened(wire)
        if self._guard is None or self._guard.done():
            self._guard = asyncio.get_running_loop().create_task(self._follow())

    def _closed(self, wire: Wire) -> None:
        super()._closed(wire)
        if not self._wires and self._guard is not None:
            self._guard.cancel()
            self._guard = None

    async def _follow(self) -> None:
        """Leave a primary that was replaced, even if it keeps serving."""
        never = asyncio.get_running_loop().create_future()
        while True:
            await asyncio.wait((never,), timeout=_LOOK_EVERY)
            try:
                # Two sentinels must agree, because a single one may be cut off itself.
                place = await self._find()
                if place != self.place and place == await self._find():
                    self._leave(f"the sentinels say that the primary is now {place}")
            except exceptions.RedisError:
                continue  # without sentinels there is no fail-over


class Cluster(Topology):
    """A cluster, in which all keys of a namespace lie in one slot."""

    def __init__(self, url: str, tag: str) -> None:
        if _parts(url).path.strip("/") not in ("", "0"):
            raise _Wrong("a cluster has no databases but 0")
        super().__init__(url, "")
        self.slot = key_slot(tag.encode())
        self._nodes = deque(self.seeds)

    async def _find(self) -> Place:
        return (await self._owners())[0]

    async def census(self) -> Finding:
        primary, *replicas = await self._owners()
        detail = (
            f"cluster of {_number(len(self._nodes), 'node')}: slot {self.slot} of this namespace "
            f"is at {primary}, with {_number(len(replicas), 'replica')}"
        )
        return Finding("ok", "topology", detail) if replicas else _nobody_takes_over(detail)

    async def _owners(self) -> list[Place]:
        """Return the nodes of the slot: first the primary, then its replicas.

        It asks the nodes in turn, those of the URL and those that it has learned of since.
        """
        troubles: list[exceptions.RedisError] = []
        for _ in range(len(self._nodes)):
            place = self._nodes[0]
            self._nodes.rotate(-1)
            try:
                ranges = await self._ask(Address(self._url_of(place)), "CLUSTER", "SLOTS")
            except exceptions.RedisError as error:
                troubles.append(_of_node(place, error))
                continue
            self._remember([_node(node, place) for _, _, *nodes in ranges for node in nodes])
            for first, last, *owners in ranges:
                if first <= self.slot <= last:
                    return [_node(owner, place) for owner in owners]
            troubles.append(exceptions.ConnectionError(f"no node serves slot {self.slot}"))
        raise _worst(troubles, "no node of the cluster answers")

    def _remember(self, seen: list[Place]) -> None:
        """Keep the known nodes for the next look-up, without those that have left the cluster."""
        kept = [node for node in self._nodes if node in seen or node in self.seeds]
        self._nodes = deque(dict.fromkeys([*kept, *seen]))


def _number(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _nobody_takes_over(detail: str) -> Finding:
    return Finding(
        "warning", "topology", f"{detail}: no replica can take over", "Give the primary a replica."
    )


async def _check_role(connection: Connection, place: Place) -> None:
    """Raise unless the server itself says that it is a primary.

    HELLO works for every user; ROLE and INFO need rights that the user may lack.
    """
    reply = await _reply(connection, "HELLO")
    facts = dict(zip(reply[::2], reply[1::2], strict=True))
    if facts.get(b"role") != b"master":
        raise exceptions.ConnectionError(f"{place} is not the primary, or not yet")


async def _reply(connection: Connection, *words: str) -> Any:
    await connection.send_command(*words)
    return await connection.read_response()


def _parts(url: str) -> SplitResult:
    """Split a URL with a comma-separated list of hosts, perhaps after a log-in.

    From Python 3.14 on `urlsplit` rejects several hosts if one is in brackets.
    """
    scheme, _, rest = url.partition("://")
    hosts = re.split("[/?#]", rest, maxsplit=1)[0]
    parts = urlsplit(f"//host{rest.removeprefix(hosts)}")
    return SplitResult(scheme.lower(), hosts, parts.path, parts.query, "")


def _place(text: str, default_port: int) -> Place:
    parts = urlsplit(f"//{text}")
    if not parts.hostname or parts.path:
        raise _Wrong("a host is missing")
    return Place(parts.hostname, parts.port or default_port)


def _node(node: list[Any], node_asked: Place) -> Place:
    """Return the place of a node in CLUSTER SLOTS; without a host, on the host that answered."""
    host = (node[0] or b"").decode()
    return Place(node_asked.host if host in ("", "?") else host, int(node[1]))


def _of_sentinel(place: Place, error: exceptions.RedisError) -> exceptions.RedisError:
    if missing_rights(error):
        return Misled(
            f"was refused by the sentinel {place} ({error})",
            "Sentinels have a log-in of their own: add sentinel_password=, and sentinel_username= "
            "if they have users, to the options of the URL.",
        )
    if "unknown command" in str(error):
        return Misled(
            f"names {place} as a sentinel, which it is not",
            "Use the port of a sentinel, usually 26379, or redis:// for a server without them.",
        )
    return error


def _of_node(place: Place, error: exceptions.RedisError) -> exceptions.RedisError:
    if "cluster support disabled" in str(error) or "unknown command" in str(error):
        return Misled(f"names {place}, which is not part of a cluster", "Use redis:// for it.")
    return error


def _worst(troubles: list[exceptions.RedisError], summary: str) -> exceptions.RedisError:
    """Return an error of configuration if there is one, else that no sentinel or node answers."""
    for trouble in troubles:
        if isinstance(trouble, Misled) or missing_rights(trouble):
            return trouble
    reasons = "; ".join(dict.fromkeys(str(trouble) for trouble in troubles))
    return exceptions.ConnectionError(f"{summary} ({reasons})")
