"""Shared by the rigs whose store objects live on one event loop."""

import asyncio
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Self

from tenure.core.clock import Clock
from tenure.stores.connect import connect
from tenure.stores.contract import Store
from tenure.testing import ManualClock
from tests.interleavings.orders import Op
from tests.interleavings.programs import STORES
from tests.interleavings.readings import Call
from tests.interleavings.scheduler import Point, ViolationError

# The call that the running code belongs to.
current: ContextVar[Op | None] = ContextVar("current", default=None)

_TICKS = 8  # of the loop: enough for a chain of wake-ups to run out
_MOMENT = 0.0002
_PATIENCE = 20.0


class LoopRig(ABC):
    """Several store objects on one event loop, which runs only between points of the schedule."""

    def __init__(self, url: str) -> None:
        self.clock = ManualClock()
        self.counts: Counter[str] = Counter()
        self.open_gate = True
        self.held: list[Point] = []
        self.loop = asyncio.new_event_loop()
        self.stores: list[Any] = [self.store(url, self.clock) for _ in range(STORES)]
        self.witness = self.stores[0]
        """Store objects that are not held up at the moment."""
        self.tasks: dict[Op, asyncio.Task[None]] = {}
        self._finished: list[Op] = []
        self._number = 0
        self.seed = 0

    def store(self, url: str, clock: Clock) -> Store:
        """Return one more store object."""
        return connect(url, namespace="none", clock=clock)

    @contextmanager
    def running(self) -> Iterator[Self]:
        """Open all stores, and close them."""
        try:
            self.do(self.open())
            yield self
        finally:
            self.do(self.close())
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.close()

    async def open(self) -> None:
        """Open the stores."""
        for store in self.stores:
            await store.open()

    async def close(self) -> None:
        """Close the stores."""
        self.open_gate = True
        for store in self.stores:
            await store.close()

    def begin(self, seed: int) -> None:
        self._number += 1
        self.seed = seed
        self.enter(f"s{self._number}")
        self.open_gate = False

    @abstractmethod
    def enter(self, namespace: str) -> None:
        """Let all stores use another namespace."""

    def start(self, op: Op) -> None:
        self.do(self._start(op))

    async def _start(self, op: Op) -> None:
        token = current.set(op)
        self.tasks[op] = asyncio.create_task(self._make(op))
        current.reset(token)
        await self.settle()

    async def _make(self, op: Op) -> None:
        try:
            op.answer = await op.call.made_on(self.stores[op.store])
        except BaseException as error:  # noqa: BLE001 - the schedule compares the error
            op.error = error
        del self.tasks[op]
        self._finished.append(op)

    def parked(self) -> list[Point]:
        return sorted(self.held, key=lambda point: point.number)

    def cancel(self, op: Op) -> None:
        if op in self.tasks:
            self.tasks[op].cancel()
        for point in self.held:
            if point.op is op:
                point.op = None
        self.do(self.settle())

    def finished(self) -> list[Op]:
        ops, self._finished = self._finished, []
        return ops

    def ask(self, call: Call) -> object:
        self.open_gate = True
        answer: object = self.do(call.made_on(self.witness))
        self.open_gate = False
        return answer

    def do(self, work: Any) -> Any:
        """Run the loop until a coroutine is done."""
        return self.loop.run_until_complete(work)

    def first_of(self, store: int) -> Op | None:
        """Return the oldest call on a store object."""
        return next((op for op in self.tasks if op.store == store), None)

    async def settle(self) -> None:
        """Wait until everything is held up or has ended."""
        for _ in range(round(_PATIENCE / _MOMENT)):
            for _ in range(_TICKS):
                await asyncio.sleep(0)
            if await self.is_quiet():
                return
            await asyncio.sleep(_MOMENT)
        raise ViolationError(f"something neither waits nor ends: {self.tasks}")

    @abstractmethod
    async def is_quiet(self) -> bool:
        """Return whether nothing happens any more by itself."""
