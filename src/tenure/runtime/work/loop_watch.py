"""Notices from outside when an event loop does not turn, and shows what keeps it."""

from __future__ import annotations

import asyncio
import math
import sys
import threading
import traceback
from contextlib import suppress
from contextvars import Context
from typing import Any

from tenure.core.clock import Clock
from tenure.core.jobs.records import JobRecord
from tenure.observe.events import Events
from tenure.observe.replica import InterpreterBlocked, LoopBlocked
from tenure.runtime.attempts.running_job import current
from tenure.runtime.attempts.slots import Slots
from tenure.runtime.supervised.scoreboard import Scoreboard

__all__ = ["LoopWatch"]

# A supervisor wants to know of a blocked loop before it blames a job for ignoring its time-out.
_LOOK_EVERY = 0.25
# Below this it is a busy machine or a large result, and nobody can do much about it.
_BLOCKED_AFTER = 2.0
_STACK_MAX = 4000
_JOBS_NAMED_MAX = 10
# Whatever keeps the interpreter does so again and again.
_REPORT_EVERY = 60.0


class LoopWatch:
    """Watches the loop it is made on. `run` belongs on the host."""

    def __init__(
        self,
        clock: Clock,
        events: Events,
        slots: Slots,
        *,
        ttl: float,
        board: Scoreboard | None = None,
    ) -> None:
        """`board` is where a supervisor looks. Without one, nothing else beats for this process:
        then threads that do not run for a `ttl` cost it its jobs.
        """
        self._clock = clock
        self._events = events
        self._slots = slots
        self._ttl = ttl
        self._board = board
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._has_answered = True
        self._probed_at = self._looked_at = clock.boot()
        self._is_blocked = self._is_reported = False
        self._gap_reported_at = -math.inf

    async def run(self) -> None:
        self._looked_at = self._clock.boot()
        while True:
            now = self._clock.boot()
            self._watch_threads(now)
            if self._has_answered:
                self._probe(now)
            else:
                self._report_block(now)
            await self._clock.sleep(_LOOK_EVERY)

    def _probe(self, now: float) -> None:
        """Have the loop say that it turns."""
        if self._is_blocked and self._board is not None:
            self._board.unblocked(now)
        self._has_answered, self._probed_at = False, now
        self._is_reported = self._is_blocked = False
        with suppress(RuntimeError):  # closed: whoever watches it ends soon
            self._loop.call_soon_threadsafe(self._answer_probe)

    def _report_block(self, now: float) -> None:
        """Show, and tell once, that it does not."""
        job, self._is_blocked = self._running(), True
        if self._board is not None:
            self._board.blocked(self._probed_at, "" if job is None else job.id)
        seconds = now - self._probed_at
        if seconds >= _BLOCKED_AFTER and not self._is_reported:
            self._is_reported = True
            task, id_ = ("", "") if job is None else (job.task, job.id)
            self._events.emit(LoopBlocked(round(seconds, 1), self._stack(), task, id_))

    def _watch_threads(self, now: float) -> None:
        """Tell that this thread could not run, which beats; under a supervisor another one does."""
        then, self._looked_at = self._looked_at, now
        gap = now - then
        is_long = gap >= max(_BLOCKED_AFTER, self._ttl / 3)
        if is_long and self._board is None and now - self._gap_reported_at >= _REPORT_EVERY:
            self._gap_reported_at = now
            jobs = self._slots.records_since(then)[:_JOBS_NAMED_MAX]
            named = tuple(f"{job.task} {job.id}" for job in jobs)
            self._events.emit(InterpreterBlocked(round(gap, 1), self._ttl, named))

    def _answer_probe(self) -> None:
        self._has_answered = True

    def _running(self) -> JobRecord | None:
        """Return the job whose code the loop runs just now; of a task that it has started, too."""
        with suppress(RuntimeError):
            if (task := asyncio.current_task(self._loop)) is not None:
                return self._slots.job_of(task) or _inherited(task)
        return None

    def _stack(self) -> str:
        frame = sys._current_frames().get(self._thread)  # noqa: SLF001 - there is no other way
        return "".join(traceback.format_stack(frame))[-_STACK_MAX:]


def _inherited(task: asyncio.Task[Any]) -> JobRecord | None:
    """Return the job in whose context a task was made; Python 3.11 does not show that."""
    context = getattr(task, "get_context", Context)()
    running = context.get(current)
    return None if running is None else running.record
