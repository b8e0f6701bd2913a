"""A clock for tests that moves only when the test moves it."""

from __future__ import annotations

import asyncio
import random

from tenure.core.durations import micros

__all__ = ["ManualClock"]

_TURNS = 50
_IDLE_TURNS = 4


class ManualClock:
    """Time for tests: `advance` lets it pass, `step` moves the wall clock like an operator would.

    Stores that get it use its instants instead of the server's clock, so the end of a lease can be
    tested on a real server without waiting for it.
    """

    virtual = True
    boot_id = "manual"

    def __init__(self, wall: int = 1_800_000_000_000_000, *, seed: int = 0) -> None:
        self._boot = 1000.0
        # Added to the time since boot, so that many small steps do not add up their rounding.
        self._offset = wall - micros(self._boot)
        self._random = random.Random(seed)
        self._sleepers: dict[asyncio.Event, float] = {}

    def wall(self) -> int:
        """Return the wall clock in microseconds since 1970."""
        return micros(self._boot) + self._offset

    def boot(self) -> float:
        """Return the boot clock in seconds, which never goes back."""
        return self._boot

    def for_server(self) -> int | None:
        return self.wall()

    def random(self) -> float:
        return self._random.random()

    def token(self) -> str:
        return f"{self._random.getrandbits(128):032x}"

    def step(self, seconds: float) -> None:
        """Set the wall clock forward or back; no time passes."""
        self._offset += micros(seconds)

    def shift(self, seconds: float) -> None:
        """Let time pass without running any task, as after a pause of the process."""
        self._boot += seconds

    async def advance(self, seconds: float) -> None:
        """Let time pass, and run each sleeping task at its instant."""
        end = self._boot + seconds
        await _let_others_run()
        while (due := min(self._sleepers.values(), default=end)) < end:
            self._move_to(due)
            await _let_others_run()
        self._move_to(end)
        await _let_others_run()

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)  # lets others run, as a real clock does
        else:
            await self.wait(asyncio.Event(), seconds)

    async def wait(self, event: asyncio.Event, timeout: float | None) -> bool:
        if timeout is None or event.is_set():
            return await event.wait()
        alarm = asyncio.Event()
        self._sleepers[alarm] = self._boot + timeout
        waits = [asyncio.ensure_future(wait.wait()) for wait in (event, alarm)]
        try:
            if timeout > 0:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            return event.is_set()
        finally:
            self._sleepers.pop(alarm, None)
            for wait in waits:
                wait.cancel()

    def _move_to(self, boot: float) -> None:
        self._boot = max(self._boot, boot)
        for alarm, due in list(self._sleepers.items()):
            if due <= self._boot:
                del self._sleepers[alarm]
                alarm.set()


async def _let_others_run() -> None:
    """Give every ready task several turns, enough for a chain of wake-ups to run out.

    Most chains are short. A loop that shows what is ready gets few more turns once nothing is:
    threads and sockets, which may have something by then, are why it gets any.
    """
    ready = getattr(asyncio.get_running_loop(), "_ready", None)
    idle = 0
    for _ in range(_TURNS):
        await asyncio.sleep(0)
        idle = 0 if ready is None or ready else idle + 1
        if idle == _IDLE_TURNS:
            break
