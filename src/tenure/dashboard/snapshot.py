"""Shared looks at the store: all viewers share one look of each kind per second.

Nothing is asked unless somebody looks. Requests that come while a look is under way wait for it, so
the cost for the store depends on what is looked at and not on how many do. A look that takes long
is shared for longer. Errors are shared, too: a store in trouble gets no more calls than a healthy
one.
"""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Sequence
from contextvars import ContextVar
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from tenure.app import Tenure, engine_of
from tenure.app.engine import Engine, Services
from tenure.core.clock import Clock
from tenure.core.jobs.records import JobRecord, Page, QueueCounts
from tenure.core.jobs.replicas import ReplicaRecord
from tenure.core.jobs.run_stats import RunStats, memory_in, merge_stats
from tenure.core.leases import Grade, Lease
from tenure.errors import ConfigError, StoreError, StoreUnavailable
from tenure.http.server.app_per_loop import Lending
from tenure.timers import EndedRuns, Timers, TimerViews

__all__ = ["KEEPS_CLOSED", "Looks", "Snapshot", "without_contents"]

T = TypeVar("T")

KEEPS_CLOSED: Final = ContextVar("KEEPS_CLOSED", default=False)
"""Whether looks from here must not open an app that its service has closed."""

_SHARED_FOR: Final = 1.0
_SHARED_FOR_MOST: Final = 10.0
_LOOKING: Final = 0.05
"""The part of the time in which looks of one kind are under way at most, with slow ones too."""
_KEPT: Final = 64
"""How many looks are kept: each filter of a list and each job is a look of its own."""
_PATIENCE: Final = 10.0
_STATS_KEPT: Final = 5.0

LEASES_MAX: Final = 1000
TIMERS_MAX: Final = 500
LINES: Final = 20
PREVIEWS: Final = 5


class _Look:
    def __init__(self, task: asyncio.Task[Any], began: float) -> None:
        self.task = task
        self.began = began
        self.at = math.inf  # until it has ended

    @property
    def shared_for(self) -> float:
        """For how long it is shared in any case, because it took so long; 0.0 if it was fast."""
        rest = (self.at - self.began) / _LOOKING
        return 0.0 if rest < _SHARED_FOR else min(rest, _SHARED_FOR_MOST)


class Looks:
    """Runs look-ups once for all that want them within a second."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._looks: OrderedDict[Hashable, _Look] = OrderedDict()
        self._changed_at = -math.inf

    async def share(
        self, key: Hashable, ask: Callable[[], Awaitable[T]], keep: float = _SHARED_FOR
    ) -> T:
        """Return what `ask` returns, or returned for this key within the last `keep` seconds."""
        loop = asyncio.get_running_loop()
        look = self._looks.get(key)
        if look is None or look.task.get_loop() is not loop or not self._is_fresh(look, keep):
            look = self._begin(key, ask, loop)
        # A request that is cancelled must not cancel the look of the others.
        answer: T = await asyncio.shield(look.task)
        return answer

    def forget(self) -> None:
        """Let the next request look anew."""
        self._looks.clear()

    def change(self) -> float:
        """Note a change of the store: what was looked at before is shared only if it is slow.

        Returns after how many seconds no request gets an answer from before any more.
        """
        self._changed_at = now = self._clock.boot()
        done = [look for look in self._looks.values() if look.task.done()]
        return max((look.at + look.shared_for - now for look in done), default=0.0)

    def _is_fresh(self, look: _Look, keep: float) -> bool:
        if not look.task.done():
            return True
        has_failed = look.task.cancelled() or look.task.exception() is not None
        if has_failed:
            keep = _SHARED_FOR
        elif look.began < self._changed_at and keep <= _SHARED_FOR:
            keep = look.shared_for
        else:
            keep = max(keep, look.shared_for)
        return self._clock.boot() - look.at < keep

    def _begin(
        self, key: Hashable, ask: Callable[[], Awaitable[T]], loop: asyncio.AbstractEventLoop
    ) -> _Look:
        look = _Look(loop.create_task(self._run(ask)), self._clock.boot())

        def end(task: asyncio.Task[Any]) -> None:
            look.at = self._clock.boot()
            if not task.cancelled():
                task.exception()  # all who wanted it may have gone

        look.task.add_done_callback(end)
        self._looks[key] = look
        self._looks.move_to_end(key)
        while len(self._looks) > _KEPT:
            self._looks.popitem(last=False)
        return look

    async def _run(self, ask: Callable[[], Awaitable[T]]) -> T:
        try:
            async with asyncio.timeout(_PATIENCE):
                return await ask()
        except TimeoutError:
            msg = f"the store did not answer within {_PATIENCE:g} s"
            raise StoreUnavailable(msg) from None


class Snapshot:
    """How the store of an app stands, from shared looks. Opens the app where it is not open."""

    def __init__(self, app: Tenure) -> None:
        self._app = app
        self._lending = Lending(app)
        self.looks = Looks(self.engine.store.clock)
        self._runs = EndedRuns(self.engine.store.clock)
        self._latest_runs = EndedRuns(self.engine.store.clock)
        self.grade: Grade | None = self.engine.store.traits.grade if self.engine.is_ready else None
        """The grade of the store, once it was reached."""

    @property
    def engine(self) -> Engine:
        return engine_of(self._app)

    @property
    def clock(self) -> Clock:
        return self.engine.store.clock

    @property
    def is_app_open(self) -> bool:
        """Whether the service has opened the app on this event loop."""
        return self.engine.services_here() is not None

    async def services(self) -> Services:
        """Return the open app. Raises StoreUnavailable if it cannot be opened."""
        if KEEPS_CLOSED.get() and not self.is_app_open:
            msg = "this service has closed its app"
            raise StoreUnavailable(msg)
        try:
            services = await self._lending.services()
        except ConfigError as error:  # the store has to be migrated, for example: no viewer's fault
            raise StoreError(str(error)) from error
        self.grade = services.store.traits.grade
        return services

    async def close(self) -> None:
        """Close what was opened for the dashboard alone."""
        await self._lending.close()

    def forget(self) -> None:
        """Let the next requests look anew: after an action its viewer wants to see the effect."""
        self.looks.forget()
        self._runs.forget()
        self._latest_runs.forget()

    async def timers_service(self) -> Timers:
        """Return the calls about timers."""
        services = await self.services()
        return Timers(self.engine.registry.plans, lambda: (services.store, services.jobs))

    async def now(self) -> int:
        """Return the store's time."""

        async def ask() -> tuple[int, float]:
            services = await self.services()
            return (await services.store.ping()).now, self.clock.boot()

        now, at = await self.looks.share("now", ask)
        return now + round((self.clock.boot() - at) * 1e6)

    async def queues(self) -> list[QueueCounts]:
        """Return the counts of all queues."""

        async def ask() -> list[QueueCounts]:
            return await (await self.services()).store.jobs.counts()

        return await self.looks.share("queues", ask)

    async def replicas(self) -> list[ReplicaRecord]:
        """Return the replicas, in the order in which they joined."""

        async def ask() -> list[ReplicaRecord]:
            return await (await self.services()).store.jobs.replicas()

        return await self.looks.share("replicas", ask)

    async def run_stats(self) -> list[RunStats]:
        """Return what attempts did in the last hour, by minute, task and queue."""

        async def ask() -> list[RunStats]:
            bodies = await self._stats()
            # Seconds of work for hundreds of busy workers, on the loop of a service.
            return await asyncio.to_thread(merge_stats, bodies, await self.now())

        return await self.looks.share("stats", ask, keep=_STATS_KEPT)

    async def memory(self) -> dict[str, int]:
        """Return the memory of replicas as they left it last, by the beginnings of their ids."""

        async def ask() -> dict[str, int]:
            return await asyncio.to_thread(memory_in, await self._stats())

        return await self.looks.share("memory", ask, keep=_STATS_KEPT)

    async def _stats(self) -> list[bytes]:
        """Return what workers have left about their attempts. They do so about every 15 s."""

        async def ask() -> list[bytes]:
            return await (await self.services()).store.jobs.stats()

        return await self.looks.share("bodies", ask, keep=_STATS_KEPT)

    async def leases(self, prefix: str = "") -> list[Lease]:
        """Return the holders and waiters of locks whose names start with `prefix`."""

        async def ask() -> list[Lease]:
            return await (await self.services()).store.leases.find(prefix, limit=LEASES_MAX)

        return await self.looks.share(("leases", prefix), ask)

    async def timers(self) -> TimerViews:
        """Return all timers, each with its newest history."""
        return await self._views("timers", LINES, PREVIEWS, self._runs)

    async def timers_now(self) -> TimerViews:
        """Return all timers, each with its last outcome: a fraction of what `timers` costs."""
        return await self._views("timers now", 1, 1, self._latest_runs)

    async def _views(self, key: str, lines: int, previews: int, ended: EndedRuns) -> TimerViews:
        async def ask() -> TimerViews:
            service = await self.timers_service()
            return await service.views(
                limit=TIMERS_MAX, lines=lines, previews=previews, ended=ended
            )

        return await self.looks.share(key, ask)

    async def find(self, **filters: Any) -> Page:
        """Return a page of jobs as they are now, without their contents."""
        page = await (await self.services()).store.jobs.find(**filters)
        return replace(page, jobs=[without_contents(job) for job in page.jobs])

    async def jobs(self, **filters: Any) -> Page:
        """Return a page of jobs without their contents."""
        key = ("jobs", *sorted(filters.items()))
        return await self.looks.share(key, lambda: self.find(**filters))

    async def records(self, ids: Sequence[str]) -> list[JobRecord | None]:
        """Return jobs by id, as they are now and with their contents."""
        return await (await self.services()).store.jobs.get(ids)


def without_contents(job: JobRecord) -> JobRecord:
    """Return a record that may be kept for a second: a megabyte of arguments may not."""
    return replace(job, payload=b"", checkpoint=None, result=None)
