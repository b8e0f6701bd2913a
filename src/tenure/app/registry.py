"""What an app declares: its tasks, timers and schedules, and what surrounds their attempts.

Nothing here is open: a registry may be shared by all copies of an app, each on its own event loop.
`Tenure.task` and its siblings fill it. Workers, the HTTP routes and the command line read it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tenure.core.schedules.definition import Plan
    from tenure.jobs import AroundEnqueue, OnEnqueue
    from tenure.runtime.attempts.handler import Around, Handler

__all__ = ["Registry"]


class Registry:
    """The declarations of an app, and of its copies."""

    def __init__(self) -> None:
        self.handlers: dict[str, Handler] = {}
        """How to run each task, by its name; runs of timers have tasks of their own."""
        self.queues: dict[str, None] = {}
        """The queues of the tasks, in the order in which they were declared."""
        self.middleware: list[Around] = []
        """What is entered before each attempt; the outermost comes first."""
        self.enqueue_hooks: list[OnEnqueue] = []
        """What is called with each job before it is stored."""
        self.around_enqueue: list[AroundEnqueue] = []
        """What is entered around each call that stores jobs; the outermost comes first."""
        self.plans: dict[str, Plan] = {}
        """The timers and schedules, by name."""
        self.timer_functions: dict[str, object] = {}
        """The functions of the timers, by name."""

    def add_task(self, handler: Handler, queue: str) -> None:
        """Add a task, or replace the one of that name."""
        self.handlers[handler.name] = handler
        self.queues.setdefault(queue)

    def add_schedule(self, plan: Plan) -> None:
        """Add a schedule, or replace the one of that name.

        Its jobs may have a queue of their own.
        """
        self.plans[plan.name] = plan
        self.queues.setdefault(plan.definition.run.queue)

    def add_timer(self, plan: Plan, function: object, handlers: dict[str, Handler]) -> None:
        """Add a timer, or replace the one of that name; `handlers` run its ticks."""
        self.plans[plan.name] = plan
        self.handlers.update(handlers)
        self.timer_functions[plan.name] = function

    @property
    def runs_processes(self) -> bool:
        """Whether a task runs in child processes."""
        return any(handler.executor == "process" for handler in self.handlers.values())
