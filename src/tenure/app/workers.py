"""The worker calls of an app: who runs its jobs, and what is open while they run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any, TypeAlias

from tenure.app.lifecycle import Lifecycle
from tenure.core import durations
from tenure.core.durations import Duration
from tenure.core.shares import check_queues
from tenure.errors import ConfigError
from tenure.runtime.lifeline import Lifeline
from tenure.runtime.process import about_this_process
from tenure.runtime.processes import check_processes
from tenure.runtime.ticker import TIMERS_QUEUE
from tenure.runtime.words import HandOver
from tenure.runtime.worker import Worker, WorkerOptions
from tenure.workers import EmbeddedWorker, run_until_stopped

__all__ = ["Queues", "WorkerCalls"]

Queues: TypeAlias = Sequence[str] | Mapping[str, int] | None
"""The queues of a worker: in strict order, with weights, or those of the known tasks in turn."""

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
        grace: Duration | None = None,
    ) -> EmbeddedWorker:
        """Return a worker for this process, to be entered: `async with app, app.worker(): ...`.

        Args:
            queues: the queues to serve. By default those of the known tasks, which get the same
                number of starts while they have jobs. {"urgent": 3, "default": 1}: starts in
                proportion to the weights. ["urgent", "default"]: strictly in this order, so a
                later queue waits for as long as an earlier one has jobs.
            concurrency: how many jobs run at a time.
            grace: how long leaving lets running jobs finish; the app's setting by default.
        """
        return self._worker(queues=queues, concurrency=concurrency, grace=grace)

    def _worker(
        self,
        *,
        queues: Queues,
        concurrency: int,
        grace: Duration | None,
        lifeline: Lifeline | None = None,
        resumed: HandOver | None = None,
    ) -> EmbeddedWorker:
        if not 1 <= concurrency <= _CONCURRENCY_MAX:
            msg = f"concurrency must be from 1 to {_CONCURRENCY_MAX:,}, not {concurrency!r}."
            raise ConfigError(msg)
        given = None if queues is None else check_queues(queues)
        patience = self._settings.grace if grace is None else durations.seconds(grace, "grace")

        def make() -> Worker:
            for module in self._settings.imports:
                import_module(module)
            check_processes(self._handlers.values())
            services = self._services()
            names, weights = self._known_queues() if given is None else given
            self._are_plans_taken = True
            return Worker(
                services.store,
                services.host,
                self._settings,
                self._events,
                handlers=self._handlers,
                around=self._around,
                options=WorkerOptions(
                    queues=tuple(name for name in names if name != TIMERS_QUEUE),
                    weights=weights,
                    runs_timers=bool(self._plans),
                    concurrency=concurrency,
                    grace=patience,
                ),
                meta=about_this_process(),
                plans=tuple(self._plans.values()),
                lifeline=lifeline,
                resumed=resumed,
            )

        return EmbeddedWorker(make, self._entering_work)

    async def run_worker(
        self,
        *,
        queues: Queues = None,
        concurrency: int = 100,
        grace: Duration | None = None,
    ) -> None:
        """Work until SIGTERM or SIGINT, then let running jobs finish and leave. See `worker`.

        Opens the app if it is not open.
        """
        worker = self.worker(queues=queues, concurrency=concurrency, grace=grace)
        if self.is_open:
            await run_until_stopped(worker)
        else:
            async with self:
                await run_until_stopped(worker)

    def _known_queues(self) -> tuple[tuple[str, ...], tuple[int, ...]]:
        """Return the queues of all tasks, with the same weight each."""
        names = tuple(self._queues) or ("default",)
        return names, (1,) * len(names)

    @asynccontextmanager
    async def _entering_work(self) -> AsyncIterator[None]:
        """Open what work needs; timers tick once per process."""
        if self._plans and self._is_ticking:
            msg = "the timers of this app run already in this process; run them once."
            raise ConfigError(msg)
        async with self._enter_lifespan():
            self._is_ticking = True
            try:
                yield
            finally:
                self._is_ticking = self._are_plans_taken = self._workers > 1

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
