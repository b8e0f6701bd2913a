"""`Tenure`, the composition root: one store, and everything that stands on it."""

from __future__ import annotations

from collections.abc import Sequence

from tenure.app.lifecycle import Connect, Lifespan
from tenure.app.locks import LockCalls
from tenure.app.timers import TimerCalls
from tenure.core.clock import Clock
from tenure.core.durations import Duration
from tenure.core.environment import Scope
from tenure.core.jobs.retention import RetentionOption
from tenure.stores.contract import LeaseStore, Migrate

__all__ = ["Tenure"]


class Tenure(LockCalls, TimerCalls):
    """Shares work safely between the replicas of a service.

        app = Tenure()                      # url=, else $TENURE_URL, else sqlite:///tenure.db
        async with app:
            async with app.lock("invoice:42") as hold:
                await charge(fence=hold.fence)

    Opening connects to the store and starts no work of its own. Every setting but `clock` and
    `lifespan` may also come from the environment, as TENURE_REPLICA_TTL and so on; an argument
    wins.

    Args:
        url: `sqlite:///file.db`, `redis://host:6379/0`, `postgresql://user@host/db`, `memory://`;
            or a store object, which then brings its own namespace and clock.
        namespace: keeps several services apart on one store (default "tenure").
        migrate: "auto" brings the store's format up to date when opening, "check" only looks.
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

    def __init__(
        self,
        url: str | LeaseStore | None = None,
        *,
        namespace: str | None = None,
        migrate: Migrate | None = None,
        require: str | None = None,
        scope: Scope | None = None,
        connect: Connect | None = None,
        replica_ttl: Duration | None = None,
        loss_budget: int | None = None,
        isolate_after: int | None = None,
        retention: RetentionOption | None = None,
        payload_limit: int | None = None,
        result_limit: int | None = None,
        grace: Duration | None = None,
        long_job: Duration | None = None,
        process_memory: int | str | None = None,
        process_workers: int | None = None,
        process_start: Duration | None = None,
        imports: Sequence[str] | None = None,
        lifespan: Lifespan | None = None,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(
            url,
            namespace=namespace,
            migrate=migrate,
            require=require,
            scope=scope,
            connect=connect,
            replica_ttl=replica_ttl,
            loss_budget=loss_budget,
            isolate_after=isolate_after,
            retention=retention,
            payload_limit=payload_limit,
            result_limit=result_limit,
            grace=grace,
            long_job=long_job,
            process_memory=process_memory,
            process_workers=process_workers,
            process_start=process_start,
            imports=imports,
            lifespan=lifespan,
            clock=clock,
        )
