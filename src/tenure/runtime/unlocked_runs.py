"""Runs of timers while the store does not answer, for timers that ask for that.

Such a run has no job, no fence and no limit, and other replicas may run the same tick. It is told
at once in an event, and enters the history when the store is back (`Outage`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any

from tenure.core.clock import Clock
from tenure.core.schedules.advancing import Advance
from tenure.core.schedules.definition import Definition, Plan
from tenure.core.schedules.documents import UNLOCKED, Decision
from tenure.core.schedules.ticking import Step
from tenure.observe.events import Events, TickSkipped, TickUnlocked
from tenure.runtime.attempt import Handler
from tenure.runtime.threads import Threads

__all__ = ["Outage", "UnlockedRuns", "runs_unlocked", "unlocked_since"]

log = logging.getLogger("tenure")

unlocked_since: ContextVar[int] = ContextVar("tenure_unlocked_since")
"""In a run without a job: the store's instant at which it began, as far as it is known."""


def runs_unlocked(definition: Definition) -> bool:
    """Return whether ticks run while the store is down.

    A replica's own ticks compete with no others, so they always do, unless a limit counts them.
    """
    if definition.kind != "timer" or definition.rests:
        return False
    is_free = definition.each == "replica" and definition.limit is None
    return definition.on_unavailable == "run" or is_free


@dataclass(eq=False, slots=True)
class Outage:
    """What a timer has run while the store did not answer."""

    move: Advance
    """The first tick of the outage. It may have been decided: its reply is missing."""
    ran: Decision | None = None
    recorded: Decision | None = None
    """What of it is in the history."""

    def add(self, tick: int, replica: str) -> None:
        """Count a tick that ran."""
        first = tick if self.ran is None else self.ran.first
        ticks = 1 if self.ran is None else self.ran.ticks + 1
        self.ran = Decision(
            outcome="ran", reason=UNLOCKED, first=first, last=tick, ticks=ticks, replica=replica
        )


class UnlockedRuns:
    """Runs without a job, in this process."""

    def __init__(
        self,
        clock: Clock,
        events: Events,
        handlers: Mapping[str, Handler],
        *,
        is_running: Callable[[str], bool],
        on_freed: Callable[[], None],
    ) -> None:
        """`is_running` tells if a job of a timer runs here; `on_freed` is called after each run."""
        self._clock = clock
        self._events = events
        self._handlers = handlers
        self._is_running = is_running
        self._on_freed = on_freed
        self._threads = Threads()
        self._tasks: dict[asyncio.Task[None], str] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, plan: Plan, step: Step, *, previous: int, now: int) -> bool:
        """Start the run of a tick, unless one is unfinished here; say whether it did."""
        name, definition = plan.name, plan.definition
        is_busy = name in self._tasks.values() or self._is_running(name)
        if is_busy and definition.overlap != "allow":
            self._events.emit(TickSkipped(name, "overlap"))
            return False
        self._events.emit(TickUnlocked(name, step.to))
        handler = self._handlers[plan.own_tasks[0]]
        arguments = (step.to, step.due, previous)
        work = self._run(name, handler, arguments, definition.run.timeout, now)
        task = asyncio.ensure_future(work)
        self._tasks[task] = name
        task.add_done_callback(self._ended)
        return True

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        self._on_freed()

    async def close(self) -> None:
        """Cancel what still runs; plain functions cannot be stopped, and go on."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._threads.close()

    async def _run(
        self,
        name: str,
        handler: Handler,
        arguments: tuple[int, int, int],
        timeout: float | None,
        now: int,
    ) -> None:
        unlocked_since.set(now)
        try:
            await self._in_time(self._call(handler, arguments), timeout)
        except TimeoutError:
            log.error(  # noqa: TRY400 - where it was waited for says nothing
                "timer %r ran without the store for longer than max_run_time", name
            )
        except Exception:
            log.exception("timer %r failed in a run without the store", name)

    async def _call(self, handler: Handler, arguments: tuple[int, int, int]) -> Any:
        if handler.is_async:
            return await handler.function(*arguments)
        return await self._threads.run(partial(handler.function, *arguments))

    async def _in_time(self, work: Any, timeout: float | None) -> None:
        if timeout is None:
            await work
            return
        running = asyncio.ensure_future(work)
        is_over = asyncio.Event()
        running.add_done_callback(lambda _: is_over.set())
        try:
            if not await self._clock.wait(is_over, timeout):
                raise TimeoutError
            running.result()
        finally:
            running.cancel()
