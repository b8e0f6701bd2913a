"""The network between HTTP clients and the replicas that serve them: it delays, loses and repeats.

It has the same fault rates as the network between replicas and store. A replica serves each request
that arrives, whether or not the client still waits for the answer.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import TypeAlias, cast

from msgspec import Struct

from tenure.http.server.response import ResponseData
from tests.sim.fleet import Fleet, Process

__all__ = ["ClientNetwork", "ClientRequest", "Exchange", "Listener"]

_USUAL = (0.0005, 0.005)
_LONG = (0.01, 0.4)
_LATE = (0.1, 4.0)
_HANGS = 0.3


class ClientRequest(Struct, frozen=True, kw_only=True):
    """One request of a client."""

    verb: str
    """The route: "submit", "list", "get", "result", "events" or "cancel"."""
    owner: str
    job: str = ""
    headers: dict[str, str] = {}
    body: bytes = b""


Item: TypeAlias = ResponseData | bytes | None
"""An answer, a later part of its body, or None for the end of the connection."""


class ClientNetwork:
    """Carries requests to replicas, and injects the plan's faults on the way."""

    def __init__(self, fleet: Fleet, rng: random.Random) -> None:
        self._fleet = fleet
        self.rng = rng
        self.loop = fleet.loop

    def injects(self, what: str) -> bool:
        chance = 0.0 if self._fleet.is_healed else self._fleet.plan.call_faults.get(what, 0.0)
        if chance == 0 or self.rng.random() >= chance:
            return False
        self._fleet.injected[f"{what} of clients"] += 1
        return True

    def delay(self) -> float:
        return self.rng.uniform(*(_LONG if self.injects("delays") else _USUAL))

    def send(self, ask: ClientRequest) -> Exchange:
        """Send a request to a random machine, whether or not a process listens there."""
        machine = self.rng.choice(self._fleet.machines)
        listener: Listener | None = machine.disk.get("listener")
        exchange = Exchange(self, ask, listener)
        if listener is None or machine.process is not listener.process:
            exchange.disconnect(hangs=False)
        elif self.injects("lost requests"):
            exchange.disconnect(hangs=self.rng.random() < _HANGS)
        elif self.injects("late requests"):
            exchange.disconnect(hangs=False)
            exchange.deliver(self.rng.uniform(*_LATE))
        else:
            exchange.deliver(self.delay())
            if self.injects("duplicates"):  # as a proxy between them may repeat it
                Exchange(self, ask, listener).deliver(self.delay())
        return exchange


class Exchange:
    """One request, and the parts of its answer that have come back so far."""

    def __init__(
        self, network: ClientNetwork, ask: ClientRequest, listener: Listener | None
    ) -> None:
        self.ask = ask
        self.began = network.loop.time()
        self._network = network
        self._listener = listener
        self._inbox: asyncio.Queue[Item] = asyncio.Queue()
        self._arrival = 0.0
        self._is_broken = False

    def deliver(self, delay: float) -> None:
        """Let the request arrive after a delay, if the process still lives then."""
        assert self._listener is not None
        context = self._listener.process.lane.context
        self._network.loop.call_later(delay, self._listener.take, self, context=context)

    def disconnect(self, *, hangs: bool) -> None:
        """End the connection. The client sees that at once, or never if the connection hangs."""
        if not hangs:
            self._deliver(None)
        self._is_broken = True

    def reply(self, item: Item) -> None:
        """Send a part of the answer, after all earlier parts."""
        if not self._is_broken and self._network.injects("lost replies"):
            self.disconnect(hangs=self._network.rng.random() < _HANGS)
        if not self._is_broken:
            self._deliver(item)

    def _deliver(self, item: Item) -> None:
        loop = self._network.loop
        self._arrival = max(self._arrival, loop.time() + self._network.delay())
        loop.call_at(self._arrival, self._inbox.put_nowait, item, context=loop.world.context)

    async def next(self, timeout: float) -> Item:
        """Return the next part; None if the connection has ended or the time is over."""
        try:
            return await asyncio.wait_for(self._inbox.get(), timeout)
        except TimeoutError:
            return None

    def close(self) -> None:
        """Close the connection. The process ends its event stream when it notices."""
        if self._listener is not None:
            self._network.loop.call_later(
                self._network.delay(),
                self._listener.close_stream,
                self,
                context=self._listener.process.lane.context,
            )


class Listener:
    """Accepts the requests of one process, and answers them."""

    def __init__(
        self, process: Process, serve: Callable[[ClientRequest], Awaitable[ResponseData]]
    ) -> None:
        self.process = process
        self._serve = serve
        self._is_open = True
        self._served: dict[Exchange, asyncio.Task[None]] = {}
        self._streams: set[Exchange] = set()

    def take(self, exchange: Exchange) -> None:
        if not self._is_open:
            exchange.disconnect(hangs=False)
            return
        task = asyncio.ensure_future(self._answer(exchange))
        self._served[exchange] = task
        task.add_done_callback(lambda _: self._served.pop(exchange, None))

    def close_stream(self, exchange: Exchange) -> None:
        if exchange in self._streams and (task := self._served.get(exchange)) is not None:
            task.cancel()

    async def close(self) -> None:
        """Accept no more requests, and end all connections."""
        self._is_open = False
        tasks = list(self._served.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _answer(self, exchange: Exchange) -> None:
        try:
            answer = await self._serve(exchange.ask)
            exchange.reply(answer)
            if not isinstance(answer.body, bytes):
                self._streams.add(exchange)
                body = cast("AsyncGenerator[bytes, None]", answer.body)
                async with aclosing(body) as parts:
                    async for part in parts:
                        exchange.reply(part)
        except Exception as error:  # noqa: BLE001 - for the checkers
            self.process.record("raised", detail=f"{exchange.ask.verb}: {error!r}")
        finally:
            self._streams.discard(exchange)
            exchange.reply(None)
