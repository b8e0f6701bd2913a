"""Redis, round trip by round trip: what is sent waits at a gate, and so do the replies.

Redis scripts are atomic, so a schedule cannot stop inside one. But the server may have forgotten a
script, a connection may end before or after its effect, and commands sent over an ended connection
may be carried out later, after their caller has repeated them.
"""

import socket
from typing import Any
from urllib.parse import urlsplit

from redis import exceptions

from tenure.stores.redis import sender
from tenure.stores.redis.address import Address, dial
from tenure.stores.redis.sender import Sender
from tenure.stores.redis.wire import Wire
from tests.interleavings.loop_rig import LoopRig, current
from tests.interleavings.orders import Fate, Op
from tests.interleavings.scheduler import ITS_REPLY, Point

_FORGET_EVERY = 11  # calls
_LATE_EVERY = 2  # breaks before the reply

# Attributes that a store object derives from its namespace.
_OF_A_NAMESPACE = ("namespace", "tag", "bells")


class _Link:
    """A wire whose two directions wait at gates."""

    def __init__(self, rig: "RedisRig", store: int, received: Any) -> None:
        self._rig = rig
        self.store = store
        self.received = received
        self.wire: Wire
        self._write: Any = None
        self.data = b""
        self.replies: list[Any] = []
        self.expected = 0
        self.points: list[Point] = []

    def take_over(self, wire: Wire) -> None:
        self.wire = wire
        self._write = wire.write
        wire.write = self.write

    def write(self, data: bytes) -> None:
        if self._rig.open_gate:
            self._write(data)
        else:
            self.data = data
            self._park("what it sends")

    def arrived(self, replies: list[Any]) -> None:
        if self._rig.open_gate and not self.expected:
            self.received(replies)
            return
        self.replies += replies
        if len(self.replies) >= self.expected:
            self.expected = 0
            self._park(ITS_REPLY)

    def go_on(self, point: Point) -> None:
        self._unpark(point)
        if point.what == ITS_REPLY:
            replies, self.replies = self.replies, []
            self.received(replies)
        else:
            self.expected = len(self._rig.stores[self.store]._sender._flying)
            self._write(self.data)

    def end(self) -> None:
        for point in list(self.points):
            self._unpark(point)
        self.wire.abort(exceptions.ConnectionError("broken on purpose"))

    def fate(self) -> Fate:
        """Return the waiting replies: a script that the server does not know has not run."""
        unknown = [str(reply).startswith("NOSCRIPT") for reply in self.replies]
        if all(unknown):
            return "never"
        return "maybe" if any(unknown) else "happened"

    def _park(self, what: str) -> None:
        self._rig.counts["statements"] += 1
        point = Point(self._rig.first_sent(self.store), what, self.store)
        self.points.append(point)
        self._rig.held.append(point)
        self._rig.links[point] = self

    def _unpark(self, point: Point) -> None:
        self.points.remove(point)
        self._rig.held.remove(point)
        del self._rig.links[point]


class RedisRig(LoopRig):
    """Several store objects on one server, which nothing else may use."""

    skips = False

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.links: dict[Point, _Link] = {}
        self._live: dict[int, _Link] = {}
        self._late: dict[Point, bytes] = {}
        self._control = socket.create_connection(_place(url))
        self._ops: dict[Any, Op | None] = {}
        self._breaks = 0
        self._calls = 0

    async def open(self) -> None:
        self._real = sender.dial, Sender._post
        sender.dial = self._dial
        real_post = Sender._post

        def post(self_: Sender, call: Any) -> Any:
            self._ops[call.reply] = current.get()
            return real_post(self_, call)

        Sender._post = post
        await super().open()

    async def close(self) -> None:
        await super().close()
        sender.dial, Sender._post = self._real
        self._control.close()

    async def _dial(self, address: Address, received: Any, lost: Any) -> Wire:
        store = next(n for n, candidate in enumerate(self.stores) if candidate.address is address)
        link = _Link(self, store, received)
        wire = await dial(address, link.arrived, lost)
        link.take_over(wire)
        self._live[store] = link
        return wire

    def enter(self, namespace: str) -> None:
        self._say(b"FLUSHALL")
        self._ops.clear()
        self._calls = self._breaks = self.seed
        for store in self.stores:
            made = type(store)(store._secret_url(), namespace=namespace, clock=self.clock)
            for name in _OF_A_NAMESPACE:
                setattr(store, name, getattr(made, name))
            for name in ("leases", "jobs", "schedules"):
                setattr(store, name, type(getattr(made, name))(store))

    async def _start(self, op: Op) -> None:
        self._calls += 1
        if self._calls % _FORGET_EVERY == 0:
            self.counts["scripts forgotten"] += 1
            self._say(b"SCRIPT FLUSH")
        await super()._start(op)

    def first_sent(self, store: int) -> Op | None:
        """Return the first call whose command is in flight."""
        flying = self.stores[store]._sender._flying
        ops = (self._ops.get(call.reply) for call in flying if not call.reply.done())
        return next((op for op in ops if op in self.tasks), None)

    def release(self, point: Point) -> None:
        if point in self._late:
            self.held.remove(point)
            self._say(self._late.pop(point))
            return
        self.links[point].go_on(point)
        self.do(self.settle())

    def break_at(self, point: Point) -> Fate:
        link = self.links[point]
        fate: Fate = link.fate() if point.what == ITS_REPLY else "never"
        link.end()
        if point.what != ITS_REPLY:
            self._breaks += 1
            if self._breaks % _LATE_EVERY == 0:
                late = Point(None, "what arrives late", 1000 + self._breaks)
                self._late[late] = link.data
                self.held.append(late)
                fate = "maybe"
        self.do(self.settle())
        return fate

    def drain(self) -> None:
        while self.held:
            self.release(self.held[0])

    async def is_quiet(self) -> bool:
        return all(map(self._is_store_quiet, range(len(self.stores))))

    def _is_store_quiet(self, store: int) -> bool:
        link = self._live[store]
        if self.stores[store]._sender._connecting is not None or link.expected:
            return False
        return self.first_of(store) is None or bool(link.points)

    def _say(self, command: bytes) -> None:
        """Send a command past the stores, and wait until it has been carried out."""
        if not command.startswith(b"*"):
            command += b"\r\n"
        self._control.sendall(command + b"PING tenure-done\r\n")
        replies = b""
        while not replies.endswith(b"tenure-done\r\n"):
            replies += self._control.recv(65536)


def _place(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    return parts.hostname or "127.0.0.1", parts.port or 6379
