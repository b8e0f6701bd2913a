"""The only module that reads time, sleeps or draws random numbers, so that tests can replace it.

Three kinds of time, never mixed:

- *wall*: microseconds since 1970. Operators and time daemons may set it, so it orders nothing by
  itself. Fences and due times use it.
- *boot*: seconds on a clock that is never set and that runs while the machine is suspended. It
  decides whether a lease may still be trusted.
- *server*: the store's own clock. `for_server()` is None in production, so the store uses its
  clock. A virtual clock returns an instant, so that tests decide the time on real servers.
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
    """Time, sleep and randomness for the rest of Tenure."""

    @property
    def virtual(self) -> bool:
        """Whether time moves only when a test says so."""
        ...

    @property
    def boot_id(self) -> str:
        """The id of the boot clock. Instants of different boot clocks cannot be compared.

        It differs with each start of the machine, and in a container with a clock of its own.
        """
        ...

    def wall(self) -> int:
        """Microseconds since 1970 by this host's clock."""
        ...

    def boot(self) -> float:
        """Seconds that only grow, suspend included."""
        ...

    def for_server(self) -> int | None:
        """The instant to send to the store, or None to let it use its own clock."""
        ...

    def random(self) -> float:
        """A number from 0 up to 1."""
        ...

    def token(self) -> str:
        """128 random bits from a secure source, as 32 hexadecimal digits."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after this many seconds."""
        ...

    async def wait(self, event: asyncio.Event, timeout: float | None) -> bool:
        """Return True once the event is set, or False after `timeout` seconds."""
        ...


class BlockingClock(Clock, Protocol):
    """The same for code without an event loop."""

    def pause(self, seconds: float) -> None:
        """Block this thread for this many seconds."""
        ...


# Here Linux shows the clock offsets of a time namespace.
_OFFSETS = Path("/proc/self/timens_offsets")

# A system call for 16 random bytes takes as long as one for thousands, so tokens are drawn in bulk.
# A forked child must not use the tokens of its parent.
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

    # CLOCK_MONOTONIC stops while a laptop sleeps or a VM is suspended; a lease keeps running out.
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
    """Return the id of this start of the machine, which only Linux has; else an empty string."""
    try:
        name = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:  # pragma: no cover - other systems than Linux
        return ""
    offset = _clock_offset()
    return f"{name}+{offset}" if offset else name


def _clock_offset() -> str:
    """Return the offset of the boot clock in a time namespace; "" if there is none.

    The file has a line `boottime <seconds> <nanoseconds>`.
    """
    try:
        lines = _OFFSETS.read_text(encoding="ascii").splitlines()
    except OSError:  # an older kernel, or one without time namespaces
        return ""
    offsets = (line.split()[1:] for line in lines if line.startswith("boottime"))
    return next((".".join(parts) for parts in offsets if parts != ["0", "0"]), "")
