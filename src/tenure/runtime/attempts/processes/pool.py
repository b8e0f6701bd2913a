"""The child processes of a worker: up to `process_workers`, started one at a time.

A child runs one job at a time, and then waits for the next. The worker checks `capacity` before it
claims a job, so a job that must wait for a child waits in the store, where another worker can take
it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Struct

from tenure.core.clock import SystemClock
from tenure.core.jobs.records import JobRecord
from tenure.errors import ProcessDied
from tenure.runtime.attempts.processes.child import END_SECONDS, STOP_SIGNALS, Child
from tenure.runtime.attempts.processes.functions import place_of
from tenure.runtime.attempts.processes.messages import Ended, Run
from tenure.runtime.attempts.processes.preparation import preparation
from tenure.runtime.attempts.reports import (
    RaisedInChild,
    RejectedInChild,
    RetryInChild,
    UnreadableInChild,
)
from tenure.runtime.attempts.running_job import RunningJob
from tenure.runtime.background import Background

__all__ = ["ProcessLimits", "Processes", "Returned"]

log = logging.getLogger("tenure")


class Returned(Struct, frozen=True):
    """What a handler returned, as the store keeps it."""

    stored: bytes
    problem: str = ""
    """Why callers cannot get it; empty if they can."""


class ProcessLimits(Struct, frozen=True, kw_only=True):
    """The limits of child processes: their number, seconds to start, and bytes of memory."""

    workers: int
    start: float
    memory: int | None = None


class Processes:
    """Runs functions, each in a child process that is free or new. Use it on one event loop."""

    def __init__(self, limits: ProcessLimits, on_room: Callable[[], None]) -> None:
        self._limits = limits
        self._on_room = on_room
        self._children: set[Child] = set()
        self._idle: list[Child] = []
        self._starting: object | None = None
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._background = Background()
        self._is_closed = False
        if limits.memory is not None and not Path("/proc/self/statm").exists():
            log.warning("process_memory has no effect here: this system has no /proc")

    @property
    def capacity(self) -> int:
        """How many attempts could run now. Children start one at a time, so it grows one by one."""
        return len(self._children) + self._may_start

    @property
    def _may_start(self) -> bool:
        return self._starting is None and len(self._children) < self._limits.workers

    async def run(
        self,
        function: Callable[..., Any],
        record: JobRecord,
        context: RunningJob,
        limit: int,
        begun: Callable[[], None] = lambda: None,
    ) -> Returned:
        """Run an attempt. Raises what its handler raised, or ProcessDied.

        Calls `begun` before the handler begins. A cancellation kills the child at once.
        """
        claimed = SystemClock().boot()
        module, qualname = place_of(function, record.task)
        order = Run(module, qualname, record, limit, claimed, context.home, preparation())
        while True:
            child = await self._take()
            try:
                ended = await child.run(order, context, partial(self._begun, child, begun))
            except ProcessDied as error:
                self._end(child, kill=True)
                if child.has_begun or (child.is_new and not _was_told_to_stop(error)):
                    raise
                if child.is_too_slow:
                    raise
                continue  # it died while idle or while starting, so the job is not the cause
            except BaseException:
                self._end(child, kill=True)
                raise
            self._has_started(child)  # also if it never began, as its import failed
            self._put_back(child)
            return _result(ended)

    async def close(self) -> None:
        """End idle children, and wait until all are gone."""
        self._is_closed = True
        while self._idle:
            self._end(self._idle.pop())
        await self._background.drain(timeout=5 * END_SECONDS)

    async def _take(self) -> Child:
        while True:
            while self._idle:
                child = self._idle.pop()
                child.wake()
                if child.is_alive:
                    return child
                self._end(child)
            if self._may_start:
                return await self._start()
            await self._room()

    async def _start(self) -> Child:
        self._starting = starting = object()
        try:
            child = await Child.start(self._limits.memory, self._limits.start)
        except BaseException:
            self._has_started(starting)
            raise
        self._starting = child
        self._children.add(child)
        return child

    async def _room(self) -> None:
        """Wait for a free child, or until one may start. Only runs of timers wait here."""
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        try:
            async with asyncio.timeout(self._limits.start):
                await waiting
        except TimeoutError:
            msg = (
                f"none of the {self._limits.workers} child processes of this worker was free "
                f"within {self._limits.start:g} s. Raise process_workers, or add another worker"
            )
            raise ProcessDied(msg, 0) from None
        finally:
            if waiting in self._waiting:
                self._waiting.remove(waiting)
            elif waiting.done() and not waiting.cancelled():
                self._wake_next()  # there may be room for more than this one

    def _begun(self, child: Child, begun: Callable[[], None]) -> None:
        begun()
        self._has_started(child)

    def _has_started(self, starting: object) -> None:
        """Let the next child start: this one has started, or has failed to."""
        if self._starting is starting:
            self._starting = None
            self._has_room()

    def _put_back(self, child: Child) -> None:
        if self._is_closed or child.is_worn:
            self._end(child)
        else:
            child.rest(partial(self._expire, child))
            self._idle.append(child)
            self._has_room()

    def _expire(self, child: Child) -> None:
        self._idle.remove(child)
        self._end(child)

    def _end(self, child: Child, *, kill: bool = False) -> None:
        if kill:
            child.kill()
        child.wake()
        self._background.spawn(child.end())
        self._children.discard(child)
        self._has_started(child)
        self._has_room()

    def _has_room(self) -> None:
        self._wake_next()
        if not self._is_closed:
            self._on_room()

    def _wake_next(self) -> None:
        if self._waiting and (self._idle or self._may_start):
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_result(None)


def _was_told_to_stop(error: ProcessDied) -> bool:
    """Return whether a signal to stop killed the child, which is possible only while it starts."""
    return -error.exit_code in STOP_SIGNALS


def _result(ended: Ended) -> Returned:
    """Return what a handler returned, or raise what it raised."""
    report = ended.report
    if ended.how == "returned":
        return Returned(ended.result, ended.problem)
    if report is None:  # the handler has cancelled itself
        raise asyncio.CancelledError
    if ended.how == "retry":
        raise RetryInChild(report, ended.after)
    kinds = {"rejected": RejectedInChild, "unreadable": UnreadableInChild}
    raise kinds.get(ended.how, RaisedInChild)(report)
