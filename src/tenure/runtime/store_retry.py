"""Repeats calls that must be answered, however long the store is away.

`until_available` is for calls of users, `Retrier` for chores in the background, whose outages are
events.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from itertools import count
from typing import TypeVar

from tenure.core.clock import Clock
from tenure.core.store_policy import retry_after_error
from tenure.errors import StoreUnavailable, TenureError
from tenure.observe.events import Events
from tenure.observe.store import StoreFailing, StoreRestored

__all__ = ["Outages", "Retrier", "until_available"]

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
    """The callers that wait for the store, by kind of call, and the kind that failed first."""

    call: str
    waiting: Counter[str] = field(default_factory=Counter)
    failures: int = 0
    has_answer: bool = False


class Outages:
    """The outages of one store, as the retriers on all threads of an app see them together.

    Calls that fail belong to one outage until the store answers any call. So one call that fails by
    itself, such as a settlement of a job that a transaction keeps locked, hides no outage.
    """

    def __init__(self) -> None:
        self._open: list[_Outage] = []
        self._silent: _Outage | None = None
        """The newest outage, as long as the store has answered nothing since."""
        self._changing = threading.Lock()

    def enter(self, call: str) -> tuple[_Outage, bool]:
        """Add a caller whose call has failed. Returns its outage, and whether that is a new one."""
        with self._changing:
            same = (outage for outage in self._open if outage.waiting[call])
            outage = next(same, None) or self._silent
            if is_new := outage is None:
                outage = self._silent = _Outage(call)
                self._open.append(outage)
            outage.waiting[call] += 1
            outage.failures += 1
            return outage, is_new

    def fail_again(self, outage: _Outage) -> None:
        with self._changing:
            outage.failures += 1

    def answer(self) -> None:
        """Record that the store has answered a call."""
        if self._silent is not None:
            with self._changing:
                self._silent = None

    def leave(self, outage: _Outage, call: str, *, has_answer: bool) -> bool:
        """Remove a caller that no longer waits. Returns whether all calls are answered again."""
        with self._changing:
            outage.waiting[call] -= 1
            outage.has_answer |= has_answer
            if outage.waiting.total():
                return False
            self._open.remove(outage)
            if self._silent is outage:
                self._silent = None
            return outage.has_answer


class Retrier:
    """Repeats calls until the store answers. Retriers that share `outages` report each outage once.

    All calls of a store may be repeated after an error; see `stores.contract`.
    """

    def __init__(self, clock: Clock, events: Events, outages: Outages | None = None) -> None:
        self._clock = clock
        self._events = events
        self._outages = outages or Outages()

    async def until_answered(
        self, call: str, send: Callable[[], Awaitable[T]], give_up: asyncio.Event | None = None
    ) -> T:
        """Return the answer. `call` is the name of the call in events.

        Once `give_up` is set it tries a last time, and then raises the error.
        """
        failures, has_answer = 0, False
        outage: _Outage | None = None
        try:
            while True:
                try:
                    answer = await send()
                except Exception as error:
                    if give_up is not None and give_up.is_set():
                        raise
                    failures += 1
                    if outage is None:
                        outage = self._failed(call, error)
                    else:
                        self._outages.fail_again(outage)
                    pause = retry_after_error(failures, self._clock.random())
                    await self._clock.wait(give_up or asyncio.Event(), pause)
                else:
                    has_answer = True
                    self._outages.answer()
                    return answer
        finally:
            if outage is not None and self._outages.leave(outage, call, has_answer=has_answer):
                self._events.emit(StoreRestored(outage.call, outage.failures))

    def _failed(self, call: str, error: Exception) -> _Outage:
        """Take part in the outage. The first caller in it reports it."""
        outage, is_new = self._outages.enter(call)
        if is_new:
            self._events.emit(StoreFailing(call, str(error)))
        if not isinstance(error, TenureError):
            log.error("%s failed in an unexpected way", call, exc_info=error)
        return outage
