"""One connection, stripped to what the store needs: bytes out, replies in, and its end.

redis-py makes the connection, so that its ways of TLS, Unix sockets and log-in work. Then this
module takes the transport out of its hands: a reply goes from the socket through hiredis to
whoever waits for it, without the streams, locks, timers and tasks that redis-py spends on each
command.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeAlias, cast

import hiredis
from redis import exceptions

from tenure.stores.sockets import close_socket

__all__ = ["Lost", "Received", "Wire", "Word", "pack", "text"]

Word: TypeAlias = str | bytes | int


def text(name: bytes) -> str:
    """Return a stored name to show; escaped where it is not UTF-8."""
    return name.decode(errors="backslashreplace")


# The stub knows commands of a single word only.
pack: Callable[[tuple[Word, ...]], bytes] = cast("Any", hiredis.pack_command)
"""Return a command as it is sent."""

Received: TypeAlias = Callable[[list[Any]], None]
Lost: TypeAlias = Callable[["Wire", Exception], None]

_INCOMPLETE = object()


class Wire(asyncio.Protocol):
    """A connection that is logged in, which it takes over from the stream that opened it.

    `received` gets the replies of each packet, in order; errors among them are ResponseError
    objects. `lost` is called once after the connection has ended, whoever ended it.
    """

    def __init__(self, stream: asyncio.StreamWriter, received: Received, lost: Lost) -> None:
        self._received = received
        self._lost = lost
        self._parser = hiredis.Reader(
            protocolError=exceptions.InvalidResponse,
            replyError=exceptions.ResponseError,
            notEnoughData=_INCOMPLETE,
        )
        self._reason: Exception | None = None
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # A stream that is no longer referred to closes its transport.
        self._stream = stream
        stream.transport.set_protocol(self)
        self.write = stream.transport.write

    def abort(self, reason: Exception) -> None:
        """End the connection at once; `lost` gets the reason."""
        if self._reason is None:
            self._reason = reason
            self._stream.transport.abort()

    def cut(self) -> None:
        """End the connection of an event loop that is closed; nobody is told."""
        close_socket(self._stream.transport)

    def data_received(self, data: bytes) -> None:
        if self._reason is not None:
            return  # given up already, though a TLS transport may still have had this
        replies: list[Any] = []
        try:
            self._parser.feed(data)
            while (reply := self._parser.gets()) is not _INCOMPLETE:
                replies.append(reply)
        except exceptions.InvalidResponse as error:
            self.abort(error)
        self._received(replies)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._reason is None:
            self._reason = exceptions.ConnectionError(
                f"the connection ended ({exc or 'by the server'})"
            )
        if not self.closed.done():
            self.closed.set_result(None)
        self._lost(self, self._reason)
