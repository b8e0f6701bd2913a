"""`Tenure`, what users see of an app: each call delegates to the engine, or to what stands on it.

`Engine` opens and closes the store, `Registry` has what was declared, and `LockCalls`, `JobCalls`,
`TimerCalls` and `Workers` do what the calls say. The last three are imported at their first use, so
that a service that only takes locks loads no workers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from copy import copy
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    NoReturn,
    ParamSpec,
    Self,
    TypeVar,
    TypeVarTuple,
    Unpack,
    overload,
)

from tenure.app.config import read_config, store_of
from tenure.app.engine import Engine
from tenure.app.locks import LockCalls
from tenure.app.options import (
    APP_DEFAULTS,
    ELECTION_DEFAULTS,
    JOB_FILTER_DEFAULTS,
    LOCK_DEFAULTS,
    ONCE_DEFAULTS,
    TASK_DEFAULTS,
    WITH_LOCK_DEFAULTS,
    WORKER_DEFAULTS,
    AppOptions,
    BlockingLockOptions,
    ElectionOptions,
    JobFilter,
    LockOptions,
    OnceOptions,
    TaskOptions,
    WithLockOptions,
    WorkerOptions,
)
from tenure.app.registry import Registry
from tenure.app.signature import declares, takes
from tenure.core.callables import check_hook, check_middleware
from tenure.core.durations import Duration, Until, seconds
from tenure.core.leases import Lease, Traits
from tenure.core.schedules.options import (
    SCHEDULE_DEFAULTS,
    TIMER_DEFAULTS,
    ScheduleOptions,
    TimerOptions,
)
from tenure.core.settings import Settings
from tenure.errors import UniqueBusy, UniqueMismatch
from tenure.locks.election import Election
from tenure.locks.lock import USE_ASYNC_WITH, Lock, Outcome, Semaphore
from tenure.observe.events import Event, Events
from tenure.stores.contract import LeaseStore

if TYPE_CHECKING:
    from tenure.app.jobs import JobCalls
    from tenure.app.timers import TimerCalls
    from tenure.app.workers import Workers
    from tenure.core.health import Health
    from tenure.core.jobs.records import QueueCounts
    from tenure.core.jobs.replicas import Recovered, ReplicaRecord
    from tenure.core.jobs.run_stats import RunStats
    from tenure.core.why import Why
    from tenure.jobs import (
        AroundEnqueue,
        AsyncTask,
        Job,
        JobPage,
        JobRequest,
        OnEnqueue,
        PlainTask,
        Task,
        TaskDecorator,
    )
    from tenure.jobs.worker import EmbeddedWorker
    from tenure.runtime.attempts.handler import Around
    from tenure.timers import TimerHandle, TimerInfo, TimerPause

__all__ = ["Tenure", "engine_of"]

F = TypeVar("F", bound=Callable[..., Any])
P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Tenure:
    """Shares work safely between the replicas of a service.

        app = Tenure()                      # url=, else $TENURE_URL, else sqlite:///tenure.db
        async with app:
            async with app.lock("invoice:42") as hold:
                await charge(fence=hold.fence)

    Opening connects to the store and starts no work of its own.
    """

    @takes(APP_DEFAULTS, AppOptions)
    def __init__(self, url: str | LeaseStore | None = None, **options: Unpack[AppOptions]) -> None:
        """Make an app, which is then to be opened: `async with app:`.

        Every option but `clock` and `lifespan` may also come from the environment, as
        TENURE_REPLICA_TTL and so on; an argument wins.

        Args:
            url: `sqlite:///file.db`, `redis://host:6379/0`, `postgresql://user@host/db`,
                `memory://`; or a store object, which then brings its own namespace and clock.
            **options: see below.
        """
        config = read_config(url, options)
        store = store_of(url, config.settings.namespace, options["clock"])
        self._engine = Engine(config, store, Registry(), Events(), self)

    def __repr__(self) -> str:
        return repr(self._engine)

    def clone(self) -> Self:
        """Return an unopened app on the same store with the same tasks, for another event loop."""
        other = copy(self)
        other._engine = self._engine.copy(other)  # noqa: SLF001 - of the same class
        return other

    # Opening and closing.

    async def open(self) -> None:
        """Connect. Raises ConfigError, StoreError or StoreUnavailable if that cannot work.

        With connect="lazy" it does not raise StoreUnavailable, and goes on trying in the
        background. Until that succeeds, calls raise StoreUnavailable; `ready` waits for it.
        """
        await self._engine.open(is_lazy=self._engine.config.connect == "lazy")

    async def ready(self) -> None:
        """Wait until the store was reached. Raises ConfigError or StoreError if it is unusable."""
        await self._engine.ready()

    async def close(self) -> None:
        """Finish what is being given back, stop renewing, disconnect. Safe to call twice."""
        await self._engine.close()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __enter__(self) -> NoReturn:
        raise TypeError(USE_ASYNC_WITH)

    def __exit__(self, *_: object) -> None: ...

    @property
    def is_open(self) -> bool:
        """Whether it was opened in this process and not closed since, nor its event loop."""
        return self._engine.is_open

    @property
    def is_ready(self) -> bool:
        """Whether it is open and has reached its store once; for readiness probes.

        Always true while it is open, except with connect="lazy". It stays true in an outage. An app
        that was never opened is not ready, even if an `AsyncRouter` has opened a connection.
        """
        return self._engine.is_ready

    async def health(self, timeout: Duration = 2.0) -> Health:
        """Look at the store and the workers, and return what is healthy and what is not.

        It acquires and releases a test lease. Never raises for a store that is away, read-only,
        full or slow, nor if the app is not open: it then returns "unhealthy", at the latest after
        `timeout`. For probes over HTTP see `tenure.http.health`.
        """
        from tenure.app.health import check_health  # noqa: PLC0415 - see the head of this module

        return await check_health(self._engine, seconds(timeout, "timeout", minimum=0.001))

    # What it is.

    @property
    def url(self) -> str:
        """The URL of the store, without its password."""
        return self._engine.store.url

    @property
    def traits(self) -> Traits:
        """What the store can do and survive; complete once the app is open."""
        return self._engine.store.traits

    @property
    def settings(self) -> Settings:
        """The settings, checked, with their defaults."""
        return self._engine.settings

    @property
    def state(self) -> Any:
        """What `lifespan` has yielded, in a process that runs work; None elsewhere."""
        return self._engine.work.state

    def on_event(self, subscriber: Callable[[Event], None]) -> None:
        """Have `subscriber` called with every event. It must be quick; see `tenure.observe`.

        Subscribe before you open the app: calls of the store (`StoreCalled`) are only reported if
        there was a subscriber when it was opened.

        Raises ConfigError for an async function, which nothing would await.
        """
        check_hook(subscriber, "app.on_event")
        self._engine.events.subscribe(subscriber)

    # Locks.

    @takes(LOCK_DEFAULTS, BlockingLockOptions, LockOptions)
    def lock(self, name: str, **options: Unpack[LockOptions]) -> Lock:
        """Describe a lock: at most one holder over all replicas.

        Args:
            name: any text of up to 200 characters.
            **options: see below.
        """
        return self._locks.lock(name, options)

    @takes(LOCK_DEFAULTS, BlockingLockOptions, LockOptions)
    def semaphore(
        self, name: str, limit: int, *, strict: bool = False, **options: Unpack[LockOptions]
    ) -> Semaphore:
        """Describe a semaphore: at most `limit` holders over all replicas. See `lock`.

        While live holders use another limit (a rolling deploy), the smallest one rules, which an
        event reports; with `strict=True` LimitMismatch is raised instead.
        """
        return self._locks.semaphore(name, limit, options, strict=strict)

    @overload
    async def with_lock(
        self,
        name: str,
        fn: Callable[[*Ts], Coroutine[Any, Any, T]],
        *args: *Ts,
        **options: Unpack[WithLockOptions],
    ) -> Outcome[T]: ...
    @overload
    async def with_lock(
        self,
        name: str,
        fn: Callable[[*Ts], T],
        *args: *Ts,
        **options: Unpack[WithLockOptions],
    ) -> Outcome[T]: ...
    @takes(WITH_LOCK_DEFAULTS, WithLockOptions)
    async def with_lock(
        self,
        name: str,
        fn: Callable[[*Ts], Any],
        *args: *Ts,
        **options: Unpack[WithLockOptions],
    ) -> Outcome[Any]:
        """Run `fn(*args)` if the lock is free, and return what happened.

        An async function runs on this loop and is cancelled if the lock is lost; a plain one runs
        in a thread, which nothing can stop. A skip or a loss is an outcome, not an exception; what
        `fn` raises is raised.

        Args:
            name: the lock's name.
            fn: what to run.
            *args: its arguments.
            **options: see below.
        """
        return await self._locks.with_lock(name, fn, args, options)

    @takes(ONCE_DEFAULTS, OnceOptions)
    async def once(self, name: str, fn: Callable[[], Any], **options: Unpack[OnceOptions]) -> bool:
        """Run `fn` unless it has succeeded before for this (name, version), on any replica, ever.

        Return whether this call ran it. Callers at the same time wait and learn the outcome. A
        replica that dies half-way is followed by another one, so `fn` must be safe to repeat.

        Raises:
            OnceFailed: it failed, here or on the replica this call waited for. The failure is
                kept; the next call tries again.
            AcquireTimeout: another replica was at it for longer than `wait`.
            LeaseLost: the lock was lost meanwhile; another replica takes over.
        """
        return await self._locks.once(name, fn, options)

    @takes(ELECTION_DEFAULTS, ElectionOptions)
    def election(self, name: str, **options: Unpack[ElectionOptions]) -> Election:
        """Describe an election of one leader over all replicas; see `tenure.locks.election`."""
        return self._locks.election(name, options)

    async def locks(self, prefix: str = "", *, limit: int = 1000) -> list[Lease]:
        """Return who holds and who waits for locks whose name starts with `prefix`."""
        return await self._locks.find(prefix, limit)

    async def why_lock(self, name: str) -> Why:
        """Return why a lock or semaphore can be had or not: one sentence and the next step."""
        from tenure.app.why import explain_lock  # noqa: PLC0415 - see the head of this module

        return await explain_lock(self._engine, name)

    # Tasks and jobs.

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
    def task(self, fn: None = None, /, **options: Unpack[TaskOptions]) -> TaskDecorator: ...
    @takes(TASK_DEFAULTS, TaskOptions)
    def task(self, fn: Any = None, /, **options: Unpack[TaskOptions]) -> Any:
        """Declare a function as a task, with or without options.

            @app.task(queue="mail", timeout=30, retry=3)
            async def send_mail(user_id: int, template: str = "welcome") -> Receipt: ...

        Jobs name the task, and arguments are kept by the names of the parameters: renaming either
        orphans the jobs that wait.

        Args:
            fn: the function; async ones run on the worker's loop, plain ones in threads.
            **options: see below.
        """
        return self._jobs.task(fn, options)

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

        An async context manager is entered on the event loop. A plain one is entered where the
        handler runs: in its own thread for plain functions, inside of async ones, on the loop for
        async functions, and around the child for executor="process".

        The first one declared is the outermost. Errors and cancellations of the handler pass
        through; an error of the context manager fails the attempt like one of the handler.
        """
        check_middleware(make, "@app.around_attempt")
        self._engine.registry.middleware.append(make)
        return make

    def on_enqueue(self, hook: OnEnqueue) -> OnEnqueue:
        """Have `hook` called with each job before this app stores it; use it as a decorator.

            @app.on_enqueue
            def add_tenant(job: Outgoing) -> None:
                job.headers.setdefault("tenant", tenant.get())

        It may change the headers, and refuses the job by raising: the caller gets that exception,
        and nothing is stored. It is called where `enqueue` was called, also for jobs of a
        transaction of yours and of HTTP requests, and not for runs of timers and schedules.
        """
        check_hook(hook, "@app.on_enqueue")
        self._engine.registry.enqueue_hooks.append(hook)
        return hook

    def around_enqueue(self, make: AroundEnqueue) -> AroundEnqueue:
        """Have something entered around each call that stores jobs; use it as a decorator.

            @app.around_enqueue
            @contextmanager
            def span(batch: OutgoingBatch):
                with tracer.start_as_current_span("send"):
                    for job in batch.jobs:
                        inject(job.headers)
                    yield  # the jobs are stored here

        It is entered once per call, after the hooks of `on_enqueue`, and may set headers before it
        yields. The first one declared is the outermost. Errors of the call pass through it; one
        that it swallows is raised nevertheless.
        """
        check_middleware(make, "@app.around_enqueue")
        self._engine.registry.around_enqueue.append(make)
        return make

    @property
    def task_names(self) -> tuple[str, ...]:
        """The names of the declared tasks."""
        return tuple(sorted(self._engine.registry.handlers))

    async def enqueue(self, request: JobRequest[R], *, within: object = None) -> Job[R]:
        """Store one job; the same as `task.enqueue` for what `task.request` returned.

        With `within`, a connection, as part of your own transaction on it; see `task.within`.
        """
        return await self._jobs.enqueue(request, within=within)

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
        return await self._jobs.enqueue_many(
            requests, within=within, return_exceptions=return_exceptions
        )

    async def job(self, id: str) -> Job[Any]:  # noqa: A002 - that is what it is
        """Return a job by its id. Raises JobNotFound, or JobUnreadable if its record is damaged."""
        return await self._engine.services().jobs.job(id)

    @takes(JOB_FILTER_DEFAULTS, JobFilter)
    async def jobs(self, **options: Unpack[JobFilter]) -> JobPage:
        """Return jobs that meet all conditions, newest first.

        A page may be short and still have a `cursor`: pass it on to get the next one.
        """
        return await self._jobs.page(options)

    async def delete_job(
        self,
        id: str,  # noqa: A002 - as above
        *,
        cancel: bool = False,
        timeout: Duration | None = None,
    ) -> None:
        """Delete a job for good, with its result and tags; its unique key is free at once.

        A waiting job never starts. A running one raises JobStateError; with `cancel` it is
        cancelled first, and deleted when its handler has stopped. Raises TimeoutError if that takes
        longer than `timeout`: the job is still asked to stop, and not deleted. Raises JobNotFound.
        """
        limit = None if timeout is None else seconds(timeout, "timeout")
        await self._engine.services().jobs.delete(id, cancel=cancel, timeout=limit)

    async def prune_jobs(self) -> int:
        """Remove finished jobs whose retention is over. Workers do it by themselves."""
        return await self._jobs.prune()

    async def queues(self) -> list[QueueCounts]:
        """Return how each queue stands: waiting, running, for how long the oldest waits."""
        return await self._engine.services().store.jobs.counts()

    async def run_stats(self) -> list[RunStats]:
        """Return how many attempts began and ended in the last hour, and how long they ran.

        By minute, task and queue, oldest first, over all workers. Each worker leaves its counts in
        the store about every 15 seconds.
        """
        return await self._jobs.run_stats()

    async def pause_queue(self, queue: str, *, until: Until = None, reason: str = "") -> None:
        """Let no job of a queue start until an instant, for so long, or until `resume_queue`."""
        await self._jobs.pause_queue(queue, until, reason)

    async def resume_queue(self, queue: str) -> None:
        """End the pause of a queue."""
        await self._jobs.resume_queue(queue)

    async def why_queue(self, queue: str) -> Why:
        """Return why the jobs of a queue run or wait: one sentence and the next step.

        Jobs and timers explain themselves: `await job.why()`, `await app.timer_handle(n).why()`.
        """
        from tenure.app.why import explain_queues  # noqa: PLC0415 - as above

        return (await explain_queues(self._engine, [queue]))[queue]

    # Timers and schedules.

    @declares
    @takes(TIMER_DEFAULTS, ScheduleOptions, TimerOptions)
    def timer(self, **options: Unpack[TimerOptions]) -> Callable[[F], F]:
        """Run a function at certain times: each tick on one replica, at most once, ever.

            @app.timer(cron="30 2 * * *", tz="Europe/Berlin")
            async def penalties(tick: Tick) -> None: ...

        It runs in `tenure worker`, `app.worker()` and `app.run_timers()`; opening the app starts
        nothing. The function takes a `Tick`, or nothing, and may be async or plain.
        """
        return self._timers.timer(options)

    @declares
    @takes(SCHEDULE_DEFAULTS, ScheduleOptions)
    def schedule(
        self,
        task: Task[..., Any],
        *,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> TimerHandle:
        """Enqueue a durable job at certain times, once per tick.

            app.schedule(build_report, cron="0 6 * * 1", args=("weekly",))

        Options of the job (queue, priority, time-out...) are the task's: `task.using(...)`. By
        default a tick is skipped while the job of an earlier one is unfinished; overlap="allow"
        enqueues one regardless.
        """
        return self._timers.schedule(task, args, kwargs or {}, options)

    @property
    def timer_names(self) -> tuple[str, ...]:
        """The names of the timers and schedules that are declared in this process."""
        return tuple(sorted(self._engine.registry.plans))

    def timer_handle(self, name: str) -> TimerHandle:
        """Return the handle of a timer or schedule, also of one that another process declares.

            await app.timer_handle("sync_orders").pause(until="2h", reason="migration")

        Calls on the handle raise TimerNotFound if the store does not know the name.
        """
        return self._timers.service.handle(name)

    async def timers(self) -> list[TimerInfo]:
        """Return the state of every timer and schedule that the store knows, by name."""
        return await self._timers.service.infos()

    async def pause_timers(self, *, until: Until = None, reason: str = "") -> None:
        """Skip the ticks of all timers until an instant, for so long, or until `resume_timers`."""
        await self._timers.service.pause(until, reason)

    async def resume_timers(self) -> bool:
        """End the pause of all timers; ticks skipped meanwhile do not run. False without one."""
        return await self._timers.service.resume()

    async def timers_paused(self) -> TimerPause | None:
        """Return the pause of all timers, or None."""
        return await self._timers.service.paused()

    # Workers.

    @takes(WORKER_DEFAULTS, WorkerOptions)
    def worker(self, **options: Unpack[WorkerOptions]) -> EmbeddedWorker:
        """Return a worker for this process, to be entered: `async with app, app.worker(): ...`."""
        return self._workers.worker(options)

    @takes(WORKER_DEFAULTS, WorkerOptions)
    async def run_worker(self, **options: Unpack[WorkerOptions]) -> dict[str, int]:
        """Work until SIGTERM or SIGINT, then let running jobs finish and leave. See `worker`.

        Opens the app if it is not open. If the store is down then, it waits for it, unless the
        app has connect="eager"; with burst=True it raises StoreUnavailable in any case. Returns
        how many attempts have ended, by their outcome.
        """
        return await self._workers.run(options)

    async def run_timers(self) -> None:
        """Run timers and schedules, and nothing else, until cancelled, SIGTERM or SIGINT.

        Opens the app if it is not open. Raises ConfigError if they run in this process already.
        """
        self._timers.check_any()
        await self.run_worker(timers="only")

    async def replicas(self) -> list[ReplicaRecord]:
        """Return the processes that run work."""
        return await self._engine.services().store.jobs.replicas()

    async def recover(self) -> list[Recovered]:
        """Take jobs from replicas that have expired, now. Workers do it by themselves.

        Do not call it within one `replica_ttl` after the clock of the store was set ahead: all
        replicas look expired then.
        """
        return await self._jobs.recover()

    # What does the work. Made for each call: they only know the engine.

    @property
    def _locks(self) -> LockCalls:
        return LockCalls(self._engine)

    @property
    def _jobs(self) -> JobCalls:
        from tenure.app.jobs import JobCalls  # noqa: PLC0415 - see the head of this module

        return JobCalls(self._engine)

    @property
    def _timers(self) -> TimerCalls:
        from tenure.app.timers import TimerCalls  # noqa: PLC0415 - as above

        return TimerCalls(self._engine)

    @property
    def _workers(self) -> Workers:
        from tenure.app.workers import Workers  # noqa: PLC0415 - as above

        return Workers(self._engine)


def engine_of(app: Tenure) -> Engine:
    """Return the engine of an app: the one way in for what is built on apps, inside the package.

    Supervisor, HTTP routes, command line and `tenure.blocking` reach the store, the declarations,
    the events and what is open through it. It is no public API.
    """
    return app._engine  # noqa: SLF001 - the one way in
