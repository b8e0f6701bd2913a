"""The worker's end of the connection to its supervisor."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from contextlib import suppress

from tenure.core.clock import Clock
from tenure.runtime.supervised.messages import (
    IsolationOver,
    Order,
    Report,
    Retire,
    Stop,
    decode_order,
    encode_message,
)
from tenure.runtime.supervised.scoreboard import Scoreboard

__all__ = ["SupervisorLink"]

_TICK_EVERY = 0.5
# The most bytes of one line: a list of cancels may be long.
_LINE_MAX = 1_000_000


class SupervisorLink:
    """Receives messages on the host, so that a blocked loop of the app does not delay them."""

    def __init__(self, line: socket.socket, board: Scoreboard, clock: Clock) -> None:
        self.board = board
        self._socket = line
        self._clock = clock
        self._sending = threading.Lock()
        self._orders: asyncio.Queue[Order | None] = asyncio.Queue()
        self.is_closed = False
        """Whether the supervisor is gone."""

    def send(self, report: Report) -> None:
        """Send a message to the supervisor. For any thread."""
        # A few hundred bytes always fit the socket's buffer. If the supervisor is gone, drop them.
        with self._sending, suppress(OSError):
            self._socket.sendall(encode_message(report) + b"\n")

    async def listen(
        self, on_order: Callable[[Stop | Retire | IsolationOver | None], None]
    ) -> None:
        """Receive messages until the connection ends.

        Orders for the worker go to `on_order`, and None at the end of the connection. Messages
        about the replica go to `next_order`.
        """
        ticking = asyncio.ensure_future(self._tick())
        reader, writer = await asyncio.open_connection(sock=self._socket.dup(), limit=_LINE_MAX)
        try:
            # Reject messages that a supervisor never sends.
            with suppress(OSError, ValueError, RecursionError):
                while line := await reader.readline():
                    order = decode_order(line)
                    if isinstance(order, Stop | Retire | IsolationOver):
                        on_order(order)
                    else:
                        self._orders.put_nowait(order)
            self.is_closed = True
            self._orders.put_nowait(None)
            on_order(None)
        finally:
            ticking.cancel()
            self.board.tick(0.0)  # the worker ends, so the silence needs no report
            writer.close()

    async def next_order(self, seconds: float) -> Order | None:
        """Return the next message about the replica; None after a silence or a lost connection."""
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, seconds)):
                return await self._orders.get()
        return None

    async def _tick(self) -> None:
        while True:
            self.board.tick(self._clock.boot())
            await self._clock.sleep(_TICK_EVERY)
