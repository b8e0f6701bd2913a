"""Runs of timers while the store does not answer, for timers with on_unavailable="run".

Such a run has no job, no fence and no limit, and other replicas may run the same tick. An event
reports it at once, and `Outage` records it in the history when the store answers again.

A run counts until its function has returned: a time-out, or the end of the worker, only asks it to
stop. So overlap and timer slots also count runs that ignore a request to stop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, TypeAlias

from msgspec.structs import replace

from tenure.core.clock import Clock
from tenure.core.schedules.definition import Definition, Plan
from tenure.core.schedules.documents import UNLOCKED, Decision
from tenure.core.schedules.steps import Step
from tenure.core.schedules.ticks import Advance
from tenure.observe.events import Events
from tenure.observe.jobs import HandlerStuck
from tenure.observe.timers import TickSkipped, TickUnlocked
from tenure.runtime.attempts.attempt import STUCK_AFTER, ends_more_than_the_attempt
from tenure.runtime.attempts.expected_times import ExpectedTimes
from tenure.runtime.attempts.handler import Handler
from tenure.runtime.attempts.threads import Threads
from tenure.runtime.attempts.time_limit import set_alarm

__all__ = ["Outage", "UnlockedRuns", "runs_unlocked", "unlocked_since"]

log = logging.getLogger("tenure")

unlocked_since: ContextVar[int] = ContextVar("tenure_unlocked_since")
"""In a run without a job: when it began, by the replica's estimate of the store's clock."""


def runs_unlocked(definition: Definition) -> bool:
    """Return whether ticks run while the store is down.

    The ticks of a timer with each="replica" are not shared, so by default they do, unless it has a
    limit, which only the store can count.
    """
    if definition.kind != "timer" or definition.rests:
        return False
    if definition.on_unavailable is not None:
        return definition.on_unavailable == "run"
    return definition.each == "replica" and definition.limit is None


@dataclass(eq=False, slots=True)
class Outage:
    """The ticks that a timer has decided while the store did not answer."""

    move: Advance
    """The move of the first tick. The store may have carried it out, as its reply was lost."""
    seen: int
    """The cursor before that move."""
    upto: int = 0
    """The last tick that was decided without the store."""
    has_run_first: bool = False
    """Whether the first tick has run in this process."""
    _lines: dict[tuple[str, str], Decision] = field(default_factory=dict)

    def ran(self, tick: int, replica: str) -> None:
        """Record a tick that runs without the store."""
        self.has_run_first |= tick == self.move.to
        line = Decision(outcome="ran", reason=UNLOCKED, first=tick, last=tick, replica=replica)
        self.note(line)

    def skipped(self, tick: int, reason: str) -> None:
        """Record a tick that does not run."""
        self.note(Decision(outcome="skipped", reason=reason, first=tick, last=tick))

    def note(self, decision: Decision) -> None:
        """Record the outcome of ticks. Ticks with the same outcome share one line."""
        key = (decision.outcome, decision.reason)
        line = self._lines.get(key)
        if line is not None:
            ticks = line.ticks + decision.ticks
            decision = replace(line, last=decision.last, ticks=ticks)
        self._lines[key] = decision

    def take_lines(self) -> list[Decision]:
        """Return the lines recorded since the last call, in the order of their first ticks."""
        lines = sorted(self._lines.values(), key=lambda line: line.first)
        self._lines.clear()
        return lines


StopReason: TypeAlias = Literal["timed out", "shutting down", "abandoned"]


@dataclass(eq=False, slots=True)
class _Run:
    """One unfinished run."""

    timer: str
    handler: Handler
    task: asyncio.Task[None] | None = None
    stop_reason: StopReason | None = None

    def stop(self, reason: StopReason) -> None:
        """Ask it to stop, once. A plain function cannot see that, because it has no job context."""
        if self.stop_reason is not None:
            return
        self.stop_reason = reason
        if self.handler.is_async and self.task is not None:
            # Not before its first step: a task that never began would end without a trace.
            self.task.get_loop().call_soon(self.task.cancel)


class UnlockedRuns:
    """Runs without a job, in this process."""

    def __init__(
        self,
        clock: Clock,
        events: Events,
        handlers: Mapping[str, Handler],
        *,
        expected_times: ExpectedTimes,
        is_running: Callable[[str], bool],
        on_ended: Callable[[str], None],
    ) -> None:
        """`is_running` says whether a timer has a job here; `on_ended` gets the timer of a run."""
        self._clock = clock
        self._events = events
        self._handlers = handlers
        self._expected_times = expected_times
        self._is_running = is_running
        self._on_ended = on_ended
        self._threads = Threads()
        self._runs: dict[_Run, None] = {}

    def __len__(self) -> int:
        return len(self._runs)

    @property
    def timers(self) -> list[str]:
        """The timers that have an unfinished run, each once."""
        return list(dict.fromkeys(run.timer for run in self._runs))

    def start(self, plan: Plan, step: Step, *, previous: int, now: int) -> bool:
        """Start the run of a tick, unless another run is unfinished. Returns whether it started."""
        name, definition = plan.name, plan.definition
        if self.is_full(plan):
            self._events.emit(TickSkipped(name, "overlap"))
            return False
        self._events.emit(TickUnlocked(name, step.to))
        run = _Run(name, self._handlers[plan.own_tasks[0]])
        arguments = (step.to, step.due, previous)
        work = self._attempt(run, arguments, definition.run.timeout, now)
        run.task = asyncio.ensure_future(work)
        self._runs[run] = None
        run.task.add_done_callback(lambda _: self._ended(run))
        return True

    def is_full(self, plan: Plan) -> bool:
        """Return whether an unfinished run in this process prevents another one."""
        if plan.definition.overlap == "allow":
            return False
        return plan.name in self.timers or self._is_running(plan.name)

    def stop(self) -> None:
        """Ask all runs to stop, because the worker stops."""
        for run in list(self._runs):
            run.stop("shutting down")

    def abandon(self) -> None:
        """Report runs that do not stop, and wait for them no longer."""
        for run in list(self._runs):
            self._report_stuck(run, "shutting down")
            run.stop_reason = "abandoned"
            if run.task is not None:
                run.task.cancel()
        self._threads.close()

    def _ended(self, run: _Run) -> None:
        del self._runs[run]
        self._on_ended(run.timer)

    async def _attempt(
        self, run: _Run, arguments: tuple[int, int, int], timeout: float | None, now: int
    ) -> None:
        """Run the function to its end, and log whatever it raises."""
        unlocked_since.set(now)
        alarms = []
        if (expected := run.handler.expected) is not None:
            self._expected_times.began_unlocked(run, run.timer, expected)
        if timeout is not None:
            stuck = partial(self._report_stuck, run, "timed out")
            alarms += [
                set_alarm(self._clock, timeout, partial(self._time_out, run)),
                set_alarm(self._clock, timeout + STUCK_AFTER, stuck),
            ]
        task = asyncio.current_task()
        try:
            await self._call(run.handler, arguments)
        except asyncio.CancelledError:
            self._log_cancel(run)
        except BaseException as error:
            if ends_more_than_the_attempt(error, run.handler, task):
                raise
            text = "timer %r failed in a run without the store"
            log.exception(text, run.timer, extra={"timer": run.timer})
        finally:
            self._expected_times.ended(run)
            for alarm in alarms:
                alarm.cancel()

    async def _call(self, handler: Handler, arguments: tuple[int, int, int]) -> Any:
        if handler.is_async:
            return await handler.function(*arguments)
        return await self._threads.run(partial(handler.function, *arguments))

    def _time_out(self, run: _Run) -> None:
        text = "timer %r ran without the store for longer than its timeout"
        log.error(text, run.timer, extra={"timer": run.timer})
        run.stop("timed out")

    def _report_stuck(self, run: _Run, reason: StopReason) -> None:
        self._events.emit(HandlerStuck(run.handler.name, "", reason))

    def _log_cancel(self, run: _Run) -> None:
        about = {"timer": run.timer}
        match run.stop_reason:
            case "timed out" | "abandoned":
                pass  # logged already
            case "shutting down":
                log.warning(
                    "timer %r was stopped in a run without the store, because its worker stops; "
                    "this tick does not run again",
                    run.timer,
                    extra=about,
                )
            case None:
                text = "timer %r cancelled itself in a run without the store"
                log.error(text, run.timer, extra=about)
