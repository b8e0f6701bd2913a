"""Repeats calls that must be answered, however long the store is away.

`until_available` is for calls of users, `Retrier` for chores in the background, whose outages are
events.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import count
from typing import TypeVar

from tenure.core.clock import Clock
from tenure.core.store_policy import retry_after_error
from tenure.errors import StoreUnavailable, TenureError
from tenure.observe.events import Events
from tenure.observe.store import StoreFailing, StoreRestored

__all__ = ["Retrier", "until_available"]

log = logging.getLogger("tenure")

T = TypeVar("T")


async def until_available(
    clock: Clock,
    send: Callable[[], Awaitable[T]],
    on_failure: Callable[[int, StoreUnavailable], None],
) -> T:
    """Repeat a call until it raises no StoreUnavailable, with longer and longer pauses.

    `on_failure` gets the number of failures in a row and the error. It raises to give up.
    """
    for failures in count(1):
        try:
            return await send()
        except StoreUnavailable as error:
            on_failure(failures, error)
            await clock.sleep(retry_after_error(failures, clock.random()))
    raise AssertionError


@dataclass(eq=False, slots=True)
class _Outage:
    """The callers that wait for one kind of call, which has failed."""

    waiting: int = 0
    failures: int = 0
    has_answer: bool = False


class Retrier:
    """Repeats calls until the store answers, and reports once per outage and kind of call.

    All calls of a store may be repeated after an error; see `stores.contract`.
    """

    def __init__(self, clock: Clock, events: Events) -> None:
        self._clock = clock
        self._events = events
        self._outages: dict[str, _Outage] = {}

    async def until_answered(
        self, call: str, send: Callable[[], Awaitable[T]], give_up: asyncio.Event | None = None
    ) -> T:
        """Return the answer. `call` is the name of the call in events.

        Once `give_up` is set it tries a last time, and then raises the error.
        """
        failures, has_answer = 0, False
        try:
            while True:
                try:
                    answer = await send()
                except Exception as error:
                    if give_up is not None and give_up.is_set():
                        raise
                    failures += 1
                    self._failed(call, error, failures)
                    pause = retry_after_error(failures, self._clock.random())
                    await self._clock.wait(give_up or asyncio.Event(), pause)
                else:
                    has_answer = True
                    return answer
        finally:
            if failures:
                self._ended(call, has_answer=has_answer)

    def _failed(self, call: str, error: Exception, failures: int) -> None:
        """Count a failure. The first caller that waits for this kind of call reports it."""
        outage = self._outages.setdefault(call, _Outage())
        outage.failures += 1
        if failures > 1:
            return
        outage.waiting += 1
        if outage.waiting == 1:
            self._events.emit(StoreFailing(call, str(error)))
        if not isinstance(error, TenureError):
            log.error("%s failed in an unexpected way", call, exc_info=error)

    def _ended(self, call: str, *, has_answer: bool) -> None:
        """Remove a caller that no longer waits. The last one reports that the store answers."""
        outage = self._outages[call]
        outage.waiting -= 1
        outage.has_answer |= has_answer
        if not outage.waiting:
            del self._outages[call]
            if outage.has_answer:
                self._events.emit(StoreRestored(call, outage.failures))
