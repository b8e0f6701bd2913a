"""Detects from the host's thread that an event loop is blocked, and reports what blocks it."""

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

# Shorter than the time after which a supervisor kills a worker for a job past its time-out, so that
# it sees a blocked loop first.
_LOOK_EVERY = 0.25
# A shorter block comes from a busy machine or a large result, and is not worth a report.
_BLOCKED_AFTER = 2.0
_STACK_MAX = 4000
_JOBS_NAMED_MAX = 10
# Code that blocks the interpreter usually does so again, so reports are limited.
_REPORT_EVERY = 60.0


class LoopWatch:
    """Watches the loop on which it is created. `run` runs on the host."""

    def __init__(
        self,
        clock: Clock,
        events: Events,
        slots: Slots,
        *,
        ttl: float,
        board: Scoreboard | None = None,
    ) -> None:
        """`board`: the scoreboard that the supervisor reads. Without a supervisor, this process
        loses its jobs if its threads do not run for a `ttl`, because nothing else beats for it.
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
        """Schedule a callback that records that the loop runs."""
        if self._is_blocked and self._board is not None:
            self._board.unblocked(now)
        self._has_answered, self._probed_at = False, now
        self._is_reported = self._is_blocked = False
        with suppress(RuntimeError):  # the loop is closed, so the watch ends soon
            self._loop.call_soon_threadsafe(self._answer_probe)

    def _report_block(self, now: float) -> None:
        """Record that the loop is blocked, and report it once."""
        job, self._is_blocked = self._running(), True
        if self._board is not None:
            self._board.blocked(self._probed_at, "" if job is None else job.id)
        self._slots.expected_times.look(now)  # their alarms are on the blocked loop
        seconds = now - self._probed_at
        if seconds >= _BLOCKED_AFTER and not self._is_reported:
            self._is_reported = True
            task, id_ = ("", "") if job is None else (job.task, job.id)
            self._events.emit(LoopBlocked(round(seconds, 1), self._stack(), task, id_))

    def _watch_threads(self, now: float) -> None:
        """Report that this thread, which sends heartbeats without a supervisor, could not run."""
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
        """Return the job whose code the loop runs now, also in tasks that its handler started."""
        with suppress(RuntimeError):
            if (task := asyncio.current_task(self._loop)) is not None:
                return self._slots.job_of(task) or _inherited(task)
        return None

    def _stack(self) -> str:
        frame = sys._current_frames().get(self._thread)  # noqa: SLF001 - asyncio has no public way
        return "".join(traceback.format_stack(frame))[-_STACK_MAX:]


def _inherited(task: asyncio.Task[Any]) -> JobRecord | None:
    """Return the job in whose context a task was created. Needs Python 3.12 or newer."""
    context = getattr(task, "get_context", Context)()
    running = context.get(current)
    return None if running is None else running.record
