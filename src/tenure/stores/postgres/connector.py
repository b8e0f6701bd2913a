"""Opens connections, independently of the cancellation of their callers."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Any

import asyncpg

from tenure.core.redaction import Secret
from tenure.stores.connect_backoff import ConnectBackoff

__all__ = ["Connector"]

# How long closing waits for pending connects.
_CLOSE_SECONDS = 1.0


class _Connection(asyncpg.Connection):  # type: ignore[misc]  # the driver has no types
    """A connection that a forked child can destroy without harm to its parent.

    asyncpg ends a connection that is destroyed while open. That removes its socket from the
    selector of the event loop, which a child shares with its parent: the parent would never see
    another reply. A child that exits normally destroys all objects.
    """

    __slots__ = ("_pid",)

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._pid = os.getpid()
        super().__init__(*arguments, **options)

    def __del__(self) -> None:
        if os.getpid() == self._pid:
            super().__del__()


class Connector:
    """Connects to one server.

    While the server does not answer, one attempt runs at a time, after a pause, and all callers
    that waited for it get its error.

    A cancelled caller does not cancel an attempt: asyncpg, cancelled at the instant of the network
    connection, leaves a future with an unretrieved error. The connection is closed once it is open.
    """

    def __init__(self, options: Secret[dict[str, Any]], random: Callable[[], float]) -> None:
        self._options = options
        self._tasks: set[asyncio.Task[asyncpg.Connection]] = set()
        self._reconnects = ConnectBackoff(random)
        self._turn = asyncio.Lock()
        self._error: BaseException | None = None

    async def dial(self) -> asyncpg.Connection:
        """Return a new connection. Raises the errors of asyncpg."""
        seen = self._reconnects.failures
        if seen:
            async with self._turn:
                if self._reconnects.failures > seen and self._error is not None:
                    raise self._error
                if self._reconnects.failures:
                    await self._reconnects.pause()
                    return await self._connect()
        return await self._connect()

    async def _connect(self) -> asyncpg.Connection:
        task = asyncio.create_task(asyncpg.connect(connection_class=_Connection, **self._options()))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            task.add_done_callback(_throw_away)
            raise
        self._error = task.exception()
        if self._error is not None:
            self._reconnects.failed()
        else:
            self._reconnects.succeeded()
        return task.result()

    async def close(self) -> None:
        """Wait a moment for connects without a caller, then drop them."""
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=_CLOSE_SECONDS)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)


def _throw_away(task: asyncio.Task[asyncpg.Connection]) -> None:
    if not task.cancelled() and task.exception() is None:
        task.result().terminate()
