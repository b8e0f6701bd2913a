"""What is open while work runs: the user's lifespan, once for all workers of an app in a process.

The first worker enters the lifespan and the last one leaves it. The timers of an app tick in one
worker of a process at most.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any

from tenure.errors import ConfigError

__all__ = ["WorkScope"]


class WorkScope:
    """Counts the workers of an app in this process, and opens the lifespan for them."""

    def __init__(self, lifespan: Callable[[], AbstractAsyncContextManager[Any]] | None) -> None:
        self._lifespan = lifespan
        self._entered = AsyncExitStack()
        self._changing = asyncio.Lock()
        self._is_entered = False
        self._workers = 0
        self._tickers = 0
        self.has_fixed_plans = False
        """Whether a worker has taken the declared timers over: it would not see a later one."""
        self.state: Any = None
        """What the lifespan has yielded."""

    @asynccontextmanager
    async def enter(self, *, ticks: bool, has_timers: bool) -> AsyncIterator[None]:
        """Open what a worker needs. Raises ConfigError if the timers run here already."""
        if ticks and has_timers and self._tickers:
            msg = (
                "the timers of this app run already in this process; run them once, and make "
                "further workers with app.worker(timers=False)."
            )
            raise ConfigError(msg)
        async with self._enter_lifespan():
            self._tickers += ticks
            try:
                yield
            finally:
                self._tickers -= ticks
                self.has_fixed_plans = self._tickers > 0

    @asynccontextmanager
    async def _enter_lifespan(self) -> AsyncIterator[None]:
        self._workers += 1
        try:
            async with self._changing:
                if not self._is_entered and self._lifespan is not None:
                    self.state = await self._entered.enter_async_context(self._lifespan())
                    self._is_entered = True
            yield
        finally:
            self._workers -= 1
            async with self._changing:  # a worker that begins now finds it open, or opens it anew
                if self._workers == 0 and self._is_entered:
                    self.state, self._is_entered = None, False
                    await self._entered.aclose()
