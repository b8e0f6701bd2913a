"""Shared by the child programs: orders from the test, and the clock of all processes."""

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from tenure.core.clock import SystemClock

Orders = Callable[[], Awaitable[str]]

# The clock that leases are trusted by; all processes of a machine read the same one.
boot = SystemClock().boot


@asynccontextmanager
async def hearing() -> AsyncIterator[Orders]:
    """Give what returns the next line from the test, empty when it sends no more.

    It reads on the loop: a thread that sits in a read of stdin can be neither cancelled nor ended.
    """
    lines = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    pipe, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)

    async def hear() -> str:
        return (await lines.readline()).decode().rstrip("\n")

    try:
        yield hear
    finally:
        pipe.close()
