"""The clocks of a simulation: one for each machine, and one for the store.

All of them read the virtual time of the loop. Faults step them, and machines' clocks also start
with an offset and drift.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

__all__ = ["EPOCH", "MachineClock", "StoreClock"]

EPOCH = 1_800_000_000_000_000
"""The wall time at which a simulation begins, in microseconds."""


class StoreClock:
    """The store's clock, which decides when leases expire and jobs are due."""

    virtual = True
    boot_id = "simulated"

    def __init__(self, time: Callable[[], float]) -> None:
        self._time = time
        self._stepped = 0

    def wall(self) -> int:
        return EPOCH + self._stepped + int(self._time() * 1e6)

    def boot(self) -> float:
        return self._time()

    def for_server(self) -> int | None:
        return self.wall()

    def random(self) -> float:
        raise AssertionError("a store draws no random numbers")

    def token(self) -> str:
        raise AssertionError("a store makes no ids")

    def time_of(self, instant: int) -> float:
        """Return the time of the simulation at which the wall clock shows an instant."""
        return (instant - EPOCH - self._stepped + 0.1) / 1e6

    def step(self, seconds: float) -> None:
        """Set the clock forward or back. No virtual time passes."""
        self._stepped += int(seconds * 1e6)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def wait(self, event: asyncio.Event, timeout: float | None) -> bool:
        del event, timeout
        raise AssertionError("a store never waits")


class MachineClock(StoreClock):
    """The clock of a machine: it starts with an offset, and runs a little too fast or too slow."""

    def __init__(self, time: Callable[[], float], *, seed: str, offset: float, rate: float) -> None:
        super().__init__(time)
        self._rng = random.Random(seed)
        self._rate = rate
        self.step(offset)

    def wall(self) -> int:
        return EPOCH + self._stepped + int(self._time() * self._rate * 1e6)

    def boot(self) -> float:
        # As if the machine had been up for a while: instants before the simulation stay positive.
        return 1000.0 + self._time() * self._rate

    def random(self) -> float:
        return self._rng.random()

    def token(self) -> str:
        return f"{self._rng.getrandbits(128):032x}"

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / self._rate)

    async def wait(self, event: asyncio.Event, timeout: float | None) -> bool:
        if timeout is None or event.is_set():
            return await event.wait()
        try:
            async with asyncio.timeout(timeout / self._rate):
                return await event.wait()
        except TimeoutError:
            return event.is_set()
