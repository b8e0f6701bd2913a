"""Where the scenarios play: apps on a metered store, in virtual time and without races.

Four things make a count the same each time, also on a busy machine:

- Time is virtual. It moves only after the store has answered everything (`Stage.quiet`).
- Handlers end when the scenario lets them (`Stage.let_finish`), all in the same turn of the loop.
  So the batches of the runtime do not depend on how quickly the store answers.
- What the server would do by itself after a while, it does whenever the stage is quiet
  (`Meter.catch_up`).
- Every replica has a clock of its own. Two replicas that want the same act one after the other.

With a virtual clock the store is told the time. On Redis this saves a TIME in each script, and
requests to Redis and PostgreSQL have up to 16 more bytes than in production.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from types import SimpleNamespace
from typing import Any
from unittest import mock

from tenure import Tenure
from tenure.app import engine_of
from tenure.core.leases import Topic
from tenure.runtime import process_info as process
from tenure.stores.contract import Watch
from tenure.testing import Faults, FaultyStore, ManualClock
from tests.cost.meters import Meter
from tests.rig.wait import wait_until_async

__all__ = ["Costs", "Stage", "perform"]

Costs = dict[str, dict[str, float]]
"""What each unit of work costs, by its name and the measure."""

# Enough turns of the loop for a chain of callbacks to run out.
_TURNS = 50
# Not at a full second: so what the runtime does every few seconds does not meet ticks.
_START = 1_800_000_000_300_000


class Stage:
    """Apps on one metered store."""

    def __init__(self, meter: Meter, stack: AsyncExitStack) -> None:
        self._meter = meter
        self._stack = stack
        self._calls = _Calls()
        self._gate = asyncio.Event()
        self.started = 0
        self.costs: Costs = {}

    async def app(self, **settings: Any) -> Tenure:
        """Open one more app, with a clock of its own. Heartbeats come only after minutes."""
        clock = ManualClock(_START, seed=len(self._calls.stores))
        store = _Counted(self._meter.store(clock), self._calls, self._meter)
        return await self._stack.enter_async_context(
            Tenure(store, **{"replica_ttl": 600, "grace": 0, **settings})
        )

    async def worker(self, app: Tenure, **options: Any) -> None:
        """Run a worker until the end of the scenario."""
        await self._stack.enter_async_context(app.worker(**options))
        await self.quiet()

    async def handle(self) -> None:
        """What every handler does: begin, and end with the others."""
        self.started += 1
        await self._gate.wait()

    async def until_started(self, count: int) -> None:
        """Wait until so many handlers have begun, since the stage was set."""
        await self.quiet()  # which sends wake-ups
        await wait_until_async(lambda: self.started >= count, 20, f"{count} handlers began")
        await self.quiet()

    async def let_finish(self) -> None:
        """End all handlers that have begun, and wait until that is settled."""
        gate, self._gate = self._gate, asyncio.Event()
        gate.set()
        await self.quiet()

    async def quiet(self) -> None:
        """Return when the store has answered everything, and nothing follows from it."""
        await self._calm()
        while sum(self._meter.announce(store) for store in self._calls.stores):
            await self._calm()
        self._meter.catch_up()

    async def _calm(self) -> None:
        turns = 0
        while turns < _TURNS:
            at_rest = not self._calls.open and all(map(self._meter.is_at_rest, self._calls.stores))
            turns = turns + 1 if at_rest else 0
            await asyncio.sleep(0 if at_rest else 0.0002)

    async def advance(self, app: Tenure, seconds: float) -> None:
        """Let time pass for one app; whatever becomes due is done before it goes on."""
        clock: Any = engine_of(app).store.clock
        end = clock.boot() + seconds
        await self.quiet()
        while (due := min(clock._sleepers.values(), default=end)) < end:
            clock._move_to(due)
            await self.quiet()
        clock._move_to(end)
        await self.quiet()

    @asynccontextmanager
    async def measured(self, what: str, units: int) -> AsyncIterator[None]:
        """Add what is done inside to the costs, divided by the number of units."""
        await self.quiet()
        before = self._read()
        yield
        await self.quiet()
        after = self._read()
        cost = self.costs.setdefault(what, dict.fromkeys(self._meter.measures, 0.0))
        for measure in cost:
            cost[measure] += (after.get(measure, 0) - before.get(measure, 0)) / units

    def _read(self) -> dict[str, int]:
        return {"calls": sum(self._calls.calls.values()), **self._meter.read()}


class _Calls(Faults):
    """All calls of a stage, and the store objects that they went to."""

    def __init__(self) -> None:
        super().__init__()
        self.stores: list[Any] = []
        self.open = 0
        """How many have no answer yet."""


class _Counted(FaultyStore):
    """Counts the calls of the contract, and knows which are on the way."""

    faults: _Calls

    def __init__(self, store: Any, calls: _Calls, meter: Meter) -> None:
        super().__init__(store, calls)
        self._meter = meter

    def clone(self) -> "_Counted":
        return _Counted(self._store.clone(), self.faults, self._meter)

    async def open(self, migrate: Any = "auto") -> None:
        await super().open(migrate)
        self._meter.opened(self._store)
        self.faults.stores.append(self._store)

    @asynccontextmanager
    async def watch(self, *topics: Topic) -> AsyncIterator[Watch]:
        async with AsyncExitStack() as stack:
            watch = stack.enter_async_context(super().watch(*topics))
            yield await self._pass("watch", lambda: watch)

    async def _pass(self, call: str, send: Any) -> Any:
        self.faults.open += 1
        try:
            return await super()._pass(call, send)
        finally:
            self.faults.open -= 1


async def perform(meter: Meter, scenario: Any) -> Costs:
    """Play one scenario on an empty store, and return what it has measured."""
    meter.clear()
    async with AsyncExitStack() as stack:
        # Leases and workers carry the name of their host. Its length would count.
        named = SimpleNamespace(gethostname=lambda: "worker-1")
        stack.enter_context(mock.patch.object(process, "socket", named))
        stack.enter_context(meter.patched())
        stage = Stage(meter, stack)
        await scenario(stage)
        await stage.let_finish()
    return {
        what: {measure: round(value, 4) for measure, value in cost.items()}
        for what, cost in stage.costs.items()
    }
