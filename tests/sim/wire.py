"""The way from clients outside to the replicas that serve them: it delays, loses and repeats.

It has the weather of the run, like the lines from the replicas to the store. A request that has
arrived is served whether or not somebody still waits for it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import cast

from msgspec import Struct

from tenure.http.server.response import Answer
from tests.sim.fleet import Fleet, Process

__all__ = ["Ask", "Door", "Exchange", "Wire"]

_USUAL = (0.0005, 0.005)
_LONG = (0.01, 0.4)
_LATE = (0.1, 4.0)
_HANGS = 0.3


class Ask(Struct, frozen=True, kw_only=True):
    """One request."""

    verb: str
    """The route that it is for."""
    owner: str
    job: str = ""
    headers: dict[str, str] = {}
    body: bytes = b""


Item = Answer | bytes | None
"""An answer, a part of its body that comes later, or the end of the connection."""


class Wire:
    """What the network between clients and replicas is like."""

    def __init__(self, fleet: Fleet, dice: random.Random) -> None:
        self._fleet = fleet
        self.dice = dice
        self.loop = fleet.loop

    def strikes(self, what: str) -> bool:
        chance = 0.0 if self._fleet.is_calm else self._fleet.plan.weather.get(what, 0.0)
        if chance == 0 or self.dice.random() >= chance:
            return False
        self._fleet.struck[f"{what} of clients"] += 1
        return True

    def delay(self) -> float:
        return self.dice.uniform(*(_LONG if self.strikes("delays") else _USUAL))

    def send(self, ask: Ask) -> Exchange:
        """Send a request to any machine; nobody need be there."""
        machine = self.dice.choice(self._fleet.machines)
        door: Door | None = machine.memory.get("door")
        exchange = Exchange(self, ask, door)
        if door is None or machine.process is not door.process:
            exchange.break_off(hangs=False)
        elif self.strikes("lost requests"):
            exchange.break_off(hangs=self.dice.random() < _HANGS)
        elif self.strikes("late requests"):
            exchange.break_off(hangs=False)
            exchange.knock(self.dice.uniform(*_LATE))
        else:
            exchange.knock(self.delay())
            if self.strikes("duplicates"):  # somebody on the way repeats it
                Exchange(self, ask, door).knock(self.delay())
        return exchange


class Exchange:
    """A request on its way, and what comes back for it."""

    def __init__(self, wire: Wire, ask: Ask, door: Door | None) -> None:
        self.ask = ask
        self.began = wire.loop.time()
        self._wire = wire
        self._door = door
        self._inbox: asyncio.Queue[Item] = asyncio.Queue()
        self._arrival = 0.0
        self._is_broken = False

    def knock(self, delay: float) -> None:
        """Let it arrive at the process, if that lives by then."""
        assert self._door is not None
        context = self._door.process.lane.context
        self._wire.loop.call_later(delay, self._door.take, self, context=context)

    def break_off(self, *, hangs: bool) -> None:
        """Let the client see that the connection is gone; or nothing at all."""
        if not hangs:
            self._deliver(None)
        self._is_broken = True

    def reply(self, item: Item) -> None:
        """Send something back, after all that was sent before."""
        if not self._is_broken and self._wire.strikes("lost replies"):
            self.break_off(hangs=self._wire.dice.random() < _HANGS)
        if not self._is_broken:
            self._deliver(item)

    def _deliver(self, item: Item) -> None:
        loop = self._wire.loop
        self._arrival = max(self._arrival, loop.time() + self._wire.delay())
        loop.call_at(self._arrival, self._inbox.put_nowait, item, context=loop.world.context)

    async def next(self, timeout: float) -> Item:
        """Return what comes next; None for a connection that has ended, or says nothing."""
        try:
            return await asyncio.wait_for(self._inbox.get(), timeout)
        except TimeoutError:
            return None

    def hang_up(self) -> None:
        """Tell the process that nobody reads any more; a stream ends with that."""
        if self._door is not None:
            self._wire.loop.call_later(
                self._wire.delay(),
                self._door.let_go,
                self,
                context=self._door.process.lane.context,
            )


class Door:
    """Where a process takes requests in, and answers them."""

    def __init__(self, process: Process, serve: Callable[[Ask], Awaitable[Answer]]) -> None:
        self.process = process
        self._serve = serve
        self._is_open = True
        self._served: dict[Exchange, asyncio.Task[None]] = {}
        self._streams: set[Exchange] = set()

    def take(self, exchange: Exchange) -> None:
        if not self._is_open:
            exchange.break_off(hangs=False)
            return
        task = asyncio.ensure_future(self._answer(exchange))
        self._served[exchange] = task
        task.add_done_callback(lambda _: self._served.pop(exchange, None))

    def let_go(self, exchange: Exchange) -> None:
        if exchange in self._streams and (task := self._served.get(exchange)) is not None:
            task.cancel()

    async def close(self) -> None:
        """Take nothing any more, and end all connections."""
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
            self.process.say("fell", detail=f"{exchange.ask.verb}: {error!r}")
        finally:
            self._streams.discard(exchange)
            exchange.reply(None)
