"""The worker calls of an app: who runs its jobs, and what is open while they run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from importlib import import_module
from typing import Any, Literal, TypeAlias

from tenure.app.lifecycle import Lifecycle
from tenure.core import durations
from tenure.core.durations import Duration
from tenure.core.jobs.shares import check_queues
from tenure.core.worker_info import write_serving
from tenure.errors import ConfigError
from tenure.jobs.worker import EmbeddedWorker, StoreToCome, run_until_stopped
from tenure.runtime.attempts.processes.functions import check_processes
from tenure.runtime.process_info import about_this_process
from tenure.runtime.supervised.link import SupervisorLink
from tenure.runtime.supervised.messages import HandOver
from tenure.runtime.work.worker import Worker, WorkerOptions
from tenure.stores.lease_only import check_keeps_jobs

__all__ = ["Queues", "Timers", "WorkerCalls"]

Queues: TypeAlias = Sequence[str] | Mapping[str, int] | None
"""The queues of a worker: in strict order, with weights, or those of the known tasks in turn."""

Timers: TypeAlias = bool | Literal["only"]
"""Whether a worker runs timers beside its jobs, not at all, or nothing else."""

_CONCURRENCY_MAX = 10_000


class WorkerCalls(Lifecycle):
    """The workers that run jobs and timers."""

    state: Any = None
    """What `lifespan` has yielded, in a process that runs work."""

    def worker(
        self,
        *,
        queues: Queues = None,
        concurrency: int = 100,
        timers: Timers = True,
        timer_concurrency: int = 20,
        grace: Duration | None = None,
        burst: bool = False,
    ) -> EmbeddedWorker:
        """Return a worker for this process, to be entered: `async with app, app.worker(): ...`.

        Args:
            queues: the queues to serve. By default those of the known tasks, which get the same
                number of starts while they have jobs. {"urgent": 3, "default": 1}: starts in
                proportion to the weights. ["urgent", "default"]: strictly in this order, so a
                later queue waits for as long as an earlier one has jobs.
            concurrency: how many jobs run at a time.
            timers: whether timers and schedules tick here; "only": they do, and no jobs are taken.
            timer_concurrency: how many runs of timers there are at a time, beside the jobs. A tick
                for which there is no slot is left to other workers, or waits.
            grace: how long leaving lets running jobs finish; the app's setting by default.
            burst: stop by itself as soon as no job is due and none runs here; `ended()` waits for
                that. Jobs that are delayed, or wait for their next try, stay in the store. Timers
                do not tick.
        """
        return self._worker(
            queues=queues,
            concurrency=concurrency,
            timers=timers,
            timer_concurrency=timer_concurrency,
            grace=grace,
            burst=burst,
        )

    def _worker(
        self,
        *,
        queues: Queues,
        concurrency: int,
        grace: Duration | None,
        timers: Timers = True,
        timer_concurrency: int = 20,
        burst: bool = False,
        link: SupervisorLink | None = None,
        resumed: HandOver | None = None,
    ) -> EmbeddedWorker:
        check_keeps_jobs(self._store)
        _check_number("concurrency", concurrency)
        _check_number("timer_concurrency", timer_concurrency)
        _check_timers(timers, queues)
        if burst:
            if timers == "only":
                msg = 'a worker with burst=True runs no timers: leave timers="only" out.'
                raise ConfigError(msg)
            timers = False
        given = None if queues is None else check_queues(queues)
        if timers == "only":
            given = (), ()
        patience = self._settings.grace if grace is None else durations.seconds(grace, "grace")

        def prepare() -> None:
            for module in self._settings.imports:
                import_module(module)
            check_processes(self._handlers.values())

        def make() -> Worker:
            prepare()
            services = self._services()
            names, weights = self._known_queues() if given is None else given
            plans = tuple(self._plans.values()) if timers else ()
            idle = () if timers else tuple(self._plans)
            if resumed is not None:  # it runs that one job, and nothing else
                names, weights, plans, idle = (), (), (), ()
            self._are_plans_taken = self._are_plans_taken or bool(timers)
            serving = write_serving(
                queues=names,
                slots=concurrency,
                timers=[plan.name for plan in plans if plan.definition.kind == "timer"],
                timer_slots=timer_concurrency,
                idle_timers=idle,
            )
            return Worker(
                services.store,
                services.host,
                self._work_settings,
                self._events,
                handlers=self._handlers,
                around=self._around,
                options=WorkerOptions(
                    queues=names,
                    weights=weights,
                    concurrency=concurrency,
                    timer_concurrency=timer_concurrency,
                    grace=patience,
                    burst=burst,
                ),
                meta={**about_this_process(), **serving},
                plans=plans,
                link=link,
                resumed=resumed,
                insert=services.jobs.insert,
            )

        store = StoreToCome(lambda: self.is_open and not self.is_ready, self.ready, prepare)
        return EmbeddedWorker(make, partial(self._entering_work, ticks=bool(timers)), store)

    async def run_worker(
        self,
        *,
        queues: Queues = None,
        concurrency: int = 100,
        timers: Timers = True,
        timer_concurrency: int = 20,
        grace: Duration | None = None,
        burst: bool = False,
    ) -> dict[str, int]:
        """Work until SIGTERM or SIGINT, then let running jobs finish and leave. See `worker`.

        Opens the app if it is not open. If the store is down then, it waits for it, unless the
        app has connect="eager"; with burst=True it raises StoreUnavailable in any case. Returns
        how many attempts have ended, by their outcome.
        """
        worker = self.worker(
            queues=queues,
            concurrency=concurrency,
            timers=timers,
            timer_concurrency=timer_concurrency,
            grace=grace,
            burst=burst,
        )
        await self._run_until_stopped(worker, is_lazy=self._connect != "eager" and not burst)
        return worker.ends

    async def _run_until_stopped(self, worker: EmbeddedWorker, *, is_lazy: bool) -> None:
        if self.is_open:
            await run_until_stopped(worker)
            return
        await self._begin(is_lazy=is_lazy)
        try:
            await run_until_stopped(worker)
        finally:
            await self.close()

    def _known_queues(self) -> tuple[tuple[str, ...], tuple[int, ...]]:
        """Return the queues of all tasks, with the same weight each."""
        names = tuple(self._queues) or ("default",)
        return names, (1,) * len(names)

    @asynccontextmanager
    async def _entering_work(self, *, ticks: bool) -> AsyncIterator[None]:
        """Open what work needs; timers tick once per process."""
        if ticks and self._plans and self._tickers:
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
                self._are_plans_taken = self._tickers > 0

    @asynccontextmanager
    async def _enter_lifespan(self) -> AsyncIterator[None]:
        """Open what the user's work needs, once for all workers of this app."""
        self._workers += 1
        try:
            async with self._entering:
                if not self._is_entered and self._lifespan is not None:
                    self.state = await self._at_work.enter_async_context(self._lifespan(self))
                    self._is_entered = True
            yield
        finally:
            self._workers -= 1
            async with self._entering:  # a worker that begins now finds it open, or opens it anew
                if self._workers == 0 and self._is_entered:
                    self.state, self._is_entered = None, False
                    await self._at_work.aclose()


def _check_number(what: str, number: int) -> None:
    if type(number) is not int or not 1 <= number <= _CONCURRENCY_MAX:
        msg = f"{what} must be from 1 to {_CONCURRENCY_MAX:,}, not {number!r}."
        raise ConfigError(msg)


def _check_timers(timers: object, queues: Queues) -> None:
    if timers not in (True, False, "only"):
        msg = f'timers must be True, False or "only", not {timers!r}.'
        raise ConfigError(msg)
    if timers == "only" and queues is not None:
        msg = f'a worker with timers="only" takes no jobs: give it no queues, not {queues!r}.'
        raise ConfigError(msg)
