"""The one place that reads time, sleeps or draws random numbers.

Three kinds of time, never mixed:

- *wall*: microseconds since 1970. It may be stepped by people and daemons, so it orders nothing
  by itself; fences and due times use it.
- *boot*: seconds on a clock that never steps and that goes on while the machine is suspended.
  Every "may I still trust this?" is measured on it.
- *server*: the store's own clock. `for_server()` is None in production, which asks the store to
  use its clock; a virtual clock answers an instant, so that tests decide the time on real servers.
"""

from __future__ import annotations

import asyncio
import os
import random
import secrets
import time
from pathlib import Path
from typing import Protocol

__all__ = ["BlockingClock", "Clock", "SystemClock"]


class Clock(Protocol):
    """Time, sleep and randomness as the rest of Tenure sees them."""

    @property
    def virtual(self) -> bool:
        """Whether time moves only when a test says so."""
        ...

    @property
    def boot_id(self) -> str:
        """Name of the boot clock: boot instants under two names do not compare.

        Another one with each start of the machine, and in a container with a clock of its own.
        """
        ...

    def wall(self) -> int:
        """Microseconds since 1970 by this host's clock."""
        ...

    def boot(self) -> float:
        """Seconds that only grow, suspend included."""
        ...

    def for_server(self) -> int | None:
        """The instant to tell the store, or None to let it use its own clock."""
        ...

    def random(self) -> float:
        """A number from 0 up to 1."""
        ...

    def token(self) -> str:
        """128 random bits nobody can guess, as 32 hexadecimal digits."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after that much time."""
        ...

    async def wait(self, event: asyncio.Event, timeout: float | None) -> bool:
        """Return True once the event is set, or False after `timeout` seconds."""
        ...


class BlockingClock(Clock, Protocol):
    """The same for code without an event loop."""

    def pause(self, seconds: float) -> None:
        """Block this thread for that much time."""
        ...


# Linux says here how far a time namespace moves the clocks.
_OFFSETS = Path("/proc/self/timens_offsets")

# Asking the system for 16 bytes takes as long as asking for thousands. A forked child must not
# hand out what its parent has drawn.
_DRAWN_AT_ONCE = 256
_tokens: list[str] = []
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_tokens.clear)


class SystemClock:
    """The clocks of this machine."""

    virtual = False

    def __init__(self) -> None:
        self.boot_id = _boot_id()

    def wall(self) -> int:
        return time.time_ns() // 1000

    # CLOCK_MONOTONIC stands still while a laptop sleeps or a VM is suspended; a lease does not.
    if hasattr(time, "CLOCK_BOOTTIME"):

        def boot(self) -> float:
            return time.clock_gettime(time.CLOCK_BOOTTIME)

    else:  # pragma: no cover - other systems than Linux

        def boot(self) -> float:
            return time.monotonic()

    def for_server(self) -> int | None:
        return None

    def random(self) -> float:
        return random.random()

    def token(self) -> str:
        while True:
            try:
                return _tokens.pop()
            except IndexError:
                drawn = secrets.token_hex(16 * _DRAWN_AT_ONCE)
                _tokens.extend(drawn[at : at + 32] for at in range(0, len(drawn), 32))

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def pause(self, seconds: float) -> None:
        time.sleep(seconds)

    async def wait(self, event: asyncio.Event, timeout: float | None) -> bool:
        if event.is_set():
            return True
        try:
            async with asyncio.timeout(timeout):
                await event.wait()
        except TimeoutError:
            return event.is_set()
        return True


def _boot_id() -> str:
    """Linux names each start of the machine; elsewhere no name is known."""
    try:
        name = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:  # pragma: no cover - other systems than Linux
        return ""
    offset = _clock_offset()
    return f"{name}+{offset}" if offset else name


def _clock_offset() -> str:
    """Return by how much a time namespace moves the boot clock of this process, "" if by nothing.

    The file has a line `boottime <seconds> <nanoseconds>`.
    """
    try:
        lines = _OFFSETS.read_text(encoding="ascii").splitlines()
    except OSError:  # an older kernel, or one without time namespaces
        return ""
    offsets = (line.split()[1:] for line in lines if line.startswith("boottime"))
    return next((".".join(parts) for parts in offsets if parts != ["0", "0"]), "")
