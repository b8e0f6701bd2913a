"""Opens the app on each event loop that serves requests, at the first request there.

A store belongs to one event loop. The service may not open the app itself, and its routes may run
on other loops: in a mounted sub-application, or in a test.
"""

from __future__ import annotations

import asyncio
from typing import Final

from tenure.app import Tenure
from tenure.app.lifecycle import Services, services_here
from tenure.errors import StoreUnavailable

__all__ = ["Lending"]

# After a failure the app is not opened again for this many seconds: a burst of requests would add
# to the load of a store in trouble. Clients get the same time as Retry-After.
_ERROR_KEPT: Final = 1.0


class Lending:
    """Opens an app lazily, once for each event loop.

    On a loop where the service has opened the app itself, that app is used. On other loops it opens
    a clone, which `close` closes.
    """

    def __init__(self, app: Tenure) -> None:
        self._app = app
        # Loops may run in several threads, so every access to these is one atomic operation.
        self._clones: dict[asyncio.AbstractEventLoop, Tenure] = {}
        self._openings: dict[asyncio.AbstractEventLoop, _Opening] = {}

    async def services(self) -> Services:
        """Return the open app of this loop. Raises StoreUnavailable if it cannot be opened.

        Requests that come while it opens wait for the same attempt and share its outcome.
        """
        if (services := services_here(self._app)) is not None:
            return services
        loop = asyncio.get_running_loop()
        self._leave_closed_loops()
        clone = self._clones.get(loop)
        if clone is not None and (services := services_here(clone)) is not None:
            return services
        opening = self._openings.get(loop)
        if opening is None or opening.is_over:
            opening = self._openings[loop] = _Opening(self._app.clone(), self._clones)
        return await opening.outcome()

    async def close(self) -> None:
        """Close the clone of this loop, also while it is being opened."""
        loop = asyncio.get_running_loop()
        opening = self._openings.pop(loop, None)
        if opening is not None:
            await opening.stop()
        clone = self._clones.pop(loop, None)
        if clone is not None:
            await clone.close()
        self._leave_closed_loops()

    def _leave_closed_loops(self) -> None:
        """Abandon the clones of closed loops, on which `close` can no longer run."""
        for loop in list(self._openings):
            if loop.is_closed():
                self._openings.pop(loop, None)
        for loop in list(self._clones):
            if loop.is_closed() and (clone := self._clones.pop(loop, None)) is not None:
                clone._store.abandon()  # noqa: SLF001 - of the same house


class _Opening:
    """One attempt to open an app, which several requests wait for."""

    def __init__(self, app: Tenure, opened: dict[asyncio.AbstractEventLoop, Tenure]) -> None:
        self._app = app
        self._opened = opened
        self._clock = app._store.clock  # noqa: SLF001 - of the same house
        self._error: Exception | None = None
        self._ended = 0.0
        # In its own task, so that a cancelled request does not cancel it for the others.
        self._task = asyncio.create_task(self._open())

    @property
    def is_over(self) -> bool:
        """Whether the next request opens again: the error is too old, or the app was closed."""
        if not self._task.done():
            return False
        return self._error is None or self._clock.boot() - self._ended >= _ERROR_KEPT

    async def outcome(self) -> Services:
        """Return the services of the opened app. Raises the error of a failed attempt."""
        if not self._task.done():
            await asyncio.wait((self._task,))
        if self._error is not None:
            # Without its traceback: each request that raises it would add its own lines.
            raise self._error.with_traceback(None)
        services = None if self._task.cancelled() else services_here(self._app)
        if services is None:
            msg = f"{self._app!r} was closed while it was being opened."
            raise StoreUnavailable(msg)
        return services

    async def stop(self) -> None:
        """Cancel the attempt, and return when it has ended."""
        self._task.cancel()
        await asyncio.wait((self._task,))

    async def _open(self) -> None:
        try:
            await self._app.open()
        except Exception as error:  # noqa: BLE001 - raised in each request that waits for it
            self._error, self._ended = error, self._clock.boot()
        else:
            # Stored here, not by the request that started this: that may be cancelled by now.
            self._opened[asyncio.get_running_loop()] = self._app
