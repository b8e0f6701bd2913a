"""The timer calls of an app: what `Tenure.timer`, `schedule` and their siblings do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from tenure.app.engine import Engine
from tenure.core.schedules.definition import Plan, RunOptions
from tenure.core.schedules.options import ScheduleOptions, TimerOptions
from tenure.errors import ConfigError
from tenure.jobs import Jobs, Task, check_declarable, is_declared_again
from tenure.stores.contract import Store
from tenure.timers import (
    TimerHandle,
    Timers,
    check_alone,
    check_untasked,
    make_plan,
    make_timer_handlers,
    run_options,
    timer_name,
)

__all__ = ["TimerCalls"]

F = TypeVar("F", bound=Callable[..., Any])


class TimerCalls:
    """Declares timers and schedules. `service` has their handles, and reads and pauses them."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._registry = engine.registry
        self.service = Timers(engine.registry.plans, self._reach)

    def timer(self, options: TimerOptions) -> Callable[[F], F]:
        """Return the decorator that declares a function as a timer."""

        def declare(fn: F) -> F:
            check_untasked(fn)
            check_declarable(fn, "@app.timer(...)")
            name = timer_name(fn, options["name"])
            runs = run_options(name, timeout=options["timeout"], on_crash=options["on_crash"])
            plan = make_plan("timer", name, options, runs, now=self._now())
            handlers = make_timer_handlers(fn, plan, options["retry"], options["expected"])
            former = self._registry.timer_functions.get(name)
            self._check_addable(plan, again=is_declared_again(former, fn))
            self._registry.add_timer(plan, fn, handlers)
            return fn

        return declare

    def schedule(
        self,
        task: Task[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        options: ScheduleOptions,
    ) -> TimerHandle:
        """Declare that a job of a task is enqueued at certain times."""
        if not hasattr(task, "request"):
            msg = (
                f"schedule takes a task, not {task!r}. Put @app.task above the function, or use "
                "@app.timer, which runs it without a job of its own."
            )
            raise ConfigError(msg)
        request = task.request(*args, **kwargs).draft
        if request.unique is not None or request.delay or request.at is not None:
            msg = (
                "a schedule says itself when its jobs run, and how many there may be: leave out "
                "unique, delay and at."
            )
            raise ConfigError(msg)
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
        name = timer_name(task, options["name"])
        plan = make_plan("schedule", name, options, runs, now=self._now())
        former = self._registry.plans.get(name)
        again = (
            former is not None
            and former.definition.run.task == runs.task
            and is_declared_again(task, task)
        )
        self._check_addable(plan, again=again)
        self._registry.add_schedule(plan)
        return self.service.handle(name)

    def check_any(self) -> None:
        """Raise ConfigError if no timer and no schedule is declared."""
        if not self._registry.plans:
            msg = "there are no timers: declare them with @app.timer before run_timers()."
            raise ConfigError(msg)

    def _check_addable(self, plan: Plan, *, again: bool) -> None:
        """Raise ConfigError for a plan that comes too late, or whose name is taken.

        `again`: it replaces the plan of that name, in a notebook.
        """
        if self._engine.work.has_fixed_plans:
            msg = (
                f"a worker of this app runs already, and would never learn of {plan.name!r}. "
                "Declare timers and schedules before it starts: where their modules are imported; "
                "Tenure(imports=...) names such modules."
            )
            raise ConfigError(msg)
        plans = self._registry.plans
        check_alone(
            plan,
            {name: other for name, other in plans.items() if not again or name != plan.name},
        )

    def _now(self) -> int:
        return self._engine.store.clock.wall()

    def _reach(self) -> tuple[Store, Jobs]:
        services = self._engine.services()
        return services.store, services.jobs
