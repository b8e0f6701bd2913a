"""A network that can be broken: a TCP proxy between a client and a server on this machine.

It runs in a thread with an event loop of its own, so it works on while the test's loop is blocked.
All its methods may be called from any thread and have taken effect when they return.

A fault can aim at the n-th command from now on (1 is the next) whose bytes contain `match`. What
counts as a command is said in `tests.rig.wire`; commands are counted over all connections.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Literal, Self, TypeGuard, TypeVar
from urllib.parse import urlsplit

from tests.rig.servers import free_port
from tests.rig.wire import Postgres, Received, Resp, Wire

T = TypeVar("T")

Direction = Literal["to_server", "to_client"]
Protocol = Literal["resp", "postgres"]

_BOTH: tuple[Direction, Direction] = ("to_server", "to_client")
_LOOPBACK = "127.0.0.1"
_PIECE = 65536
_WIRES: dict[Protocol, type[Wire]] = {"resp": Resp, "postgres": Postgres}


class Held:
    """A reply that the server has given and the client does not get until it is let go."""

    def __init__(self) -> None:
        self._arrived = threading.Event()
        self._let_go = threading.Event()
        self._tell_proxy: Callable[[], None] = lambda: None

    def wait_until_held(self, timeout: float = 20.0) -> None:
        """Return once the whole reply has left the server: the command has had its effect."""
        if not self._arrived.wait(timeout):
            raise AssertionError(f"no reply to hold arrived within {timeout:g} s")

    def let_go(self) -> None:
        """Pass the reply on, or let it pass when it comes."""
        self._let_go.set()
        self._tell_proxy()


@dataclass
class _Fault:
    kind: Literal["cut_before", "cut_after", "hold_reply"]
    remaining: int
    match: bytes
    held: Held = field(default_factory=Held)


@dataclass
class _Unanswered:
    """A command that has been forwarded."""

    replies: int
    fault: _Fault | None
    kept: list[bytes] = field(default_factory=list)


@dataclass(frozen=True)
class Traffic:
    """What has passed a proxy: all requests with their replies, also those of a log-in.

    A round trip is a request that the server answers. Wake-ups, which a server sends unasked, are
    left out: they arrive at any time.
    """

    round_trips: int = 0
    size: int = 0
    """In bytes, both directions together."""


class _Link:
    """One client's connection and the connection to the server that belongs to it."""

    def __init__(
        self,
        client: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        server: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        wire: Wire,
    ) -> None:
        self.from_client, self.to_client = client
        self.from_server, self.to_server = server
        self.wire = wire
        self.unanswered: deque[_Unanswered] = deque()

    async def close(self) -> None:
        """Close both connections, after what was written has been sent."""
        for writer in (self.to_client, self.to_server):
            writer.close()
        for writer in (self.to_client, self.to_server):
            with suppress(OSError):
                await writer.wait_closed()

    def abort(self) -> None:
        """Close both connections at once."""
        for writer in (self.to_client, self.to_server):
            writer.transport.abort()


class Proxy:
    """Forwards connections to `target_port`, and breaks them as it is told."""

    def __init__(self, target_port: int, protocol: Protocol) -> None:
        self._target_port = target_port
        self._wire = _WIRES[protocol]
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._listener: asyncio.Server | None = None
        self._port: int | None = None
        self._changed = asyncio.Event()
        self._links: set[_Link] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._faults: list[_Fault] = []
        self._holding: list[Held] = []
        self._closed: set[Direction] = set()
        self._delays: dict[Direction, float] = dict.fromkeys(_BOTH, 0.0)
        self._commands = 0
        self._round_trips = 0
        self._size = 0
        self._kept_back = 0
        self._held_up = 0
        self._cut = 0
        self._bugs: list[Exception] = []

    @property
    def port(self) -> int:
        """The port that clients connect to."""
        assert self._port is not None, "the proxy has not been started"
        return self._port

    @property
    def commands(self) -> int:
        """How many commands have come through, those included that a fault was aimed at."""
        return self._commands

    @property
    def traffic(self) -> Traffic:
        """All that has passed up to now. A reply is counted before its client gets it."""
        return Traffic(self._round_trips, self._size)

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return self._do(lambda: len(self._links))

    @property
    def kept_back(self) -> int:
        """How many pieces of traffic wait at a closed or delayed direction right now."""
        return self._kept_back

    @property
    def held_up(self) -> int:
        """How many pieces of traffic have had to wait there, up to now."""
        return self._held_up

    @property
    def cut(self) -> int:
        """How many connections `cut_all` has ended, up to now."""
        return self._cut

    def url(self, server_url: str) -> str:
        """Return the server's url with the port of this proxy in place of the server's."""
        parts = urlsplit(server_url)
        login = parts.netloc.rpartition("@")[0]
        place = f"{_LOOPBACK}:{self.port}"
        return parts._replace(netloc=f"{login}@{place}" if login else place).geturl()

    def start(self) -> Self:
        """Begin to accept connections."""
        self._thread.start()
        while self._port is None:
            self._port = free_port()
            try:
                self.accept()
            except OSError:  # another process was faster to take the port
                self._port = None
        return self

    def close(self) -> None:
        """Cut everything and end the thread; may be called again.

        Raises what went wrong inside the proxy, if anything did.
        """
        if self._thread.is_alive():
            asyncio.run_coroutine_threadsafe(self._shut_down(), self._loop).result(30)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(10)
        self._loop.close()
        if self._bugs:
            raise self._bugs.pop()

    def __enter__(self) -> Self:
        return self if self._thread.is_alive() else self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # Faults that aim at a command.

    def cut_before(self, n: int = 1, match: bytes | str | None = None) -> None:
        """Cut the connection instead of forwarding the command: it has no effect.

        Commands sent before it on the same connection are answered first.
        """
        self._aim(_Fault("cut_before", n, _as_bytes(match)))

    def cut_after(self, n: int = 1, match: bytes | str | None = None) -> None:
        """Forward the command, throw the server's reply away and cut the connection.

        The command has had its effect and the client cannot know. Commands sent after it on the
        same connection are not forwarded.
        """
        self._aim(_Fault("cut_after", n, _as_bytes(match)))

    def hold_reply(self, n: int = 1, match: bytes | str | None = None) -> Held:
        """Forward the command and keep its reply, and all later ones of that connection, back."""
        fault = _Fault("hold_reply", n, _as_bytes(match))
        fault.held._tell_proxy = lambda: self._do(self._wake)
        self._aim(fault)
        self._do(lambda: self._holding.append(fault.held))
        return fault.held

    # Faults that hit everything.

    def freeze(self) -> None:
        """Let nothing pass; connections stay open, new ones are accepted and hear nothing.

        As with TCP over a broken line, what is sent meanwhile is not lost: it arrives after
        `thaw`, the closing of a connection included.
        """
        self._set(lambda: self._closed.update(_BOTH))

    def thaw(self) -> None:
        """Let pass again what `freeze` or `one_way` kept back."""
        self._set(self._closed.clear)

    def one_way(self, direction: Direction) -> None:
        """Let bytes pass in this direction only; the other one behaves as with `freeze`.

        With "to_server", commands have their effect but no reply comes back. With "to_client",
        commands do not arrive but what the server still has to say does.
        """

        def only() -> None:
            self._closed = {other for other in _BOTH if other != direction}

        self._set(only)

    def delay(self, seconds: float, direction: Direction | None = None) -> None:
        """Keep everything in this direction, or in each, back for at least so long."""
        directions = _BOTH if direction is None else (direction,)
        self._set(lambda: self._delays.update(dict.fromkeys(directions, seconds)))

    def refuse(self) -> None:
        """Have new connections refused; open ones stay."""
        self._set(self._stop_listening)

    def accept(self) -> None:
        """Accept new connections again, on the same port."""
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(30)

    def cut_all(self) -> None:
        """Cut every open connection; what was kept back on it is lost."""
        asyncio.run_coroutine_threadsafe(self._cut_links(), self._loop).result(30)

    def heal(self) -> None:
        """Clear all faults: forget the aimed ones, thaw, let go, drop delays, accept."""

        def clear() -> None:
            self._faults.clear()
            self._closed.clear()
            self._delays = dict.fromkeys(_BOTH, 0.0)
            for held in self._holding:
                held._let_go.set()
            self._holding.clear()

        self._set(clear)
        self.accept()

    # Everything below runs in the thread of the proxy, except the first three.

    def _do(self, action: Callable[[], T]) -> T:
        async def act() -> T:
            return action()

        return asyncio.run_coroutine_threadsafe(act(), self._loop).result(30)

    def _set(self, action: Callable[[], None]) -> None:
        def act() -> None:
            action()
            self._wake()

        self._do(act)

    def _aim(self, fault: _Fault) -> None:
        self._do(lambda: self._faults.append(fault))

    def _wake(self) -> None:
        """Have everything that waits look again at what it waits for."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await self._changed.wait()

    async def _listen(self) -> None:
        if self._listener is None:
            self._listener = await asyncio.start_server(self._accepted, _LOOPBACK, self._port)

    def _stop_listening(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = self._loop.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            server = await asyncio.open_connection(_LOOPBACK, self._target_port)
        except BaseException as error:
            writer.transport.abort()
            if isinstance(error, OSError):
                return
            raise
        link = _Link((reader, writer), server, self._wire())
        self._links.add(link)
        pumps = [
            self._loop.create_task(self._pump_to_server(link)),
            self._loop.create_task(self._pump_to_client(link)),
        ]
        try:
            # When one side has closed, or has been cut, the other has no peer any more.
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            outcomes = await asyncio.gather(*pumps, return_exceptions=True)
            self._bugs += [error for error in outcomes if _is_bug(error)]
            await link.close()
            self._links.discard(link)

    async def _shut_down(self) -> None:
        self._stop_listening()
        await self._cut_links()

    async def _cut_links(self) -> None:
        open_before = self._links.copy()
        for link in open_before:
            link.abort()
        # Aborting wakes a pump that reads; one that waits for something else must be cancelled.
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._cut += len(open_before - self._links)

    async def _passage(self, direction: Direction) -> None:
        """Wait until what has just come may go on in this direction."""
        came = self._loop.time()
        self._kept_back += 1
        waits = False
        try:
            while True:
                left = came + self._delays[direction] - self._loop.time()
                shut = direction in self._closed
                if not shut and left <= 0:
                    return
                self._held_up += not waits
                waits = True
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._changed.wait(), None if shut else left)
        finally:
            self._kept_back -= 1

    async def _pump_to_server(self, link: _Link) -> None:
        while piece := await link.from_client.read(_PIECE):
            await self._passage("to_server")
            for sent in link.wire.sent(piece):
                fault = self._fault_for(sent.text) if sent.command else None
                if fault is not None and fault.kind == "cut_before":
                    await self._until(lambda: not link.unanswered)
                    return
                link.to_client.write(sent.answer)
                self._size += len(sent.raw)
                self._round_trips += bool(sent.replies or sent.is_answered)
                if sent.replies:
                    link.unanswered.append(_Unanswered(sent.replies, fault))
                link.to_server.write(sent.raw)
                if fault is not None and fault.kind == "cut_after":
                    await self._until(lambda: False)  # the other pump cuts
            await link.to_server.drain()
        await self._passage("to_server")

    async def _pump_to_client(self, link: _Link) -> None:
        while piece := await link.from_server.read(_PIECE):
            await self._passage("to_client")
            for received in link.wire.received(piece):
                self._size += len(received.raw) if received.is_reply else 0
                fault = link.unanswered[0].fault if link.unanswered else None
                if fault is None or not received.is_reply:
                    link.to_client.write(received.raw)
                    self._note_reply(link, received)
                elif await self._spoil(link, received, fault):
                    return
            await link.to_client.drain()
        await self._passage("to_client")

    def _fault_for(self, text: bytes) -> _Fault | None:
        """Count a command, and return the fault that was aimed at it."""
        self._commands += 1
        hit: _Fault | None = None
        for fault in self._faults:
            if fault.match in text:
                fault.remaining -= 1
                if hit is None and fault.remaining <= 0:
                    hit = fault
        if hit is not None:
            self._faults.remove(hit)
        return hit

    def _note_reply(self, link: _Link, received: Received) -> None:
        if link.unanswered and received.ends_reply:
            link.unanswered[0].replies -= 1
            if not link.unanswered[0].replies:
                link.unanswered.popleft()
                self._wake()

    async def _spoil(self, link: _Link, received: Received, fault: _Fault) -> bool:
        """Keep a part of a reply that has a fault; say whether the connection is to be cut."""
        oldest = link.unanswered[0]
        oldest.kept.append(received.raw)
        if received.ends_reply and oldest.replies == 1:
            if fault.kind == "cut_after":
                return True
            fault.held._arrived.set()
            await self._until(fault.held._let_go.is_set)
            link.to_client.writelines(oldest.kept)
        self._note_reply(link, received)
        return False


def _is_bug(outcome: BaseException | None) -> TypeGuard[Exception]:
    """Say whether this is an error of the proxy itself; a broken connection is none."""
    return isinstance(outcome, Exception) and not isinstance(outcome, OSError)


def _as_bytes(match: bytes | str | None) -> bytes:
    return match.encode() if isinstance(match, str) else match or b""
