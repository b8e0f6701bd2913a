"""The timer calls of an app: timers, schedules, and what operators do with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from tenure.app.jobs import JobCalls
from tenure.core.calendar.blackouts import Blackout
from tenure.core.durations import Duration, Until
from tenure.core.jobs.retention import RetentionOption
from tenure.core.policy import RetryOption
from tenure.core.schedules.definition import CatchUp, Each, OnUnavailable, Overlap, Plan, RunOptions
from tenure.errors import ConfigError
from tenure.jobs import Jobs, Task, check_declarable, is_declared_again
from tenure.stores.contract import Store
from tenure.timers import (
    After,
    OnCrash,
    Options,
    TimerHandle,
    TimerInfo,
    TimerPause,
    Timers,
    check_alone,
    check_untasked,
    make_plan,
    make_timer_handlers,
    run_options,
    timer_name,
    well_asked,
)

__all__ = ["TimerCalls"]

F = TypeVar("F", bound=Callable[..., Any])


class TimerCalls(JobCalls):
    """What happens at certain times, on one replica of many."""

    @well_asked
    def timer(
        self,
        *,
        every: Duration | None = None,
        cron: str | None = None,
        tz: str = "UTC",
        name: str | None = None,
        each: Each = "cluster",
        limit: int | None = None,
        per_replica: int | None = None,
        timeout: Duration | None = None,
        retention: RetentionOption | None = None,
        retry: RetryOption = 0,
        overlap: Overlap | None = None,
        catch_up: CatchUp = "latest",
        within: Duration | None = None,
        spread: bool | Duration = False,
        jitter: Duration | None = None,
        blackout: Sequence[Blackout] = (),
        after: After | None = None,
        on_crash: OnCrash = "record",
        on_unavailable: OnUnavailable | None = None,
        renamed_from: str | Sequence[str] | None = None,
    ) -> Callable[[F], F]:
        """Run a function at certain times: each tick on one replica, at most once, ever.

            @app.timer(cron="30 2 * * *", tz="Europe/Berlin")
            async def penalties(tick: Tick) -> None: ...

        It runs in `tenure worker`, `app.worker()` and `app.run_timers()`; opening the app starts
        nothing. The function takes a `Tick`, or nothing, and may be async or plain.

        Args:
            every: a period such as "60s"; ticks come at its multiples since 1970.
            cron: or five fields (six with seconds first), or "@daily" and the like.
            tz: the zone in which `cron` is read.
            name: its name in the store; the function's own by default.
            each: "cluster": one replica runs a tick. "replica": every replica has its own ticks.
            limit: the most unfinished runs over all replicas.
            per_replica: the most unfinished runs on one replica.
            timeout: the longest a run may take; it is then cancelled and has failed.
            retention: how long finished runs are kept, or a `Retention` by outcome; by default an
                hour or 100 periods, whichever is longer.
            retry: how often it is tried again after an error, or a `Backoff`; only until the next
                tick is due.
            overlap: if a run is unfinished at the next tick: "skip" that one (the default, unless
                there is a limit), "allow" both, "queue_one" after it, or "cancel_previous".
            catch_up: of ticks that nobody ran in time, run the "latest", "none" or "all" (of the
                last ten).
            within: how late a tick may run at all.
            spread: delay all its ticks by the same time, which follows from its name: up to so
                long; True: up to its period.
            jitter: delay each run by a random time of up to so long.
            blackout: when it must not run; see `tenure.blackout`.
            after: "completion": `every` counts from the end of the last run.
            on_crash: a run that is lost with its replica is only "record"ed, or "rerun".
            on_unavailable: what a tick does while the store is down: "wait" for it, or "run" on
                every replica, without a job, fence or limit (`tick.unlocked`). By default it waits;
                with `each="replica"` and without a limit it runs.
            renamed_from: the name, or names, that it had before.
        """
        options = Options(
            every=every,
            cron=cron,
            tz=tz,
            each=each,
            limit=limit,
            per_replica=per_replica,
            overlap=overlap,
            catch_up=catch_up,
            within=within,
            spread=spread,
            jitter=jitter,
            blackout=blackout,
            after=after,
            on_unavailable=on_unavailable,
            renamed_from=renamed_from,
        )

        def declare(fn: F) -> F:
            check_untasked(fn)
            check_declarable(fn, "@app.timer(...)")
            own = timer_name(fn, name)
            runs = run_options(own, timeout=timeout, on_crash=on_crash)
            now = self._store.clock.wall()
            plan = make_plan("timer", own, options, runs, now=now, retention=retention)
            handlers = make_timer_handlers(fn, plan, retry)
            self._add_plan(plan, again=is_declared_again(self._timed.get(own), fn))
            self._handlers.update(handlers)
            self._timed[own] = fn
            return fn

        return declare

    @well_asked
    def schedule(
        self,
        task: Task[..., Any],
        *,
        every: Duration | None = None,
        cron: str | None = None,
        tz: str = "UTC",
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        name: str | None = None,
        limit: int | None = None,
        overlap: Overlap | None = None,
        catch_up: CatchUp = "latest",
        within: Duration | None = None,
        spread: bool | Duration = False,
        blackout: Sequence[Blackout] = (),
        after: After | None = None,
        renamed_from: str | Sequence[str] | None = None,
    ) -> TimerHandle:
        """Enqueue a durable job at certain times, once per tick.

            app.schedule(build_report, cron="0 6 * * 1", args=("weekly",))

        Options of the job (queue, priority, time-out...) are the task's: `task.using(...)`. The
        others are those of `timer`. By default a tick is skipped while the job of an earlier one
        is unfinished; overlap="allow" enqueues one regardless.
        """
        if not hasattr(task, "request"):
            msg = (
                f"schedule takes a task, not {task!r}. Put @app.task above the function, or use "
                "@app.timer, which runs it without a job of its own."
            )
            raise ConfigError(msg)
        request = task.request(*args, **(kwargs or {})).new
        if request.unique is not None or request.delay or request.at is not None:
            msg = (
                "a schedule says itself when its jobs run, and how many there may be: leave out "
                "unique, delay and at."
            )
            raise ConfigError(msg)
        options = Options(
            every=every,
            cron=cron,
            tz=tz,
            limit=limit,
            overlap=overlap,
            catch_up=catch_up,
            within=within,
            spread=spread,
            blackout=blackout,
            after=after,
            renamed_from=renamed_from,
        )
        runs = RunOptions(
            task=request.task,
            queue=request.queue,
            priority=request.priority,
            payload=request.payload,
            tags=request.tags,
            timeout=request.timeout,
            retention=request.retention,
            retention_failed=request.retention_failed,
            options=request.options,
        )
        own = timer_name(task, name)
        now = self._store.clock.wall()
        known = self._plans.get(own)
        again = (
            known is not None
            and known.definition.run.task == runs.task
            and is_declared_again(task, task)
        )
        self._add_plan(make_plan("schedule", own, options, runs, now=now), again=again)
        self._queues.setdefault(runs.queue)
        return self.timer_handle(own)

    @property
    def timer_names(self) -> tuple[str, ...]:
        """The names of the timers and schedules that are declared in this process."""
        return tuple(sorted(self._plans))

    def timer_handle(self, name: str) -> TimerHandle:
        """Return the handle of a timer or schedule, also of one that another process declares.

            await app.timer_handle("sync_orders").pause(until="2h", reason="migration")

        Calls on the handle raise TimerNotFound if the store does not know the name.
        """
        return self._timers().handle(name)

    async def timers(self) -> list[TimerInfo]:
        """Return the state of every timer and schedule that the store knows, by name."""
        return await self._timers().infos()

    async def pause_timers(self, *, until: Until = None, reason: str = "") -> None:
        """Skip the ticks of all timers until an instant, for so long, or until `resume_timers`."""
        await self._timers().pause(until, reason)

    async def resume_timers(self) -> bool:
        """End the pause of all timers; ticks skipped meanwhile do not run. False without one."""
        return await self._timers().resume()

    async def timers_paused(self) -> TimerPause | None:
        """Return the pause of all timers, or None."""
        return await self._timers().paused()

    async def run_timers(self) -> None:
        """Run timers and schedules, and nothing else, until cancelled, SIGTERM or SIGINT.

        Opens the app if it is not open. Raises ConfigError if they run in this process already.
        """
        if not self._plans:
            msg = "there are no timers: declare them with @app.timer before run_timers()."
            raise ConfigError(msg)
        await self.run_worker(timers="only")

    def _add_plan(self, plan: Plan, *, again: bool) -> None:
        """Add a timer or schedule; `again` replaces the one of that name, in a notebook."""
        if self._are_plans_taken:
            msg = (
                f"a worker of this app runs already, and would never learn of {plan.name!r}. "
                "Declare timers and schedules before it starts: where their modules are imported; "
                "Tenure(imports=...) names such modules."
            )
            raise ConfigError(msg)
        others = {name: one for name, one in self._plans.items() if not again or name != plan.name}
        check_alone(plan, others)
        self._plans[plan.name] = plan

    def _timers(self) -> Timers:
        return Timers(self._plans, self._reach_timers)

    def _reach_timers(self) -> tuple[Store, Jobs]:
        services = self._services()
        return services.store, services.jobs
