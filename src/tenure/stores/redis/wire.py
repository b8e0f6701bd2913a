"""One connection, reduced to what the store needs: bytes out, replies in, and its end.

redis-py opens the connection, with its support for TLS, Unix sockets and log-in. Then this module
takes over the transport: a reply goes from the socket through hiredis to its caller, without the
streams, locks, timers and tasks that redis-py needs for each command.
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
    """Return a stored name for messages; bytes that are not UTF-8 are escaped."""
    return name.decode(errors="backslashreplace")


# redis-py's type stub allows one word only.
pack: Callable[[tuple[Word, ...]], bytes] = cast("Any", hiredis.pack_command)
"""Return the bytes of a command."""

Received: TypeAlias = Callable[[list[Any]], None]
Lost: TypeAlias = Callable[["Wire", Exception], None]

_INCOMPLETE = object()


class Wire(asyncio.Protocol):
    """A logged-in connection, taken over from the stream that opened it.

    `received` gets the replies of each packet in order; errors among them are ResponseError
    objects. `lost` is called once after the connection has ended, from either side.
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
        # A reference to the stream, which closes its transport when it is collected.
        self._stream = stream
        stream.transport.set_protocol(self)
        self.write = stream.transport.write

    def abort(self, reason: Exception) -> None:
        """End the connection at once; `lost` gets the reason."""
        if self._reason is None:
            self._reason = reason
            self._stream.transport.abort()

    def cut(self) -> None:
        """End the connection of an event loop that is closed, without calling `lost`."""
        close_socket(self._stream.transport)

    def data_received(self, data: bytes) -> None:
        if self._reason is not None:
            return  # dropped already, although a TLS transport may still deliver this
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
