"""A replica whose store calls a test can disturb."""

from collections.abc import Awaitable, Callable
from typing import Any

from tenure.core.clock import Clock
from tenure.core.schedules.registration import Registered
from tenure.runtime.timers.scheduling import Scheduling
from tenure.stores.contract import Store
from tenure.testing import FaultyStore
from tests.contract.schedule_calls import registration

__all__ = ["Meddled", "plant_by"]


class HastyClock:
    """Fails on any sleep: a replica sleeps only after the store has refused it several times."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    async def sleep(self, seconds: float) -> None:
        msg = f"asked in vain, and pauses for {seconds:.3f} s"
        raise AssertionError(msg)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._clock, name)


class Meddled(FaultyStore):
    """Runs an action right before a call."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.clock = HastyClock(store.clock)
        self._happens: dict[str, Callable[[], Awaitable[object]]] = {}

    def before(self, call: str, happens: Callable[[], Awaitable[object]]) -> None:
        """Run the action before the next such call."""
        self._happens[call] = happens

    async def _pass(self, call: str, send: Callable[[], Awaitable[Any]]) -> Any:
        if happens := self._happens.pop(call, None):
            await happens()
        return await super()._pass(call, send)


async def plant_by(scheduling: Scheduling, name: str, *former: str, **details: Any) -> Registered:
    """Register a schedule from this replica, as the successor of these names."""
    (registered,) = await scheduling.register([registration(name, renamed_from=former, **details)])
    return registered
