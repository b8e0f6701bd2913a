"""The connections from processes to the store, over a network that delays, loses and repeats.

A request that was sent arrives even if its sender is cancelled, paused or killed meanwhile.
Requests of one connection arrive in the order in which they were sent. Only requests that were cut
off with their connection may arrive later.
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

__all__ = ["CALL_TIMEOUT", "StoreConnection", "StoreNetwork"]

T = TypeVar("T")

CALL_TIMEOUT = 5.0
"""A driver gives up on a call after so long; the request may still arrive."""

_USUAL = (0.0002, 0.002)
_LONG = (0.01, 0.4)
_LONG_IF_MILD = (0.01, 0.05)
_LATE = (0.1, 4.0)


class StoreNetwork:
    """The network between one machine and the store. It outlives the machine's processes."""

    def __init__(
        self, server: Server, rng: random.Random, plan: Plan, injected: Counter[str]
    ) -> None:
        self.server = server
        self.injected = injected
        """How often each fault was injected."""
        self.rng = rng
        self.call_faults = plan.call_faults
        self._long = _LONG_IF_MILD if plan.is_mild else _LONG
        self.hangs = 0.0 if plan.is_mild else 0.1
        """How often a request to a store that is down gets no answer at all, until its time-out."""
        self.is_cut = False
        self.connections: list[StoreConnection] = []

    def injects(self, what: str) -> bool:
        """Decide whether a fault strikes this call."""
        chance = self.call_faults.get(what)
        if chance is None or self.rng.random() >= chance:
            return False
        self.injected[what] += 1
        return True

    def delay(self) -> float:
        span = self._long if self.injects("delays") else _USUAL
        return self.rng.uniform(*span) + self.server.slowness * self.rng.random()

    def restore(self) -> None:
        self.is_cut = False

    def disconnect_all(self) -> None:
        for link in self.connections:
            link.disconnect()


class _Request:
    """One call of the store that has no answer yet."""

    __slots__ = ("answer", "by", "call", "send")

    def __init__(
        self, by: str, call: str, send: Callable[[], Awaitable[Any]], answer: asyncio.Future[Any]
    ) -> None:
        self.by = by
        self.call = call
        self.send = send
        self.answer = answer

    def execute(self, server: Server) -> Any:
        """Execute the call on the store, within this step: the memory store never waits."""
        server.recorder.caller = self.by
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


class StoreConnection(FaultyStore):
    """A store object of one process, which has one connection to the server."""

    def __init__(
        self, network: StoreNetwork, lane: Lane, clock: MachineClock, loop: VirtualLoop
    ) -> None:
        super().__init__(network.server)
        self.clock = clock
        self._network = network
        self._lane = lane
        self._loop = loop
        self._watchers = Watchers(clock)
        self._queue: deque[_Request] = deque()
        self._open: dict[_Request, None] = {}
        self._last_arrival = 0.0
        self.jobs = cast("Jobs", _ConnectionJobs(self.jobs, self._record_cancel))
        network.connections.append(self)

    def _record_cancel(self, ids: Sequence[str]) -> None:
        """Record that the process cancels jobs, unless the process is dead."""
        if not self._lane.is_dead:
            self._network.server.recorder.record_for(self._lane.name, "sent cancel", ids=list(ids))

    def clone(self) -> Self:
        return type(self)(self._network, self._lane, cast("MachineClock", self.clock), self._loop)

    async def close(self) -> None:
        if self in self._network.connections:
            self._network.connections.remove(self)

    def watch(self, *topics: Topic) -> AbstractAsyncContextManager[Watch]:
        return self._watchers.watch(*topics)

    def deliver_wake_up(self, topic: Topic) -> None:
        """Send a wake-up to the process, unless it is lost on the way."""
        if self._watchers.is_watched(topic) and not self._network.injects("lost wake-ups"):
            self._loop.call_later(
                self._network.delay(), self._watchers.wake, topic, context=self._lane.context
            )

    def disconnect(self) -> None:
        """Fail all open requests. Those that have not arrived may arrive late, or never."""
        for request in list(self._open):
            request.fail("the connection broke")
        self._open.clear()
        while self._queue:
            request = self._queue.popleft()
            if self._network.injects("late requests"):
                self._arrives_late(request)

    async def _pass(self, call: str, send: Callable[[], Awaitable[T]]) -> T:
        if self._lane.is_dead:
            raise StoreUnavailable("this process is dead")
        answer: asyncio.Future[T] = self._loop.create_future()
        self._send(_Request(self._lane.name, call, send, answer))
        return await answer

    def _send(self, request: _Request) -> None:
        network, loop = self._network, self._loop
        world = loop.world.context
        if network.is_cut or network.server.is_down or network.injects("lost requests"):
            # The connection is refused at once, or there is no answer until the time-out.
            wait = CALL_TIMEOUT if network.rng.random() < network.hangs else network.delay()
            loop.call_later(wait, request.fail, "the store cannot be reached", context=world)
            return
        if network.injects("late requests"):
            self._arrives_late(request)
            loop.call_later(network.delay(), request.fail, "it was cut off", context=world)
            return
        self._queue.append(request)
        self._open[request] = None
        arrival = loop.time() + network.delay()
        if network.injects("edges"):
            edge = network.server.next_edge(arrival)
            network.injected["edges met"] += edge > arrival
            arrival = edge
        self._last_arrival = max(self._last_arrival, arrival)
        loop.call_at(self._last_arrival, self._arrive, context=world)
        if self._last_arrival > loop.time() + CALL_TIMEOUT:
            loop.call_later(CALL_TIMEOUT, request.fail, "no answer in time", context=world)

    def _arrive(self) -> None:
        """Execute the next request in the queue, unless the connection has broken since."""
        if not self._queue:
            return
        request = self._queue.popleft()
        network, world = self._network, self._loop.world.context
        if network.is_cut or network.server.is_down:
            self._open.pop(request, None)
            request.fail("the store cannot be reached")
            return
        value = request.execute(network.server)
        if network.injects("duplicates"):
            self._loop.call_later(network.delay(), self._repeat, request, context=world)
        if request not in self._open:
            return  # the call made the server fail over, which has broken the connection
        if network.injects("lost replies"):
            self._loop.call_later(network.delay(), self._lose, request, context=world)
        else:
            self._loop.call_later(network.delay(), self._reply, request, value, context=world)

    def _reply(self, request: _Request, value: Any) -> None:
        self._open.pop(request, None)
        if not request.answer.done():
            self._network.server.answered(request.by, request.call, value)
        request.reply(value)

    def _lose(self, request: _Request) -> None:
        self._open.pop(request, None)
        request.fail("the reply was lost")

    def _arrives_late(self, request: _Request) -> None:
        later = self._network.rng.uniform(*_LATE)
        self._loop.call_later(later, self._repeat, request, context=self._loop.world.context)

    def _repeat(self, request: _Request) -> None:
        """Execute a request whose caller no longer waits for the answer."""
        if not self._network.server.is_down:
            request.execute(self._network.server)


class _ConnectionJobs:
    """The jobs part of a connection. It records each cancel as it is sent, even if it is lost."""

    def __init__(self, jobs: Jobs, on_cancel: Callable[[Sequence[str]], None]) -> None:
        self._jobs = jobs
        self._on_cancel = on_cancel

    def __getattr__(self, name: str) -> Any:
        return getattr(self._jobs, name)

    async def cancel(self, ids: Sequence[str], *, reason: str = "") -> list[Cancelled | None]:
        self._on_cancel(ids)
        return await self._jobs.cancel(ids, reason=reason)
