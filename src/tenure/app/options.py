"""The options of the calls of an app: their types, defaults and meaning, each written once.

A method takes `**options: Unpack[LockOptions]`, which type checkers and editors expand. The
decorator `tenure.app.signature.takes` does the same at run time. `tenure.blocking` shares these
types. Those of timers and schedules are in `tenure.core.schedules.options`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypedDict, cast

from tenure.core.clock import Clock
from tenure.core.durations import Duration
from tenure.core.environment import Scope
from tenure.core.jobs.overdue_queues import QueueExpected
from tenure.core.jobs.retention import RetentionOption
from tenure.core.jobs.retry_policy import Backoff, RetryOption
from tenure.core.jobs.states import JobState
from tenure.core.lease_policy import TTL_DEFAULT
from tenure.core.leases import Meta
from tenure.locks.hold import OnLost
from tenure.locks.lock import OnUnavailable
from tenure.stores.contract import Migrate

if TYPE_CHECKING:
    from tenure.runtime.attempts.handler import Executor

__all__ = [
    "APP_DEFAULTS",
    "BLOCKING_LOCK_DEFAULTS",
    "ELECTION_DEFAULTS",
    "JOB_FILTER_DEFAULTS",
    "LOCK_DEFAULTS",
    "ONCE_DEFAULTS",
    "TASK_DEFAULTS",
    "WITH_LOCK_DEFAULTS",
    "WORKER_DEFAULTS",
    "AppOptions",
    "BlockingLockOptions",
    "Connect",
    "ElectionOptions",
    "JobFilter",
    "Lifespan",
    "LockOptions",
    "OnceOptions",
    "Queues",
    "TaskOptions",
    "Timers",
    "WithLockOptions",
    "WorkerOptions",
]

Connect: TypeAlias = Literal["eager", "lazy"]
"""What opening does about a store that is down: raise, or go on trying."""

Lifespan: TypeAlias = Callable[[Any], AbstractAsyncContextManager[Any]]
"""Takes the app, and returns what a process that runs work opens once."""

Queues: TypeAlias = Sequence[str] | Mapping[str, int] | None
"""The queues of a worker: in strict order, with weights, or those of the known tasks in turn."""

Timers: TypeAlias = bool | Literal["only"]
"""Whether a worker runs timers beside its jobs, not at all, or nothing else."""


class AppOptions(TypedDict, total=False):
    """The settings of an app.

    Options:
        namespace: keeps several services apart on one store ("tenure").
        migrate: "auto" (the default) brings the store's format up to date when opening, "check"
            only looks.
        require: the weakest guarantee grade to accept, "A" to "D"; opening fails on a weaker one.
        scope: how far the store must reach; opening fails on one that does not. "fleet" refuses
            stores that only the processes of one host see, such as an SQLite file.
        connect: what opening does about a store that is down. "eager" raises StoreUnavailable.
            "lazy" goes on trying in the background: the service starts, and calls raise
            StoreUnavailable until the store is there. By default a worker is lazy, all else eager.
        replica_ttl: how long the jobs of a worker that died wait before others take them (10 s).
        loss_budget: how often a job may be lost with its worker and still run again (3).
        isolate_after: after so many losses a job runs alone: it may be what kills its workers (2).
        retention: how long finished jobs are kept: one time for all, or a `Retention` by outcome
            (succeeded and cancelled 1 day, failed 7 days); a minute at least.
        payload_limit: the most bytes of a job's arguments (256 KiB).
        result_limit: the most bytes of a job's result, or of a checkpoint (1 MiB).
        grace: how long a worker that is asked to stop lets its jobs finish (25 s).
        long_job: a job without a time-out that runs for longer is reported once, by the event
            `JobRunsLong` and a warning (1 h). Nothing stops it.
        queue_expected: how long the oldest due job of a queue may wait (5 min): one time for all
            queues, or {"mail": "1m", "*": "1h"}. A queue that exceeds it is reported once, by the
            event `QueueDelayed` and a warning, and makes `app.health()` degraded.
        process_memory: the most memory of a child process that runs a job of a task with
            executor="process", in bytes or as "512MB" (no limit).
        process_workers: the most such child processes in each worker (as many as cores).
        process_start: how long such a child may take to start and to import the task (30 s). A
            task's own timeout begins with its handler.
        imports: modules that declare tasks; a worker imports them before it starts.
        lifespan: a function that takes the app and returns an async context manager. A process
            that runs work opens it once; what it yields is `app.state`.
        clock: a virtual clock for tests (`tenure.testing.ManualClock`).
    """

    namespace: str | None
    migrate: Migrate | None
    require: str | None
    scope: Scope | None
    connect: Connect | None
    replica_ttl: Duration | None
    loss_budget: int | None
    isolate_after: int | None
    retention: RetentionOption | None
    payload_limit: int | None
    result_limit: int | None
    grace: Duration | None
    long_job: Duration | None
    queue_expected: QueueExpected | None
    process_memory: int | str | None
    process_workers: int | None
    process_start: Duration | None
    imports: Sequence[str] | None
    lifespan: Lifespan | None
    clock: Clock | None


class BlockingLockOptions(TypedDict, total=False):
    """How a lock is taken and held, also by a thread.

    Options:
        ttl: how long the lock outlives a holder that died (30 s); a living one is renewed.
        wait: the most to wait when entering; None (the default) waits for ever, 0 tries once.
        min_hold: keep others out at least this long, even if released earlier (0): so a quick job
            is not run again by a replica whose clock is a little late.
        max_hold: stop renewing after this long, so that a stuck holder loses the lock.
        expected: how long the lock is usually held. One that is held for 1.5 times as long is
            reported once, by the event `LockHeldLong` and a warning; nothing stops it. None (the
            default): no alarm.
        meta: text shown to others by `locks()`, beside host and process id.
    """

    ttl: Duration
    wait: Duration | None
    min_hold: Duration
    max_hold: Duration | None
    expected: Duration | None
    meta: Meta | None


class LockOptions(BlockingLockOptions, total=False):
    """How a lock is taken and held.

    Options:
        on_lost: what happens to an `async with` block when the lock is lost. "cancel" (the default)
            cancels it and raises LeaseLost; "raise" only raises at its end; a function is called
            with the hold; "ignore" leaves it at an event.
    """

    on_lost: OnLost


class WithLockOptions(TypedDict, total=False):
    """How a function is run under a lock.

    Options:
        ttl: how long the lock outlives a replica that died (30 s).
        wait: the most to wait for the lock; the default of 0 skips at once.
        min_hold: keep others out at least this long, even if the function is done earlier (0).
        expected: how long the function usually runs; at 1.5 times of it, the event `LockHeldLong`
            and a warning (None: no alarm).
        on_unavailable: if the store cannot be reached, "raise" StoreUnavailable (the default),
            "skip", or "run" without the lock; each such run emits the event RanUnlocked and logs a
            WARNING.
    """

    ttl: Duration
    wait: Duration | None
    min_hold: Duration
    expected: Duration | None
    on_unavailable: OnUnavailable


class OnceOptions(TypedDict, total=False):
    """How something runs once.

    Options:
        version: a number or a short word (1). A new version runs once more.
        ttl: how long the lock outlives a replica that died (30 s).
        wait: the most to wait for another replica that runs it; None (the default): for ever.
        expected: how long the function usually runs; at 1.5 times of it, the event `LockHeldLong`
            and a warning (None: no alarm).
    """

    version: int | str
    ttl: Duration
    wait: Duration | None
    expected: Duration | None


class ElectionOptions(TypedDict, total=False):
    """How a leader is elected.

    Options:
        ttl: how long a leader that died keeps its term (15 s); a living one renews it.
        meta: text shown to others by `locks()` and `Election.leader`.
    """

    ttl: Duration
    meta: Meta | None


class TaskOptions(TypedDict, total=False):
    """What a task is, and what its jobs are unless `task.using` says otherwise.

    Options:
        name: its name in the store; the function's own by default.
        queue: which workers see its jobs ("default").
        timeout: the longest an attempt may take; it is then cancelled and counts as a failure.
        expected: how long an attempt usually takes. One that takes 1.5 times as long is reported
            once, by the event `JobRunsLong` and a warning. Nothing stops it. Without it, the
            `long_job` of the app counts.
        retry: how often a failed job is tried again, or a `Backoff`; by default 19 times over 4 to
            8 hours. 0 or None: never.
        priority: 0 to 9; 0 is served first (5).
        retention: how long finished jobs are kept, or a `Retention` by outcome; a minute at least.
            The app's by default.
        executor: where a plain function runs: in a "thread", or in a child "process", which is for
            CPU-bound work and can be killed.
    """

    name: str | None
    queue: str
    timeout: Duration | None
    expected: Duration | None
    retry: RetryOption
    priority: int
    retention: RetentionOption | None
    executor: Executor


class WorkerOptions(TypedDict, total=False):
    """What a worker runs.

    Options:
        queues: the queues to serve. By default those of the known tasks, which get the same number
            of starts while they have jobs. {"urgent": 3, "default": 1}: starts in proportion to the
            weights. ["urgent", "default"]: strictly in this order, so a later queue waits for as
            long as an earlier one has jobs.
        concurrency: how many jobs run at a time (100).
        timers: whether timers and schedules tick here (True); "only": they do, and no jobs are
            taken.
        timer_concurrency: how many runs of timers there are at a time, beside the jobs (20). A tick
            for which there is no slot is left to other workers, or waits.
        grace: how long leaving lets running jobs finish; the app's setting by default.
        burst: stop by itself as soon as no job is due and none runs here; `ended()` waits for that.
            Jobs that are delayed, or wait for their next try, stay in the store. Timers do not
            tick.
    """

    queues: Queues
    concurrency: int
    timers: Timers
    timer_concurrency: int
    grace: Duration | None
    burst: bool


class JobFilter(TypedDict, total=False):
    """Which jobs are listed: those that fit every condition.

    Options:
        state: "waiting", "running", "succeeded", "failed" or "cancelled".
        task: the name of a task.
        queue: the name of a queue.
        tag: one of the job's tags.
        parent: the id of the job whose handler has enqueued it; not together with `tag`.
        replica: the id of the replica that runs it.
        timers: whether runs of timers are listed, too; they always are if their task (`@name`) or
            queue is named.
        limit: the most jobs on the page (50).
        cursor: the `cursor` of the page before.
    """

    state: JobState | None
    task: str | None
    queue: str | None
    tag: str | None
    parent: str | None
    replica: str | None
    timers: bool
    limit: int
    cursor: str | None


# What is None here has its default from the environment, or from `core.settings`.
APP_DEFAULTS: Final[AppOptions] = cast("AppOptions", dict.fromkeys(AppOptions.__annotations__))
BLOCKING_LOCK_DEFAULTS: Final[BlockingLockOptions] = {
    "ttl": TTL_DEFAULT,
    "wait": None,
    "min_hold": 0,
    "max_hold": None,
    "expected": None,
    "meta": None,
}
LOCK_DEFAULTS: Final[LockOptions] = {**BLOCKING_LOCK_DEFAULTS, "on_lost": "cancel"}
WITH_LOCK_DEFAULTS: Final[WithLockOptions] = {
    "ttl": TTL_DEFAULT,
    "wait": 0,
    "min_hold": 0,
    "expected": None,
    "on_unavailable": "raise",
}
ONCE_DEFAULTS: Final[OnceOptions] = {
    "version": 1,
    "ttl": TTL_DEFAULT,
    "wait": None,
    "expected": None,
}
ELECTION_DEFAULTS: Final[ElectionOptions] = {"ttl": 15, "meta": None}
TASK_DEFAULTS: Final[TaskOptions] = {
    "name": None,
    "queue": "default",
    "timeout": None,
    "expected": None,
    "retry": Backoff(),
    "priority": 5,
    "retention": None,
    "executor": "auto",
}
WORKER_DEFAULTS: Final[WorkerOptions] = {
    "queues": None,
    "concurrency": 100,
    "timers": True,
    "timer_concurrency": 20,
    "grace": None,
    "burst": False,
}
JOB_FILTER_DEFAULTS: Final[JobFilter] = {
    "state": None,
    "task": None,
    "queue": None,
    "tag": None,
    "parent": None,
    "replica": None,
    "timers": False,
    "limit": 50,
    "cursor": None,
}
