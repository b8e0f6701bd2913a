"""The way from a process to the store: it delays, loses and repeats, and it breaks.

A request travels by itself: it arrives although its sender was cancelled, paused or killed
meanwhile. Requests of one connection arrive in the order in which they were sent; only those that
were cut off with their connection may still arrive later.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Self, TypeVar, cast

from tenure.core.jobs.records import Cancelled
from tenure.core.leases import Topic
from tenure.errors import StoreUnavailable
from tenure.stores.contract import Jobs, Watch
from tenure.stores.watchers import Watchers
from tenure.testing.faulty import FaultyStore
from tests.sim.clock import MachineClock
from tests.sim.loop import Lane, VirtualLoop
from tests.sim.plan import Plan
from tests.sim.server import Server

__all__ = ["CALL_TIMEOUT", "Line", "Link"]

T = TypeVar("T")

CALL_TIMEOUT = 5.0
"""A driver gives up on a call after so long; the request may still arrive."""

_USUAL = (0.0002, 0.002)
_LONG = (0.01, 0.4)
_LONG_IN_FAIR_WEATHER = (0.01, 0.05)
_LATE = (0.1, 4.0)


class Line:
    """What the network between one machine and the store is like; kept over crashes."""

    def __init__(
        self, server: Server, dice: random.Random, plan: Plan, struck: Counter[str]
    ) -> None:
        self.server = server
        self.struck = struck
        """How often each fault has come true."""
        self.dice = dice
        self.weather = plan.weather
        self._long = _LONG_IN_FAIR_WEATHER if plan.is_fair else _LONG
        self.hangs = 0.0 if plan.is_fair else 0.1
        """How often nobody answers at all, where nobody is there."""
        self.is_cut = False
        self.links: list[Link] = []

    def strikes(self, what: str) -> bool:
        chance = self.weather.get(what)
        if chance is None or self.dice.random() >= chance:
            return False
        self.struck[what] += 1
        return True

    def delay(self) -> float:
        span = self._long if self.strikes("delays") else _USUAL
        return self.dice.uniform(*span) + self.server.slowness * self.dice.random()

    def mend(self) -> None:
        self.is_cut = False

    def break_links(self) -> None:
        for link in self.links:
            link.break_off()


class _Request:
    """One call on its way."""

    __slots__ = ("answer", "by", "call", "send")

    def __init__(
        self, by: str, call: str, send: Callable[[], Awaitable[Any]], answer: asyncio.Future[Any]
    ) -> None:
        self.by = by
        self.call = call
        self.send = send
        self.answer = answer

    def happen(self, server: Server) -> Any:
        """Let the store carry it out, in no time: the memory store never waits."""
        server.diary.caller = self.by
        work = cast("Any", self.send())
        try:
            work.send(None)
        except StopIteration as done:
            return done.value
        raise AssertionError(f"{self.call} waits for something")

    def fail(self, why: str) -> None:
        if not self.answer.done():
            self.answer.set_exception(StoreUnavailable(f"{self.call}: {why}"))

    def reply(self, value: Any) -> None:
        if not self.answer.done():
            self.answer.set_result(value)


class Link(FaultyStore):
    """A store object of one process: one connection to the server."""

    def __init__(self, line: Line, lane: Lane, clock: MachineClock, loop: VirtualLoop) -> None:
        super().__init__(line.server)
        self.clock = clock
        self._line = line
        self._lane = lane
        self._loop = loop
        self._watchers = Watchers(clock)
        self._queue: deque[_Request] = deque()
        self._open: dict[_Request, None] = {}
        self._last_arrival = 0.0
        self.jobs = cast("Jobs", _LinkJobs(self.jobs, self._say_cancel))
        line.links.append(self)

    def _say_cancel(self, ids: Sequence[str]) -> None:
        """Write down that its process wants jobs to end. The dead say nothing."""
        if not self._lane.is_dead:
            self._line.server.diary.say_of(self._lane.name, "asks to cancel", ids=list(ids))

    def clone(self) -> Self:
        return type(self)(self._line, self._lane, cast("MachineClock", self.clock), self._loop)

    async def close(self) -> None:
        if self in self._line.links:
            self._line.links.remove(self)

    def watch(self, *topics: Topic) -> AbstractAsyncContextManager[Watch]:
        return self._watchers.watch(*topics)

    def hear(self, topic: Topic) -> None:
        """Carry a wake-up to the process, or not."""
        if self._watchers.is_watched(topic) and not self._line.strikes("lost wake-ups"):
            self._loop.call_later(
                self._line.delay(), self._watchers.wake, topic, context=self._lane.context
            )

    def break_off(self) -> None:
        """Fail everything on its way; what has not arrived may arrive late, or never."""
        for request in list(self._open):
            request.fail("the connection broke")
        self._open.clear()
        while self._queue:
            request = self._queue.popleft()
            if self._line.strikes("late requests"):
                self._arrives_late(request)

    async def _pass(self, call: str, send: Callable[[], Awaitable[T]]) -> T:
        if self._lane.is_dead:
            raise StoreUnavailable("this process is dead")
        answer: asyncio.Future[T] = self._loop.create_future()
        self._send(_Request(self._lane.name, call, send, answer))
        return await answer

    def _send(self, request: _Request) -> None:
        line, loop = self._line, self._loop
        world = loop.world.context
        if line.is_cut or line.server.is_away or line.strikes("lost requests"):
            # Refused at once, or nobody answers at all.
            wait = CALL_TIMEOUT if line.dice.random() < line.hangs else line.delay()
            loop.call_later(wait, request.fail, "nobody is there", context=world)
            return
        if line.strikes("late requests"):
            self._arrives_late(request)
            loop.call_later(line.delay(), request.fail, "it was cut off", context=world)
            return
        self._queue.append(request)
        self._open[request] = None
        arrival = loop.time() + line.delay()
        if line.strikes("edges"):
            edge = line.server.next_edge(arrival)
            line.struck["edges met"] += edge > arrival
            arrival = edge
        self._last_arrival = max(self._last_arrival, arrival)
        loop.call_at(self._last_arrival, self._arrive, context=world)
        if self._last_arrival > loop.time() + CALL_TIMEOUT:
            loop.call_later(CALL_TIMEOUT, request.fail, "no answer in time", context=world)

    def _arrive(self) -> None:
        """Carry out the next one in the line, unless the connection has broken since."""
        if not self._queue:
            return
        request = self._queue.popleft()
        line, world = self._line, self._loop.world.context
        if line.is_cut or line.server.is_away:
            self._open.pop(request, None)
            request.fail("nobody is there")
            return
        value = request.happen(line.server)
        if line.strikes("duplicates"):
            self._loop.call_later(line.delay(), self._repeat, request, context=world)
        if request not in self._open:
            return  # its connection broke just now, with the fall of the server
        if line.strikes("lost replies"):
            self._loop.call_later(line.delay(), self._lose, request, context=world)
        else:
            self._loop.call_later(line.delay(), self._reply, request, value, context=world)

    def _reply(self, request: _Request, value: Any) -> None:
        self._open.pop(request, None)
        if not request.answer.done():
            self._line.server.answered(request.by, request.call, value)
        request.reply(value)

    def _lose(self, request: _Request) -> None:
        self._open.pop(request, None)
        request.fail("the reply was lost")

    def _arrives_late(self, request: _Request) -> None:
        later = self._line.dice.uniform(*_LATE)
        self._loop.call_later(later, self._repeat, request, context=self._loop.world.context)

    def _repeat(self, request: _Request) -> None:
        """Let a request happen that nobody waits for."""
        if not self._line.server.is_away:
            request.happen(self._line.server)


class _LinkJobs:
    """The jobs of a link: a cancel is written down as it is sent, whatever becomes of it."""

    def __init__(self, jobs: Jobs, on_cancel: Callable[[Sequence[str]], None]) -> None:
        self._jobs = jobs
        self._on_cancel = on_cancel

    def __getattr__(self, name: str) -> Any:
        return getattr(self._jobs, name)

    async def cancel(self, ids: Sequence[str], *, reason: str = "") -> list[Cancelled | None]:
        self._on_cancel(ids)
        return await self._jobs.cancel(ids, reason=reason)
