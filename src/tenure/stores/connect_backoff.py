"""Backs off from a server that cannot be reached.

Many calls may want a connection at the same time, and each caller repeats its own. Without a
common pause, three workers made 500 attempts within 20 s. The connections of Redis and PostgreSQL
use it before each attempt.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tenure.core.store_policy import retry_after_error

__all__ = ["ConnectBackoff"]


class ConnectBackoff:
    """Spaces the attempts of one store object: pauses that double, up to a second, with jitter.

    It uses real time also under a virtual clock, because the network does.
    """

    def __init__(self, random: Callable[[], float]) -> None:
        self._random = random
        self._next = 0.0
        self.failures = 0
        """How many attempts have failed in a row."""

    async def pause(self) -> None:
        """Return when the next attempt may be made."""
        left = self._next - asyncio.get_running_loop().time()
        if self.failures and left > 0:
            await asyncio.sleep(left)  # noqa: TID251 - the network knows real time only

    def failed(self) -> None:
        """Record a failed attempt."""
        self.failures += 1
        pause = retry_after_error(self.failures, self._random())
        self._next = asyncio.get_running_loop().time() + pause

    def succeeded(self) -> None:
        """Record a connection: the next failure starts with the shortest pause."""
        self.failures = 0
