"""The job calls of an app: tasks and jobs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable
from datetime import datetime
from typing import Any, Literal, ParamSpec, TypeVar, overload

from tenure.app.lifecycle import services_here
from tenure.app.workers import WorkerCalls
from tenure.core.durations import Duration, Until, instant
from tenure.core.ids import is_job_id
from tenure.core.jobs.records import QueueCounts
from tenure.core.jobs.replicas import Recovered, ReplicaRecord
from tenure.core.jobs.retention import RetentionOption
from tenure.core.jobs.states import STATES, JobState
from tenure.core.leases import check_name, storable
from tenure.core.policy import TTL_MAX, Backoff, RetryOption
from tenure.errors import ConfigError, UniqueBusy, UniqueMismatch
from tenure.jobs import (
    AsyncTask,
    Job,
    JobPage,
    JobRequest,
    Jobs,
    Options,
    PlainTask,
    Task,
    TaskDecorator,
    is_declared_again,
    make_handler,
    make_task,
)
from tenure.runtime.attempts.handler import Around, Executor
from tenure.runtime.attempts.running_job import current
from tenure.runtime.pruning import prune
from tenure.runtime.replica.recovery import Recovery
from tenure.timers import check_not_timed

__all__ = ["JobCalls"]

P = ParamSpec("P")
R = TypeVar("R")

_BACKOFF = Backoff()
_PAGE_MAX = 1000
_REASON_MAX = 1000


class JobCalls(WorkerCalls):
    """Tasks and their jobs."""

    # The first that fits counts: what is awaitable is also some plain R.
    @overload
    def task(  # type: ignore[overload-overlap]
        self, fn: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncTask[P, R]: ...
    @overload
    def task(  # type: ignore[overload-overlap]
        self, fn: Callable[P, Awaitable[R]], /
    ) -> Task[P, R]: ...
    @overload
    def task(self, fn: Callable[P, R], /) -> PlainTask[P, R]: ...
    @overload
    def task(
        self,
        fn: None = None,
        /,
        *,
        name: str | None = None,
        queue: str = "default",
        timeout: Duration | None = None,
        retry: RetryOption = _BACKOFF,
        priority: int = 5,
        retention: RetentionOption | None = None,
        executor: Executor = "auto",
    ) -> TaskDecorator: ...
    def task(
        self,
        fn: Any = None,
        /,
        *,
        name: str | None = None,
        queue: str = "default",
        timeout: Duration | None = None,
        retry: RetryOption = _BACKOFF,
        priority: int = 5,
        retention: RetentionOption | None = None,
        executor: Executor = "auto",
    ) -> Any:
        """Declare a function as a task, with or without options.

            @app.task(queue="mail", timeout=30, retry=3)
            async def send_mail(user_id: int, template: str = "welcome") -> Receipt: ...

        Jobs name the task, and arguments are kept by the names of the parameters: renaming either
        orphans the jobs that wait.

        Args:
            fn: the function; async ones run on the worker's loop, plain ones in threads.
            name: its name in the store; the function's own by default.
            queue: which workers see its jobs.
            timeout: the longest an attempt may take; it is then cancelled and counts as a failure.
            retry: how often a failed job is tried again, or a `Backoff`; by default 19 times over
                4 to 8 hours. 0 or None: never.
            priority: 0 to 9; 0 is served first.
            retention: how long finished jobs are kept, or a `Retention` by outcome; a minute at
                least. The app's by default.
            executor: where a plain function runs: in a "thread", or in a child "process", which
                is for CPU-bound work and can be killed.
        """
        options = Options().changed(
            queue=queue, timeout=timeout, priority=priority, retention=retention
        )

        def declare(function: Callable[..., Any]) -> Task[Any, Any]:
            check_not_timed(function, self._timed.values())
            handler = make_handler(function, name, retry, executor)
            known = self._handlers.get(handler.name)
            if known is not None and not is_declared_again(known.function, function):
                msg = f"there is a task {handler.name!r} already. Give this one another name."
                raise ConfigError(msg)
            self._handlers[handler.name] = handler
            self._queues.setdefault(options.queue)
            return make_task(self, handler, options)

        return declare if fn is None else declare(fn)

    def around_attempt(self, make: Around) -> Around:
        """Have something entered before every attempt and left after it; use it as a decorator.

            @app.around_attempt
            @asynccontextmanager
            async def report_errors(job: JobContext):
                with sentry_sdk.isolation_scope() as scope:
                    scope.set_tag("task", job.task)
                    try:
                        yield
                    except Exception as error:
                        sentry_sdk.capture_exception(error)
                        raise

        The first one declared is the outermost. Errors and cancellations of the handler pass
        through; an error of the surroundings fails the attempt like one of the handler.
        """
        self._around.append(make)
        return make

    @property
    def task_names(self) -> tuple[str, ...]:
        """The names of the declared tasks."""
        return tuple(sorted(self._handlers))

    async def enqueue(self, request: JobRequest[R], *, within: object = None) -> Job[R]:
        """Store one job; the same as `task.enqueue` for what `task.request` returned.

        With `within`, a connection, as part of your own transaction on it; see `task.within`.
        """
        return await self._enqueuing().enqueue(request, within=within)

    @overload
    async def enqueue_many(
        self, requests: Iterable[JobRequest[R]], *, within: object = None
    ) -> list[Job[R]]: ...
    @overload
    async def enqueue_many(
        self,
        requests: Iterable[JobRequest[R]],
        *,
        within: object = None,
        return_exceptions: Literal[True],
    ) -> list[Job[R] | UniqueMismatch | UniqueBusy]: ...
    async def enqueue_many(
        self,
        requests: Iterable[JobRequest[Any]],
        *,
        within: object = None,
        return_exceptions: bool = False,
    ) -> Any:
        """Store many jobs, up to 200 and 4 MB of arguments in a round trip.

        Each such slice is stored whole or not at all, but for jobs whose unique key is held. If
        the store refuses one, the error is raised, and the slices before are stored.

        With `within`, a connection, all as part of your own transaction on it; see `task.within`.

        A unique key that belongs to a job with other arguments raises UniqueMismatch after all
        others were stored, and one that an open transaction holds raises UniqueBusy; with
        `return_exceptions` the error stands in the list instead.
        """
        jobs = self._enqueuing()
        return await jobs.enqueue_many(requests, within=within, return_exceptions=return_exceptions)

    def _enqueuing(self) -> Jobs:
        """Return what stores jobs here.

        A handler in a thread or a child process may run a loop of its own, on which this app is
        not open. Its jobs go over the connection of the worker that runs it, if that has the same
        store.
        """
        job = current.get(None)
        home = self._store.url, self._store.namespace
        if job is None or job.home != home or services_here(self) is not None:
            return self._services().jobs
        return Jobs(self._store, self._handlers, job.insert_from_elsewhere)

    async def _job_service(self) -> Jobs:
        """Return what makes jobs and looks them up here: for `tenure.blocking`."""
        return self._services().jobs

    async def job(self, id: str) -> Job[Any]:  # noqa: A002 - that is what it is
        """Return a job by its id. Raises JobNotFound, or JobUnreadable if its record is damaged."""
        return await self._services().jobs.job(id)

    async def jobs(
        self,
        *,
        state: JobState | None = None,
        task: str | None = None,
        queue: str | None = None,
        tag: str | None = None,
        replica: str | None = None,
        timers: bool = False,
        limit: int = 50,
        cursor: str | None = None,
    ) -> JobPage:
        """Return jobs that fit all that is given, newest first.

        Runs of timers are among them only with `timers`, or if their task (`@name`) or queue is
        asked for. A page may be short and still have a `cursor`: pass it on to get the next one.
        """
        if state is not None and state not in STATES:
            msg = f"state must be one of {', '.join(STATES)}, not {state!r}."
            raise ConfigError(msg)
        if not 1 <= limit <= _PAGE_MAX:
            msg = f"limit must be from 1 to {_PAGE_MAX}, not {limit!r}."
            raise ConfigError(msg)
        wanted = {"task": task, "queue": queue, "tag": tag, "replica": replica}
        for what, text in wanted.items():
            if text is not None:
                check_name(text, what)
        if cursor is not None and not is_job_id(cursor):
            msg = f"cursor {cursor!r} is not one: pass on the `cursor` of the page before."
            raise ConfigError(msg)
        jobs = self._services().jobs
        page = jobs.page if timers else jobs.page_without_timers
        return await page(state=state, limit=limit, cursor=cursor, **wanted)

    async def queues(self) -> list[QueueCounts]:
        """Return how each queue stands: waiting, running, for how long the oldest waits."""
        return await self._services().store.jobs.counts()

    async def replicas(self) -> list[ReplicaRecord]:
        """Return the processes that run work."""
        return await self._services().store.jobs.replicas()

    async def pause_queue(self, queue: str, *, until: Until = None, reason: str = "") -> None:
        """Let no job of a queue start until an instant, for so long, or until `resume_queue`."""
        store = self._services().store
        seconds = None
        if until is not None:
            now = (await store.ping()).now if isinstance(until, datetime) else 0
            seconds = max(0.0, (instant(until, now, maximum=TTL_MAX) - now) / 1e6)
        reason = storable(reason, _REASON_MAX)
        await store.jobs.pause(check_name(queue, "queue"), seconds=seconds, reason=reason)

    async def resume_queue(self, queue: str) -> None:
        """End the pause of a queue."""
        await self._services().store.jobs.pause(check_name(queue, "queue"), seconds=0)

    async def recover(self) -> list[Recovered]:
        """Take jobs from replicas that have expired, now. Workers do it by themselves.

        Do not call it within one `replica_ttl` after the clock of the store was set ahead: all
        replicas look expired then.
        """
        store = self._services().store
        recovery = Recovery(self._work_settings, store.clock, self._events)
        return await recovery.run(store, by=store.clock.token(), named="hand")

    async def delete_job(self, id: str) -> None:  # noqa: A002 - as above
        """Delete a job that has finished, or whose record cannot be read; its unique key is free.

        Raises JobStateError if it has not finished: cancel it and wait for its end first. Raises
        JobNotFound.
        """
        await self._services().jobs.delete(id)

    async def prune_jobs(self) -> int:
        """Remove finished jobs whose retention is over. Workers do it by themselves."""
        return await prune(self._services().store)
