"""The worker calls of an app: what `Tenure.worker` and `run_worker` do.

The supervisor's child processes and the command line make their workers here as well.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from importlib import import_module
from typing import TypeAlias

from msgspec import Struct

from tenure.app.engine import Engine
from tenure.app.options import Timers, WorkerOptions
from tenure.app.registry import Registry
from tenure.core import durations
from tenure.core.jobs.queue_shares import check_queues
from tenure.core.leases import Meta
from tenure.core.release import VERSION
from tenure.core.worker_info import write_serving
from tenure.errors import ConfigError
from tenure.jobs.worker import EmbeddedWorker, StoreToCome, run_until_stopped
from tenure.runtime.attempts.processes.functions import check_processes
from tenure.runtime.process_info import about_this_process, own_memory
from tenure.runtime.supervised.link import SupervisorLink
from tenure.runtime.supervised.messages import HandOver
from tenure.runtime.work.worker import Worker
from tenure.runtime.work.worker import WorkerOptions as RuntimeOptions
from tenure.stores.lease_only import check_keeps_jobs

__all__ = ["Workers"]

Names: TypeAlias = tuple[str, ...]
Weights: TypeAlias = tuple[int, ...]

_CONCURRENCY_MAX = 10_000


class Workers:
    """Makes the workers of an app, and runs them."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def worker(
        self,
        options: WorkerOptions,
        *,
        link: SupervisorLink | None = None,
        resumed: HandOver | None = None,
    ) -> EmbeddedWorker:
        """Return a worker for this process, checked.

        Args:
            options: every one of them.
            link: the line to the supervisor of this process.
            resumed: the jobs that this worker runs, instead of claiming any.
        """
        engine = self._engine
        check_keeps_jobs(engine.store)
        _check(options)
        grace = options["grace"]
        recipe = _Recipe(
            engine=engine,
            options=options,
            timers=options["timers"] and not options["burst"],
            queues=_checked_queues(options),
            grace=engine.settings.grace if grace is None else durations.seconds(grace, "grace"),
            link=link,
            resumed=resumed,
        )

        def enter() -> AbstractAsyncContextManager[None]:
            has_timers = bool(engine.registry.plans)
            return engine.work.enter(ticks=bool(recipe.timers), has_timers=has_timers)

        return EmbeddedWorker(
            recipe.make,
            enter,
            StoreToCome(
                is_awaited=lambda: engine.is_open and not engine.is_ready,
                ready=engine.ready,
                prepare=recipe.prepare,
            ),
        )

    async def run(self, options: WorkerOptions) -> dict[str, int]:
        """Run a worker until SIGTERM or SIGINT; return how many attempts ended, by outcome."""
        worker = self.worker(options)
        is_lazy = self._engine.config.connect != "eager" and not options["burst"]
        await self.run_until_stopped(worker, is_lazy=is_lazy)
        return worker.ends

    async def run_until_stopped(self, worker: EmbeddedWorker, *, is_lazy: bool) -> None:
        """Run a worker until a signal; open the engine for it if it is not open."""
        if self._engine.is_open:
            await run_until_stopped(worker)
            return
        await self._engine.open(is_lazy=is_lazy)
        try:
            await run_until_stopped(worker)
        finally:
            await self._engine.close()


class _Recipe(Struct, frozen=True, kw_only=True):
    """How to make a worker.

    A store that is down when the app is opened delays the worker, and its modules may declare tasks
    and timers until it is made.
    """

    engine: Engine
    options: WorkerOptions
    timers: Timers
    """Whether timers tick; not if the worker stops by itself."""
    queues: tuple[Names, Weights] | None
    """The queues of the options, checked; None: those of the declared tasks."""
    grace: float
    link: SupervisorLink | None
    resumed: HandOver | None

    def prepare(self) -> None:
        """Raise what is wrong with the worker whatever the store is."""
        for module in self.engine.settings.imports:
            import_module(module)
        check_processes(self.engine.registry.handlers.values())

    def make(self) -> Worker:
        """Return the worker, for an open app."""
        self.prepare()
        engine, options = self.engine, self.options
        services, registry = engine.services(), engine.registry
        names, weights = _queues_of(registry) if self.queues is None else self.queues
        plans = tuple(registry.plans.values()) if self.timers else ()
        idle = () if self.timers else tuple(registry.plans)
        if self.resumed is not None:  # it runs those jobs, and nothing else
            names, weights, plans, idle = (), (), (), ()
        engine.work.has_fixed_plans |= bool(self.timers)
        serving = write_serving(
            queues=names,
            slots=options["concurrency"],
            timers=[plan.name for plan in plans if plan.definition.kind == "timer"],
            timer_slots=options["timer_concurrency"],
            idle_timers=idle,
        )
        return Worker(
            services.store,
            services.host,
            engine.work_settings,
            engine.events,
            handlers=registry.handlers,
            around=registry.middleware,
            options=RuntimeOptions(
                queues=names,
                weights=weights,
                concurrency=options["concurrency"],
                timer_concurrency=options["timer_concurrency"],
                grace=self.grace,
                burst=options["burst"],
            ),
            meta={**_about_this_worker(), **serving},
            plans=plans,
            link=self.link,
            resumed=self.resumed,
            insert=services.jobs.insert,
        )


def _about_this_worker() -> Meta:
    """Return what its record says about this process, for operators."""
    memory = own_memory()
    # Later its counts of attempts bring the memory.
    return {
        **about_this_process(),
        "version": VERSION,
        **({"memory": str(memory)} if memory else {}),
    }


def _queues_of(registry: Registry) -> tuple[Names, Weights]:
    """Return the queues of all tasks, with the same weight each."""
    names = tuple(registry.queues) or ("default",)
    return names, (1,) * len(names)


def _checked_queues(options: WorkerOptions) -> tuple[Names, Weights] | None:
    if options["timers"] == "only":
        return (), ()
    return None if options["queues"] is None else check_queues(options["queues"])


def _check(options: WorkerOptions) -> None:
    """Raise ConfigError for options that cannot work, alone or together."""
    for name in ("concurrency", "timer_concurrency"):
        number = options[name]
        if type(number) is not int or not 1 <= number <= _CONCURRENCY_MAX:
            msg = f"{name} must be from 1 to {_CONCURRENCY_MAX:,}, not {number!r}."
            raise ConfigError(msg)
    timers, queues = options["timers"], options["queues"]
    if timers not in (True, False, "only"):
        msg = f'timers must be True, False or "only", not {timers!r}.'
        raise ConfigError(msg)
    if timers == "only" and queues is not None:
        msg = f'a worker with timers="only" takes no jobs: give it no queues, not {queues!r}.'
        raise ConfigError(msg)
    if timers == "only" and options["burst"]:
        msg = 'a worker with burst=True runs no timers: leave timers="only" out.'
        raise ConfigError(msg)
