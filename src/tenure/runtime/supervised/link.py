"""The worker's end of the line to its supervisor."""

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
# A list of cancels may be long.
_LINE_MAX = 1_000_000


class SupervisorLink:
    """Listens on the host, where a blocked loop does not keep it from hearing."""

    def __init__(self, line: socket.socket, board: Scoreboard, clock: Clock) -> None:
        self.board = board
        self._socket = line
        self._clock = clock
        self._sending = threading.Lock()
        self._orders: asyncio.Queue[Order | None] = asyncio.Queue()
        self.is_closed = False
        """Whether the supervisor is gone."""

    def send(self, report: Report) -> None:
        """Tell the supervisor something, from any thread."""
        # Some hundred bytes always fit; if it is gone, nobody needs to know any more.
        with self._sending, suppress(OSError):
            self._socket.sendall(encode_message(report) + b"\n")

    async def listen(
        self, on_order: Callable[[Stop | Retire | IsolationOver | None], None]
    ) -> None:
        """Hear orders to the end of the line.

        Those for the worker go to `on_order`, with None when the line is cut; what is about the
        replica is news.
        """
        ticking = asyncio.ensure_future(self._tick())
        reader, writer = await asyncio.open_connection(sock=self._socket.dup(), limit=_LINE_MAX)
        try:
            # Who says what no supervisor says is none.
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
            self.board.tick(0.0)  # it ends, and nobody need wonder why it is silent
            writer.close()

    async def next_order(self, seconds: float) -> Order | None:
        """Return the next word about the replica, None after a silence or when the line is cut."""
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, seconds)):
                return await self._orders.get()
        return None

    async def _tick(self) -> None:
        while True:
            self.board.tick(self._clock.boot())
            await self._clock.sleep(_TICK_EVERY)
