"""Notices from outside when an event loop does not turn, and shows what keeps it."""

from __future__ import annotations

import asyncio
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context
from typing import Any

from tenure.core.clock import Clock
from tenure.core.records import JobRecord
from tenure.observe.events import Events, LoopBlocked
from tenure.runtime.board import Board
from tenure.runtime.context import current

__all__ = ["LoopWatch"]

# A supervisor wants to know of a blocked loop before it blames a job for ignoring its time-out.
_LOOK_EVERY = 0.25
# Below this it is a busy machine or a large result, and nobody can do much about it.
_BLOCKED_AFTER = 2.0
_STACK_MAX = 4000


class LoopWatch:
    """Watches the loop it is made on. `run` belongs on the host."""

    def __init__(
        self,
        clock: Clock,
        events: Events,
        job_of: Callable[[asyncio.Task[Any]], JobRecord | None],
        board: Board | None = None,
    ) -> None:
        """`job_of` tells which job a task runs; `board` is where a supervisor looks."""
        self._clock = clock
        self._events = events
        self._job_of = job_of
        self._board = board
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._turned = True

    async def run(self) -> None:
        asked_at = self._clock.boot()
        told = blocked = False
        while True:
            now = self._clock.boot()
            if self._turned:
                if blocked and self._board is not None:
                    self._board.unblocked(now)
                self._turned, told, blocked, asked_at = False, False, False, now
                with suppress(RuntimeError):  # closed: whoever watches it ends soon
                    self._loop.call_soon_threadsafe(self._turn)
            else:
                job, blocked = self._running(), True
                if self._board is not None:
                    self._board.blocked(asked_at, "" if job is None else job.id)
                if now - asked_at >= _BLOCKED_AFTER and not told:
                    told = True
                    self._tell(now - asked_at, job)
            await self._clock.sleep(_LOOK_EVERY)

    def _turn(self) -> None:
        self._turned = True

    def _tell(self, seconds: float, job: JobRecord | None) -> None:
        task, id_ = ("", "") if job is None else (job.task, job.id)
        self._events.emit(LoopBlocked(round(seconds, 1), self._stack(), task, id_))

    def _running(self) -> JobRecord | None:
        """Return the job whose code the loop runs just now; of a task that it has started, too."""
        with suppress(RuntimeError):
            if (task := asyncio.current_task(self._loop)) is not None:
                return self._job_of(task) or _inherited(task)
        return None

    def _stack(self) -> str:
        frame = sys._current_frames().get(self._thread)  # noqa: SLF001 - there is no other way
        return "".join(traceback.format_stack(frame))[-_STACK_MAX:]


def _inherited(task: asyncio.Task[Any]) -> JobRecord | None:
    """Return the job in whose context a task was made; Python 3.11 does not show that."""
    context = getattr(task, "get_context", Context)()
    running = context.get(current)
    return None if running is None else running.record
