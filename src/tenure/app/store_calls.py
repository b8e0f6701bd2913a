"""Reports each call of an app's store as an event, for metrics and traces.

`Engine` puts `with_reports` in front of its store if the app has a subscriber when it opens.
Without one, calls go to the store directly and cost nothing more. The host's connection is a clone
of the same store, so that renewals and heartbeats are reported as well. Not reported are calls in a
transaction of the caller (`within`) and wake-ups (`watch`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

from tenure.core.clock import Clock
from tenure.core.leases import Pong
from tenure.observe.events import Events
from tenure.observe.store import StoreCalled
from tenure.stores.contract import Store

__all__ = ["with_reports"]

T = TypeVar("T")


def with_reports(store: Store, events: Events) -> Store:
    """Return a store that passes all calls on and emits a StoreCalled for each."""
    return cast("Store", _ReportingStore(store, events))


class _ReportingStore:
    """Passes everything on, and reports `ping` and the calls of the three parts."""

    def __init__(self, store: Store, events: Events) -> None:
        self._store = store
        self._events = events
        self._reporter = reporter = _Reporter(store.clock, events)
        self.leases = _ReportingPart(store.leases, reporter)
        self.jobs = _ReportingPart(store.jobs, reporter)
        self.schedules = _ReportingPart(store.schedules, reporter)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def clone(self) -> _ReportingStore:
        return _ReportingStore(self._store.clone(), self._events)

    async def ping(self) -> Pong:
        return await self._reporter.reported("ping", self._store.ping)


class _ReportingPart:
    """The leases, jobs or schedules of a store."""

    def __init__(self, part: object, reporter: _Reporter) -> None:
        self._part = part
        self._reporter = reporter

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        method = getattr(self._part, name)
        reported = self._reporter.reported

        def call(*arguments: Any, **options: Any) -> Awaitable[Any]:
            return reported(name, method, *arguments, **options)

        self.__dict__[name] = call  # the next look-up finds it without this method
        return call


class _Reporter:
    def __init__(self, clock: Clock, events: Events) -> None:
        self._clock = clock
        self._events = events

    async def reported(
        self, name: str, method: Callable[..., Awaitable[T]], *arguments: Any, **options: Any
    ) -> T:
        """Make a call and report it. One that is cancelled was neither answered nor refused."""
        began = self._clock.boot()
        try:
            answer = await method(*arguments, **options)
        except Exception as error:
            self._report(name, began, type(error).__name__)
            raise
        self._report(name, began, "")
        return answer

    def _report(self, name: str, began: float, error: str) -> None:
        seconds = max(0.0, self._clock.boot() - began)
        self._events.emit(StoreCalled(call=name, seconds=seconds, error=error))
