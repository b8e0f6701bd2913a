"""The job calls of an app: what `Tenure.task`, `enqueue`, `jobs` and their siblings do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, TypeVar

from tenure.app.engine import Engine
from tenure.app.options import JobFilter, TaskOptions
from tenure.core.durations import Until, instant
from tenure.core.ids import is_job_id
from tenure.core.jobs.parents import parent_tag
from tenure.core.jobs.replicas import Recovered
from tenure.core.jobs.run_stats import RunStats, merge_stats
from tenure.core.jobs.states import STATES
from tenure.core.lease_policy import TTL_MAX
from tenure.core.leases import check_name, storable
from tenure.core.settings import Settings
from tenure.errors import ConfigError
from tenure.jobs import (
    EnqueueHooks,
    Job,
    JobPage,
    JobRequest,
    Jobs,
    Options,
    Task,
    is_declared_again,
    make_handler,
    make_task,
)
from tenure.runtime.attempts.running_job import current
from tenure.runtime.pruning import prune
from tenure.runtime.replica.recovery import Recovery
from tenure.timers import check_not_timed

__all__ = ["JobCalls"]

R = TypeVar("R")

_PAGE_MAX = 1000
_REASON_MAX = 1000


class JobCalls:
    """Declares tasks, stores jobs and looks them up. Tasks reach their app through this."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @property
    def settings(self) -> Settings:
        return self._engine.settings

    def task(self, fn: Any, options: TaskOptions) -> Any:
        """Declare a function as a task; without one, return the decorator that does."""
        registry = self._engine.registry
        job_options = Options().changed(
            queue=options["queue"],
            timeout=options["timeout"],
            priority=options["priority"],
            retention=options["retention"],
        )

        def declare(function: Callable[..., Any]) -> Task[Any, Any]:
            check_not_timed(function, registry.timer_functions.values())
            handler = make_handler(
                function,
                options["name"],
                options["retry"],
                options["executor"],
                options["expected"],
            )
            former = registry.handlers.get(handler.name)
            if former is not None and not is_declared_again(former.function, function):
                msg = f"there is a task {handler.name!r} already. Give this one another name."
                raise ConfigError(msg)
            registry.add_task(handler, job_options.queue)
            return make_task(self, handler, job_options)

        return declare if fn is None else declare(fn)

    async def enqueue(self, request: JobRequest[R], *, within: object = None) -> Job[R]:
        """Store one job."""
        return await self._jobs_to_enqueue().enqueue(request, within=within)

    async def enqueue_many(
        self, requests: Iterable[JobRequest[Any]], *, within: object, return_exceptions: bool
    ) -> list[Any]:
        """Store many jobs."""
        jobs = self._jobs_to_enqueue()
        return await jobs.enqueue_many(requests, within=within, return_exceptions=return_exceptions)

    def _jobs_to_enqueue(self) -> Jobs:
        """Return what stores jobs here.

        A handler in a thread or a child process may run a loop of its own, on which this app is
        not open. Its jobs go over the connection of the worker that runs it, if that has the same
        store.
        """
        engine = self._engine
        job = current.get(None)
        home = engine.store.url, engine.store.namespace
        if job is None or job.home != home or engine.services_here() is not None:
            return engine.services().jobs
        registry = engine.registry
        hooks = EnqueueHooks(registry.enqueue_hooks, registry.around_enqueue)
        insert, events = job.insert_from_elsewhere, engine.events
        return Jobs(engine.store, registry.handlers, insert, hooks, events=events)

    async def page(self, options: JobFilter) -> JobPage:
        """Return the jobs that meet all conditions, newest first."""
        state, limit, cursor = options["state"], options["limit"], options["cursor"]
        if state is not None and state not in STATES:
            msg = f"state must be one of {', '.join(STATES)}, not {state!r}."
            raise ConfigError(msg)
        if not 1 <= limit <= _PAGE_MAX:
            msg = f"limit must be from 1 to {_PAGE_MAX}, not {limit!r}."
            raise ConfigError(msg)
        names = {
            "task": options["task"],
            "queue": options["queue"],
            "tag": _tag(options["tag"], options["parent"]),
            "replica": options["replica"],
        }
        for what, text in names.items():
            if text is not None:
                check_name(text, what)
        if cursor is not None and not is_job_id(cursor):
            msg = f"cursor {cursor!r} is not one: pass on the `cursor` of the page before."
            raise ConfigError(msg)
        jobs = self._engine.services().jobs
        page = jobs.page if options["timers"] else jobs.page_without_timers
        return await page(state=state, limit=limit, cursor=cursor, **names)

    async def pause_queue(self, queue: str, until: Until, reason: str) -> None:
        """Let no job of a queue start until an instant, for so long, or until it is resumed."""
        store = self._engine.services().store
        seconds = None
        if until is not None:
            now = (await store.ping()).now if isinstance(until, datetime) else 0
            seconds = max(0.0, (instant(until, now, maximum=TTL_MAX) - now) / 1e6)
        reason = storable(reason, _REASON_MAX)
        await store.jobs.pause(check_name(queue, "queue"), seconds=seconds, reason=reason)

    async def resume_queue(self, queue: str) -> None:
        """End the pause of a queue."""
        store = self._engine.services().store
        await store.jobs.pause(check_name(queue, "queue"), seconds=0)

    async def prune(self) -> int:
        """Remove finished jobs whose retention is over; return how many."""
        return await prune(self._engine.services().store)

    async def run_stats(self) -> list[RunStats]:
        """Return what the attempts of the last hour did, as far as workers have left it."""
        store = self._engine.services().store
        bodies, now = await store.jobs.stats(), (await store.ping()).now
        # Seconds of work for hundreds of busy workers.
        return await asyncio.to_thread(merge_stats, bodies, now)

    async def recover(self) -> list[Recovered]:
        """Take jobs from replicas that have expired."""
        store = self._engine.services().store
        recovery = Recovery(self._engine.work_settings, store.clock, self._engine.events)
        return await recovery.run(store, by=store.clock.token())


def _tag(tag: str | None, parent: str | None) -> str | None:
    """Return the tag to look for."""
    if parent is None:
        return tag
    if tag is not None:
        raise ConfigError("give either tag= or parent=, not both.")
    if not is_job_id(parent):
        msg = f"parent must be the id of a job, not {parent!r}."
        raise ConfigError(msg)
    return parent_tag(parent)
