"""Attempts to open an app whose store is down, in the background, until one succeeds.

`Engine` starts this with connect="lazy" after a first attempt has raised StoreUnavailable. The
services of the app exist only after a success, so no call ever meets a store whose format was not
looked at.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from tenure.core.clock import Clock
from tenure.core.store_policy import retry_after_error
from tenure.errors import StoreError, StoreUnavailable, TenureError
from tenure.observe.events import Events
from tenure.observe.store import StoreFailing, StoreRestored
from tenure.runtime.background import start_soon

__all__ = ["OpenAttempts"]

log = logging.getLogger("tenure")


class OpenAttempts:
    """Tries to open an app until that succeeds, on the event loop that made this."""

    def __init__(
        self,
        open_: Callable[[], Awaitable[None]],
        clock: Clock,
        events: Events,
        error: StoreUnavailable,
    ) -> None:
        self._open = open_
        self._clock = clock
        self._events = events
        self._error: TenureError = error
        self._failures = 1
        self._decided = asyncio.Event()
        """Set when the store was reached, or has answered with an error of another kind."""
        self._task = start_soon(self._run())

    def error(self) -> TenureError:
        """Return why the app is not open yet, to be raised."""
        if isinstance(self._error, StoreUnavailable):
            return StoreUnavailable(f"The app has not reached its store so far: {self._error}")
        # As new: each caller that raises it would add its own lines to it.
        return self._error.with_traceback(None)

    async def ended(self) -> None:
        """Wait until the app is open. Raises what needs manual repair, such as ConfigError."""
        await self._decided.wait()
        if not self._task.done():
            raise self.error()

    async def stop(self) -> None:
        """Give up, and return when that is done."""
        self._task.cancel()
        await asyncio.wait([self._task])
        self._decided.set()

    async def _run(self) -> None:
        self._events.emit(StoreFailing("open", str(self._error)))
        while True:
            await self._clock.sleep(retry_after_error(self._failures, self._clock.random()))
            if await self._is_opened():
                break
            self._failures += 1
        self._events.emit(StoreRestored("open", self._failures))
        self._decided.set()

    async def _is_opened(self) -> bool:
        try:
            await self._open()
        except StoreUnavailable as error:
            self._error = error
            self._decided.clear()
            return False
        except Exception as error:
            if str(error) != str(self._error):
                is_expected = isinstance(error, TenureError)
                log.error("the app cannot be opened: %s", error, exc_info=not is_expected)  # noqa: TRY400 - a ConfigError needs no traceback
            self._error = error if isinstance(error, TenureError) else StoreError(str(error))
            self._decided.set()
            return False
        return True
