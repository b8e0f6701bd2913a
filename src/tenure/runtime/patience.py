"""Patience: calls that must be answered, however long the store is away."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tenure.core.clock import Clock
from tenure.core.policy import retry_after_error
from tenure.errors import TenureError
from tenure.observe.events import Events, StoreFailing, StoreRestored

__all__ = ["Patience"]

log = logging.getLogger("tenure")

T = TypeVar("T")


class Patience:
    """Repeats calls until the store answers, and tells once per outage.

    Only for calls that may be repeated, which are all calls of a store.
    """

    def __init__(self, clock: Clock, events: Events) -> None:
        self._clock = clock
        self._events = events

    async def until_answered(
        self, call: str, send: Callable[[], Awaitable[T]], give_up: asyncio.Event | None = None
    ) -> T:
        """Return the answer. `call` names it in the events.

        Once `give_up` is set it is tried for a last time; then the error is raised.
        """
        failures = 0
        while True:
            try:
                answer = await send()
            except Exception as error:
                if give_up is not None and give_up.is_set():
                    raise
                failures += 1
                if failures == 1:
                    self._events.emit(StoreFailing(call, str(error)))
                    if not isinstance(error, TenureError):
                        log.exception("%s failed in an unexpected way", call)
                pause = retry_after_error(failures, self._clock.random())
                await self._clock.wait(give_up or asyncio.Event(), pause)
            else:
                if failures:
                    self._events.emit(StoreRestored(call, failures))
                return answer
