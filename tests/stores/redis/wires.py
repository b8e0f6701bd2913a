"""Stand-ins for the connections of a Redis store object: a test writes the server's replies."""

import asyncio
from collections.abc import Callable
from typing import Any

import hiredis
from redis import exceptions

from tests.unit.virtual_time import now


class Cable:
    """A connection, seen by what was written to it."""

    def __init__(
        self, received: Callable[[list[Any]], None], lost: Callable[[Any, Exception], None]
    ) -> None:
        self.commands: list[list[bytes]] = []
        self.packets: list[int] = []
        """How many commands came together."""
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.reason: Exception | None = None
        self.is_cut = False
        self.confirms = True
        """Whether it answers to SUBSCRIBE."""
        self.pongs = True
        """Whether it answers to PING."""
        self._received = received
        self._lost = lost

    def write(self, data: bytes) -> None:
        reader = hiredis.Reader()
        reader.feed(data)
        before = len(self.commands)
        while (command := reader.gets()) is not False:
            self.commands.append(command)
            self._answer(command)
        self.packets.append(len(self.commands) - before)

    def _answer(self, command: list[bytes]) -> None:
        loop = asyncio.get_running_loop()
        if command[0] == b"SUBSCRIBE" and self.confirms:
            loop.call_soon(self.reply, *([b"subscribe", name, 1] for name in command[1:]))
        if command[0] == b"PING" and self.pongs:
            loop.call_soon(self.reply, [b"pong", b""])

    def reply(self, *replies: Any) -> None:
        if self.reason is None:
            self._received(list(replies))

    def abort(self, reason: Exception) -> None:
        if self.reason is None:
            self.reason = reason
            asyncio.get_running_loop().call_soon(self._end)

    def break_off(self) -> None:
        """End it from the other side."""
        self.reason = exceptions.ConnectionError("the server is gone")
        self._end()

    def _end(self) -> None:
        self.closed.set_result(None)
        assert self.reason is not None
        self._lost(self, self.reason)

    def cut(self) -> None:
        self.is_cut = True


class Exchange:
    """Connects: `dial` of a store whose servers are cables."""

    def __init__(self) -> None:
        self.dials: list[float] = []
        self.cables: list[Cable] = []
        self.errors: list[Exception] = []
        """What the next attempts come to; afterwards they succeed."""
        self.gate = asyncio.Event()
        self.gate.set()
        self.confirms = True

    async def dial(self, _address: Any, received: Any, lost: Any) -> Any:
        self.dials.append(now())
        await self.gate.wait()
        if self.errors:
            raise self.errors.pop(0)
        self.cables.append(Cable(received, lost))
        self.cables[-1].confirms = self.confirms
        return self.cables[-1]
