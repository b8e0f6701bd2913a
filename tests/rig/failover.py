"""Groups of Valkey servers with failover: Sentinel, and a small cluster.

    with SentinelGroup() as group:
        old = group.primary()
        old.kill()
        group.wait_for_successor(old)

A primary can be killed and paused as every server, and cut off: then its replicas and sentinels do
not reach it any more, while clients do. Replicas and sentinels have users of their own for that,
which a server that is cut off refuses.
"""

import secrets
import time
from abc import ABC, abstractmethod
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

import redis
from redis.crc import key_slot

from tests.rig.servers import Valkey, free_port
from tests.rig.wait import wait_until

__all__ = ["ClusterGroup", "Group", "SentinelGroup"]

SERVICE = "tenure"
SECRET = "unspeakable"
_INSIDERS = ("replica", "watcher")
_SLOTS = 16384
_PATIENCE = 30.0
# Clients give up a server that hangs within this time.
_CLIENT_OPTIONS = "socket_timeout=1&socket_connect_timeout=1"

_QUICK_SENTINEL = (
    *("ping-period", "100", "ask-period", "100"),
    *("info-period", "500", "publish-period", "300"),
)
_DATA_SERVER = {
    # What was acknowledged shall be lost by a fail-over alone.
    "appendfsync": "always",
    "repl-diskless-sync-delay": "0",
    "repl-ping-replica-period": "1",
    "masteruser": "replica",
    "masterauth": SECRET,
    **{f"user {name}": f"on >{SECRET} ~* &* +@all" for name in _INSIDERS},
}


class _Member(Valkey):
    """A server whose port is known before it starts, so that others can be told of it."""

    def __init__(self, config: dict[str, str], password: str | None = SECRET) -> None:
        super().__init__(config=config, password=password)
        self._port = free_port()
        self.id = secrets.token_hex(20)
        self.cut_off = False

    def set(self, **config: str) -> None:
        self._config |= {name.replace("_", "-"): value for name, value in config.items()}

    def ask(self, *words: str) -> Any:
        """Return the bare reply to an operator, who is never cut off; None from who is gone."""
        if not self.running or self._paused:
            return None  # without waiting for it
        connection = redis.Connection(
            port=self.port, password=self._password, protocol=2, socket_timeout=2
        )
        try:
            connection.connect()
            connection.send_command(*words)
            return connection.read_response()
        except redis.RedisError:
            return None
        finally:
            connection.disconnect()

    def tail(self) -> str:
        """Return the end of its log."""
        return self._tail()

    @property
    def role(self) -> str:
        reply = self.ask("ROLE")
        return reply[0].decode() if reply else "gone"


class _Sentinel(_Member):
    """One who watches the primary, and knows all others from the beginning."""

    def __init__(self) -> None:
        super().__init__({}, password=None)
        self._lines: list[str] = []

    def know(self, primary: _Member, replicas: list[_Member], others: list["_Sentinel"]) -> None:
        """Tell the sentinels what to watch, and about each other."""
        # One is quicker than the others and asks no other whether the primary is down. So it seldom
        # happens that all want to lead the fail-over at once, and start over after seconds.
        leads = self.id > max(other.id for other in others)
        self._lines = [
            f"sentinel myid {self.id}",
            f"sentinel monitor {SERVICE} 127.0.0.1 {primary.port} {1 if leads else 2}",
            f"sentinel down-after-milliseconds {SERVICE} {500 if leads else 900}",
            # Twice that has to lie between two fail-overs.
            f"sentinel failover-timeout {SERVICE} 1000",
            f"sentinel parallel-syncs {SERVICE} 2",
            f"sentinel auth-user {SERVICE} watcher",
            f"sentinel auth-pass {SERVICE} {SECRET}",
            *(f"sentinel known-replica {SERVICE} 127.0.0.1 {replica.port}" for replica in replicas),
            *(f"sentinel known-sentinel {SERVICE} 127.0.0.1 {o.port} {o.id}" for o in others),
        ]

    def _command(self, port: int) -> list[str | Path]:
        file = self.folder / "sentinel.conf"
        settings = ["bind 127.0.0.1", f"port {port}", f"dir {self.data}", *self._lines]
        file.write_text("\n".join(settings) + "\n")
        return [self._binary, file, "--sentinel"]


class Group(ABC):
    """Servers of which one, the primary of a namespace, can be replaced by another."""

    def __init__(self) -> None:
        self.servers: list[_Member] = []
        self._members: list[_Member] = []
        self._stack = ExitStack()

    @property
    @abstractmethod
    def url(self) -> str:
        """What clients are given."""

    @abstractmethod
    def primary(self, namespace: str = "") -> _Member:
        """Return the primary that the group agrees on; wait if there is none."""

    @abstractmethod
    def is_whole(self) -> bool:
        """Return whether all servers are there and could take over."""

    @abstractmethod
    def _arrange(self) -> list[_Member]:
        """Make all servers, and return them in the order of their start."""

    def start(self) -> Self:
        """Start all, and return when a fail-over could happen."""
        self._members = self._arrange()
        for server in self._members:
            self._stack.enter_context(server)
        self.wait_until_whole()
        return self

    def close(self) -> None:
        """End all of them."""
        self._stack.close()

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def cut_off(self, server: Valkey) -> None:
        """Have only clients reach a server; it goes on as if it was the primary."""
        member = cast("_Member", server)
        member.cut_off = True
        for user in _INSIDERS:
            member.ask("ACL", "SETUSER", user, "off")
        member.ask("CLIENT", "KILL", "TYPE", "replica")
        member.ask("CLIENT", "KILL", "USER", "watcher")

    def let_in(self, server: Valkey) -> None:
        """End what `cut_off` began."""
        member = cast("_Member", server)
        member.cut_off = False
        for user in _INSIDERS:
            member.ask("ACL", "SETUSER", user, "on")
        # A sentinel that was refused goes on with the connection it has, and never logs in again.
        for kind in ("normal", "pubsub"):
            member.ask("CLIENT", "KILL", "TYPE", kind)

    def wait_for_successor(self, old: Valkey, namespace: str = "") -> float:
        """Return how long it took until another one is the primary."""
        began = time.monotonic()
        wait_until(lambda: self.primary(namespace) is not old, _PATIENCE, "another primary")
        return time.monotonic() - began

    def heal(self) -> None:
        """Start, resume and reconnect missing servers, and wait until the group is whole."""
        for server in self.servers:
            if not server.running:
                server.cut_off = False
                server.start()
            server.resume()
            if server.cut_off:
                self.let_in(server)
        self.wait_until_whole()

    def wait_until_whole(self) -> None:
        try:
            wait_until(self.is_whole, _PATIENCE, "a whole group")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.story()}") from None

    def story(self) -> str:
        """Return what all servers say, for the message of a failure."""
        members = self._members
        roles = [
            f"{member.name} {member.port}: {member.ask('ROLE')}\n{member.tail()}"
            for member in members
        ]
        return "\n".join(roles)


class SentinelGroup(Group):
    """A primary, two replicas, three sentinels."""

    def __init__(self) -> None:
        super().__init__()
        self.sentinels: list[_Sentinel] = []

    @property
    def url(self) -> str:
        places = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)
        return f"redis+sentinel://:{SECRET}@{places}/{SERVICE}?{_CLIENT_OPTIONS}"

    def primary(self, namespace: str = "") -> _Member:
        del namespace  # one primary has all
        return wait_until(self._agreed, _PATIENCE, "the sentinels agree on a primary")  # type: ignore[return-value]

    def is_whole(self) -> bool:
        primary = self._agreed()
        if primary is None or primary.role != "master":
            return False
        role = primary.ask("ROLE")
        others = [server for server in self.servers if server is not primary]
        in_step = all(_follows(other, primary) for other in others)
        return in_step and len(role[2]) == len(others) and self._watched(len(others))

    def _watched(self, replicas: int) -> bool:
        for sentinel in self.sentinels:
            reply = sentinel.ask("SENTINEL", "MASTER", SERVICE) or []
            facts = dict(zip(reply[::2], reply[1::2], strict=True))
            seen = [facts.get(name) for name in (b"flags", b"num-slaves", b"num-other-sentinels")]
            if seen != [b"master", b"%d" % replicas, b"%d" % (len(self.sentinels) - 1)]:
                return False
        return True

    def _agreed(self) -> _Member | None:
        roles = [
            sentinel.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)
            for sentinel in self.sentinels
        ]
        ports = {int(reply[1]) if reply else 0 for reply in roles}
        return next((server for server in self.servers if {server.port} == ports), None)

    def _arrange(self) -> list[_Member]:
        first, *replicas = self.servers = [_Member(dict(_DATA_SERVER)) for _ in range(3)]
        for replica in replicas:
            replica.set(replicaof=f"127.0.0.1 {first.port}")
        self.sentinels = [_Sentinel() for _ in range(3)]
        for sentinel in self.sentinels:
            sentinel.know(
                first, replicas, [other for other in self.sentinels if other is not sentinel]
            )
        return [*self.servers, *self.sentinels]

    def start(self) -> Self:
        super().start()
        for sentinel in self.sentinels:
            # The usual periods of seconds are for networks; here they would only be waited for, and
            # a sentinel that reconnects later takes servers for dead that just changed their role.
            sentinel.ask("SENTINEL", "DEBUG", *_QUICK_SENTINEL)
        return self


class ClusterGroup(Group):
    """Three primaries with a replica each."""

    @property
    def url(self) -> str:
        places = ",".join(f"127.0.0.1:{server.port}" for server in self.servers[:3])
        return f"redis+cluster://:{SECRET}@{places}?{_CLIENT_OPTIONS}"

    def primary(self, namespace: str = "") -> _Member:
        slot = key_slot(f"{{tenure:{namespace}}}".encode())
        return wait_until(lambda: self._agreed(slot), _PATIENCE, f"an owner of slot {slot}")  # type: ignore[return-value]

    def is_whole(self) -> bool:
        return all(self._is_well(server) for server in self.servers)

    def _is_well(self, server: _Member) -> bool:
        if b"cluster_state:ok" not in (server.ask("CLUSTER", "INFO") or b""):
            return False
        shards = [owners for _, _, *owners in server.ask("CLUSTER", "SLOTS") or []]
        if sorted(len(owners) for owners in shards) != [2, 2, 2]:
            return False
        role = server.ask("ROLE")
        return bool(role) and (role[0] == b"master" or role[3] == b"connected")

    def _agreed(self, slot: int) -> _Member | None:
        owners = set()
        for server in self.servers:
            for first, last, primary, *_ in server.ask("CLUSTER", "SLOTS") or []:
                if first <= slot <= last:
                    owners.add(primary[1])
        primaries = [server for server in self.servers if server.port in owners]
        # One who was replaced may not know it yet; then the two do not agree.
        return primaries[0] if len(primaries) == 1 and primaries[0].role == "master" else None

    def _arrange(self) -> list[_Member]:
        settings = {
            "cluster-enabled": "yes",
            "cluster-node-timeout": "500",
            # A replica may take over however long it has been without its primary.
            "cluster-replica-validity-factor": "0",
            "cluster-require-full-coverage": "no",
        }
        self.servers = [_Member(_DATA_SERVER | settings) for _ in range(6)]
        for member in self.servers:
            member.set(cluster_port=str(free_port()))
        for member in self.servers:
            lines = [
                self._line(server, number, member) for number, server in enumerate(self.servers)
            ]
            lines.append("vars currentEpoch 3 lastVoteEpoch 0")
            (member.data / "nodes.conf").write_text("\n".join(lines) + "\n")
        return self.servers

    def _line(self, member: _Member, number: int, reader: _Member) -> str:
        """Return what nodes.conf says of one who has been in the cluster for long."""
        me = "myself," if member is reader else ""
        place = f"127.0.0.1:{member.port}@{member._config['cluster-port']}"
        if number >= 3:
            primary = self.servers[number - 3].id
            return f"{member.id} {place} {me}slave {primary} 0 0 {number - 2} connected"
        first, last = number * _SLOTS // 3, (number + 1) * _SLOTS // 3 - 1
        return f"{member.id} {place} {me}master - 0 0 {number + 1} connected {first}-{last}"


def _follows(replica: _Member, primary: _Member) -> bool:
    role = replica.ask("ROLE")
    return (
        bool(role) and role[0] == b"slave" and role[2] == primary.port and role[3] == b"connected"
    )
