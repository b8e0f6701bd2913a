"""The app on whichever event loop a request comes in: opened when it is first needed there."""

from __future__ import annotations

import asyncio
from typing import Final

from tenure.app import Tenure, engine_of
from tenure.app.engine import Services
from tenure.errors import StoreUnavailable

__all__ = ["Lending"]

# For so long what could not be opened is not tried again: a burst of requests would only add to
# what ails the store. Clients are told to come back after as much.
_ERROR_KEPT: Final = 1.0


class Lending:
    """Opens an app lazily, once for each event loop.

    A service that opens the app itself lends that one. Others - a mounted sub-application, a test
    with a loop of its own - get a clone, which `close` gives back.
    """

    def __init__(self, app: Tenure) -> None:
        self._app = app
        # Several loops may run at once, in threads: what is done to these takes one step each.
        self._clones: dict[asyncio.AbstractEventLoop, Tenure] = {}
        self._openings: dict[asyncio.AbstractEventLoop, _Opening] = {}

    async def services(self) -> Services:
        """Return what is open on this loop. Raises StoreUnavailable if it cannot be opened.

        Whoever asks meanwhile waits for the same attempt, and shares what comes of it.
        """
        if (services := engine_of(self._app).services_here()) is not None:
            return services
        loop = asyncio.get_running_loop()
        self._leave_closed_loops()
        clone = self._clones.get(loop)
        if clone is not None and (services := engine_of(clone).services_here()) is not None:
            return services
        opening = self._openings.get(loop)
        if opening is None or opening.is_over:
            opening = self._openings[loop] = _Opening(self._app.clone(), self._clones)
        return await opening.outcome()

    async def close(self) -> None:
        """Close what was opened on this loop, or is being opened."""
        loop = asyncio.get_running_loop()
        opening = self._openings.pop(loop, None)
        if opening is not None:
            await opening.stop()
        clone = self._clones.pop(loop, None)
        if clone is not None:
            await clone.close()
        self._leave_closed_loops()

    def _leave_closed_loops(self) -> None:
        """Give back what was opened on loops that are closed, where nobody can await its end."""
        for loop in list(self._openings):
            if loop.is_closed():
                self._openings.pop(loop, None)
        for loop in list(self._clones):
            if loop.is_closed() and (clone := self._clones.pop(loop, None)) is not None:
                engine_of(clone).store.abandon()


class _Opening:
    """One attempt to open an app, which several requests wait for."""

    def __init__(self, app: Tenure, opened: dict[asyncio.AbstractEventLoop, Tenure]) -> None:
        self._app = app
        self._opened = opened
        self._clock = engine_of(app).store.clock
        self._error: Exception | None = None
        self._ended = 0.0
        # A task of its own: a request that is cancelled takes none of the others with it.
        self._task = asyncio.create_task(self._open())

    @property
    def is_over(self) -> bool:
        """Whether the next one has to try again: its error is too old, or it was closed since."""
        if not self._task.done():
            return False
        return self._error is None or self._clock.boot() - self._ended >= _ERROR_KEPT

    async def outcome(self) -> Services:
        """Return what was opened; raise what went wrong."""
        if not self._task.done():
            await asyncio.wait((self._task,))
        if self._error is not None:
            # As new: each request that raises it would add its own lines to it.
            raise self._error.with_traceback(None)
        services = None if self._task.cancelled() else engine_of(self._app).services_here()
        if services is None:
            msg = f"{self._app!r} was closed while it was being opened."
            raise StoreUnavailable(msg)
        return services

    async def stop(self) -> None:
        """Give up, and return when that is done."""
        self._task.cancel()
        await asyncio.wait((self._task,))

    async def _open(self) -> None:
        try:
            await self._app.open()
        except Exception as error:  # noqa: BLE001 - for those who wait, each of whom raises it
            self._error, self._ended = error, self._clock.boot()
        else:
            # Here, not by who asked for it: that one may be gone by now.
            self._opened[asyncio.get_running_loop()] = self._app
