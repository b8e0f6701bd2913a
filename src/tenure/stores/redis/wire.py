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

from tenure.stores.abandoning import cut
from tenure.stores.redis.address import Address

__all__ = ["Wire", "Word", "dial", "pack", "text"]

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
    """A connection that is logged in.

    `received` gets the replies of each packet, in order; errors among them are ResponseError
    objects. `lost` is called once after the connection has ended, whoever ended it.
    """

    def __init__(self, received: Received, lost: Lost) -> None:
        self._received = received
        self._lost = lost
        self._parser = hiredis.Reader(
            protocolError=exceptions.InvalidResponse,
            replyError=exceptions.ResponseError,
            notEnoughData=_INCOMPLETE,
        )
        self._stream: asyncio.StreamWriter
        self._reason: Exception | None = None
        self.write: Callable[[bytes], None]
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def take_over(self, stream: asyncio.StreamWriter) -> None:
        """Become the protocol of an open connection."""
        # A stream that is no longer referred to closes its transport.
        self._stream = stream
        transport = stream.transport
        transport.set_protocol(self)
        self.write = transport.write

    def abort(self, reason: Exception) -> None:
        """End the connection at once; `lost` gets the reason."""
        if self._reason is None:
            self._reason = reason
            self._stream.transport.abort()

    def cut(self) -> None:
        """End the connection of an event loop that is closed; nobody is told."""
        cut(self._stream.transport)

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


async def dial(address: Address, received: Received, lost: Lost) -> Wire:
    """Connect and log in, in bounded time. Raises redis-py's exceptions."""
    try:
        async with asyncio.timeout(address.connect_timeout):
            connection = await address.reach()
    except TimeoutError as error:
        msg = f"no connection within {address.connect_timeout:g} s"
        raise exceptions.TimeoutError(msg) from error
    except exceptions.RedisError:
        raise
    except Exception as error:
        raise exceptions.ConnectionError(str(error)) from error
    # The one place that reaches into redis-py: it has no public way to hand over its stream.
    stream, connection._writer = connection._writer, None  # noqa: SLF001
    connection._reader = None  # noqa: SLF001
    await connection.disconnect(nowait=True)
    if stream is None or stream.is_closing():
        raise exceptions.ConnectionError("closed by the server during log-in")
    wire = Wire(received, lost)
    wire.take_over(stream)
    address.opened(wire)
    return wire
