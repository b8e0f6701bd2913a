"""`blocking.Tenure`: an app for threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal, Self, TypeVar, TypeVarTuple, Unpack, overload

import tenure
from tenure.app import engine_of
from tenure.app.health import unreachable
from tenure.app.options import (
    APP_DEFAULTS,
    BLOCKING_LOCK_DEFAULTS,
    ELECTION_DEFAULTS,
    JOB_FILTER_DEFAULTS,
    ONCE_DEFAULTS,
    WITH_LOCK_DEFAULTS,
    AppOptions,
    BlockingLockOptions,
    ElectionOptions,
    JobFilter,
    OnceOptions,
    WithLockOptions,
)
from tenure.app.signature import takes
from tenure.blocking.jobs import Job, JobPage
from tenure.blocking.locks import Election, Lock, OnLost, Semaphore
from tenure.blocking.portal import Portal
from tenure.blocking.timers import TimerHandle
from tenure.core.callables import is_async
from tenure.core.durations import Duration, Until, seconds
from tenure.core.health import Health
from tenure.core.jobs.records import QueueCounts
from tenure.core.jobs.replicas import Recovered, ReplicaRecord
from tenure.core.jobs.run_stats import RunStats
from tenure.core.leases import Lease, Traits
from tenure.core.why import Why
from tenure.errors import ConfigError, StoreError, UniqueBusy, UniqueMismatch
from tenure.jobs import AroundEnqueue, JobRequest, Jobs, OnEnqueue
from tenure.locks.lock import Outcome
from tenure.observe import Event

__all__ = ["Tenure"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

# How long the event loop may take to pass a health on, beyond the time limit of the look.
_ANSWER_SECONDS = 0.5


class Tenure:
    """Shares work safely between the replicas of a service, for threads."""

    @takes(APP_DEFAULTS, AppOptions)
    def __init__(
        self, app: tenure.Tenure | str | None = None, **options: Unpack[AppOptions]
    ) -> None:
        """Make an app for threads, which is then to be opened: `with app:`.

        Args:
            app: a `tenure.Tenure` whose store to use through connections of its own, or what
                `tenure.Tenure` takes as its URL.
            **options: what `tenure.Tenure` takes. They have no effect beside a `tenure.Tenure`,
                which has its own.
        """
        self._app = app.clone() if isinstance(app, tenure.Tenure) else tenure.Tenure(app, **options)
        self._opened: Portal | None = None

    def __repr__(self) -> str:
        return f"blocking.{self._app!r}"

    def open(self) -> None:
        """Connect. Raises ConfigError, StoreError or StoreUnavailable if that cannot work.

        With connect="lazy" it goes on trying in the background; see `tenure.Tenure.open`.
        """
        if self._opened is not None and not self._opened.is_inherited:
            msg = f"{self._app!r} is open already."
            raise ConfigError(msg)
        portal = Portal()
        try:
            portal.call(self._app.open())
            self._opened = portal
        except BaseException:
            self._opened = None
            portal.close()
            raise

    def close(self) -> None:
        """Finish what is being given back, stop renewing, disconnect. Safe to call twice."""
        portal, self._opened = self._opened, None
        if portal is not None and not portal.is_inherited:
            try:
                portal.call(portal.settle())
                portal.call(self._app.close())
            finally:
                # If it was interrupted, the next `open` gives up what this loop leaves behind.
                portal.close()

    @property
    def is_ready(self) -> bool:
        """Whether it is open and has reached its store once; see `tenure.Tenure.is_ready`."""
        return self._opened is not None and not self._opened.is_over and self._app.is_ready

    def ready(self) -> None:
        """Wait until the store was reached; see `tenure.Tenure.ready`."""
        self._portal().call(self._app.ready())

    def health(self, timeout: Duration = 2.0) -> Health:
        """Look at the store and the workers; see `tenure.Tenure.health`."""
        if self._opened is None:
            return unreachable(f"{self._app!r} is not open. Use it inside 'with app:'.")
        try:
            limit = seconds(timeout, "timeout", minimum=0.001)
            look = self._app.health(limit)
            return self._opened.call(look, patience=limit + _ANSWER_SECONDS)
        except StoreError as error:  # its event loop has ended, hangs, or is that of the parent
            return unreachable(str(error))

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        """The URL of the store, without its password."""
        return self._app.url

    @property
    def traits(self) -> Traits:
        """What the store can do and survive; complete once the app is open."""
        return self._app.traits

    def on_event(self, subscriber: Callable[[Event], None]) -> None:
        """Have `subscriber` called with every event. It must be quick; see `tenure.observe`."""
        self._app.on_event(subscriber)

    @takes(BLOCKING_LOCK_DEFAULTS, BlockingLockOptions)
    def lock(
        self, name: str, *, on_lost: OnLost = "raise", **options: Unpack[BlockingLockOptions]
    ) -> Lock:
        """Describe a lock; see `tenure.Tenure.lock`.

        A thread cannot be cancelled: by default a loss raises LeaseLost where the block is left.
        """
        return Lock(
            self._portal, lambda tell: self._app.lock(name, on_lost=tell, **options), on_lost
        )

    @takes(BLOCKING_LOCK_DEFAULTS, BlockingLockOptions)
    def semaphore(
        self,
        name: str,
        limit: int,
        *,
        on_lost: OnLost = "raise",
        strict: bool = False,
        **options: Unpack[BlockingLockOptions],
    ) -> Semaphore:
        """Describe a semaphore; see `tenure.Tenure.semaphore`."""

        def describe(tell: Callable[[tenure.Hold], None]) -> tenure.Semaphore:
            return self._app.semaphore(name, limit, on_lost=tell, strict=strict, **options)

        return Semaphore(self._portal, describe, on_lost)

    @takes(WITH_LOCK_DEFAULTS, WithLockOptions)
    def with_lock(
        self,
        name: str,
        fn: Callable[[*Ts], T],
        *args: *Ts,
        **options: Unpack[WithLockOptions],
    ) -> Outcome[T]:
        """Run `fn(*args)` in this thread if the lock is free; see `tenure.Tenure.with_lock`."""
        _must_be_plain(fn)
        return self._portal().call_with_body(
            lambda: fn(*args), lambda body: self._app.with_lock(name, body, **options)
        )

    @takes(ONCE_DEFAULTS, OnceOptions)
    def once(self, name: str, fn: Callable[[], Any], **options: Unpack[OnceOptions]) -> bool:
        """Run `fn` in this thread unless it has succeeded before; see `tenure.Tenure.once`."""
        _must_be_plain(fn)
        return self._portal().call_with_body(fn, lambda body: self._app.once(name, body, **options))

    @takes(ELECTION_DEFAULTS, ElectionOptions)
    def election(self, name: str, **options: Unpack[ElectionOptions]) -> Election:
        """Describe an election of one leader over all replicas."""
        election = self._app.election(name, **options)
        lock = self.lock(election.lock_name, on_lost="ignore", **options)
        return Election(self._portal, election, lock)

    def locks(self, prefix: str = "", *, limit: int = 1000) -> list[Lease]:
        """Return who holds and who waits for locks whose name starts with `prefix`."""
        return self._portal().call(self._app.locks(prefix, limit=limit))

    def why_lock(self, name: str) -> Why:
        """Return why a lock or semaphore can be had or not: one sentence and the next step."""
        return self._portal().call(self._app.why_lock(name))

    def enqueue(self, request: JobRequest[T], *, within: object = None) -> Job[T]:
        """Store the job that `task.request(...)` describes; see `tenure.Task.enqueue`.

        With `within`, a synchronous connection, as part of your own transaction on it; see
        `tenure.Task.within`.
        """
        portal = self._portal()
        if within is not None or self._has_hooks:
            return self.enqueue_many([request], within=within)[0]
        return Job(portal, portal.call(self._app.enqueue(request)))

    @overload
    def enqueue_many(
        self, requests: Iterable[JobRequest[T]], *, within: object = None
    ) -> list[Job[T]]: ...
    @overload
    def enqueue_many(
        self,
        requests: Iterable[JobRequest[T]],
        *,
        within: object = None,
        return_exceptions: Literal[True],
    ) -> list[Job[T] | UniqueMismatch | UniqueBusy]: ...
    def enqueue_many(
        self,
        requests: Iterable[JobRequest[Any]],
        *,
        within: object = None,
        return_exceptions: bool = False,
    ) -> Any:
        """Store many jobs, 200 in a round trip; see `tenure.Tenure.enqueue_many`."""
        portal = self._portal()
        batch = list(requests)  # in this thread: making them may be work
        if within is not None or self._has_hooks:
            # In this thread: the connection is bound to it, and hooks may read its local state.
            jobs = portal.call(self._open_jobs())
            answers = jobs.enqueue_many_blocking(
                batch, within=within, return_exceptions=return_exceptions, call=portal.call
            )
        elif return_exceptions:
            answers = portal.call(self._app.enqueue_many(batch, return_exceptions=True))
        else:
            answers = portal.call(self._app.enqueue_many(batch))
        return [
            Job(portal, answer) if isinstance(answer, tenure.Job) else answer for answer in answers
        ]

    def on_enqueue(self, hook: OnEnqueue) -> OnEnqueue:
        """Have `hook` called with each job before it is stored; see `tenure.Tenure.on_enqueue`.

        It is called in the thread that enqueues.
        """
        return self._app.on_enqueue(hook)

    def around_enqueue(self, make: AroundEnqueue) -> AroundEnqueue:
        """Have something entered around each enqueue; see `tenure.Tenure.around_enqueue`.

        A plain context manager is entered in the thread that enqueues, outside of async ones.
        """
        return self._app.around_enqueue(make)

    @property
    def _has_hooks(self) -> bool:
        registry = engine_of(self._app).registry
        return bool(registry.enqueue_hooks or registry.around_enqueue)

    async def _open_jobs(self) -> Jobs:
        """Return what stores the jobs of the open app; only its own loop may ask for it."""
        return engine_of(self._app).services().jobs

    def job(self, id: str) -> Job[Any]:  # noqa: A002 - that is what it is
        """Return a job by its id. Raises JobNotFound, or JobUnreadable if its record is damaged."""
        portal = self._portal()
        return Job(portal, portal.call(self._app.job(id)))

    @takes(JOB_FILTER_DEFAULTS, JobFilter)
    def jobs(self, **options: Unpack[JobFilter]) -> JobPage:
        """Return jobs that meet all conditions, newest first.

        A page may be short and still have a `cursor`: pass it on to get the next one.
        """
        portal = self._portal()
        page = portal.call(self._app.jobs(**options))
        return JobPage((Job(portal, job) for job in page), page.cursor)

    def queues(self) -> list[QueueCounts]:
        """Return how each queue stands: waiting, running, for how long the oldest waits."""
        return self._portal().call(self._app.queues())

    def run_stats(self) -> list[RunStats]:
        """Return what the attempts of the last hour did; see `tenure.Tenure.run_stats`."""
        return self._portal().call(self._app.run_stats())

    def replicas(self) -> list[ReplicaRecord]:
        """Return the processes that run work."""
        return self._portal().call(self._app.replicas())

    def pause_queue(self, queue: str, *, until: Until = None, reason: str = "") -> None:
        """Let no job of a queue start until an instant, for so long, or until `resume_queue`."""
        self._portal().call(self._app.pause_queue(queue, until=until, reason=reason))

    def resume_queue(self, queue: str) -> None:
        """End the pause of a queue."""
        self._portal().call(self._app.resume_queue(queue))

    def why_queue(self, queue: str) -> Why:
        """Return why the jobs of a queue run or wait: one sentence and the next step."""
        return self._portal().call(self._app.why_queue(queue))

    def recover(self) -> list[Recovered]:
        """Take jobs from replicas that have expired, now. Workers do it by themselves."""
        return self._portal().call(self._app.recover())

    def delete_job(
        self,
        id: str,  # noqa: A002 - as above
        *,
        cancel: bool = False,
        timeout: Duration | None = None,
    ) -> None:
        """Delete a job for good; see `tenure.Tenure.delete_job`."""
        self._portal().call(self._app.delete_job(id, cancel=cancel, timeout=timeout))

    def prune_jobs(self) -> int:
        """Remove finished jobs whose retention is over. Workers do it by themselves."""
        return self._portal().call(self._app.prune_jobs())

    @property
    def timer_names(self) -> tuple[str, ...]:
        """The names of the timers and schedules that are declared in this process."""
        return self._app.timer_names

    def timer_handle(self, name: str) -> TimerHandle:
        """Return the handle of a timer or schedule; see `tenure.Tenure.timer_handle`."""
        return TimerHandle(self._portal(), self._app.timer_handle(name))

    def timers(self) -> list[tenure.TimerInfo]:
        """Return the state of every timer and schedule that the store knows, by name."""
        return self._portal().call(self._app.timers())

    def pause_timers(self, *, until: Until = None, reason: str = "") -> None:
        """Skip the ticks of all timers until an instant, for so long, or until `resume_timers`."""
        self._portal().call(self._app.pause_timers(until=until, reason=reason))

    def resume_timers(self) -> bool:
        """End the pause of all timers; ticks skipped meanwhile do not run. False without one."""
        return self._portal().call(self._app.resume_timers())

    def timers_paused(self) -> tenure.TimerPause | None:
        """Return the pause of all timers, or None."""
        return self._portal().call(self._app.timers_paused())

    def _portal(self) -> Portal:
        if self._opened is None:
            msg = f"{self._app!r} is not open. Use it inside 'with app:'."
            raise StoreError(msg)
        return self._opened


def _must_be_plain(function: object) -> None:
    if not callable(function) or is_async(function):
        msg = f"fn must be a plain function here, not {function!r}; tenure.Tenure takes async ones."
        raise ConfigError(msg)
