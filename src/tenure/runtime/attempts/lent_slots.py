"""Slots that handlers lend while they wait for other jobs.

A handler that awaits the result of another job is idle meanwhile. If such handlers took all slots,
the jobs that they wait for could never start. So it lends its slot, and continues when it has one
again: before jobs that have not begun, and never beside more jobs than there are slots.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from tenure.core.clock import Clock
from tenure.core.jobs.records import JobRecord
from tenure.observe.events import Events
from tenure.observe.jobs import SlotsKept
from tenure.runtime.attempts.running_job import RunningJob

__all__ = ["LENT_MAX", "LentSlots"]

LENT_MAX: Final = 500
"""The most slots lent at a time: each is a handler that stays in memory.

The first jobs of a task that waits for others may exceed it, by up to the number of slots.
"""
_REPORT_EVERY = 60.0


class LentSlots:
    """The jobs that have lent their slots, and those that want them back."""

    def __init__(
        self,
        clock: Clock,
        events: Events,
        *,
        concurrency: int,
        has_free: Callable[[], bool],
        on_lent: Callable[[], None],
    ) -> None:
        self._clock = clock
        self._events = events
        self._concurrency = concurrency
        self._has_free = has_free
        self._on_lent = on_lent
        self._waits: dict[str, int] = {}  # by job: how many other jobs it waits for
        self._returning: deque[tuple[str, asyncio.Future[None]]] = deque()
        self._reported_at = -_REPORT_EVERY
        self.tasks: set[str] = set()
        """The tasks whose jobs have waited for other jobs in this worker."""

    def __len__(self) -> int:
        return len(self._waits)

    @property
    def returning(self) -> int:
        """How many jobs want their slot back. They come before jobs that have not begun."""
        return len(self._returning)

    @property
    def share(self) -> int:
        """How many slots may be taken by jobs that wait for others and cannot lend their slots.

        The remaining slots serve the jobs that they wait for. With one slot nothing remains.
        """
        return self._concurrency - self._concurrency // 2

    def is_scarce(self, task: str) -> bool:
        """Whether jobs of a task are likely to wait for others, and could not lend their slots."""
        return len(self._waits) >= LENT_MAX and task in self.tasks

    def has_lent(self, job: JobRecord) -> bool:
        return job.id in self._waits

    @asynccontextmanager
    async def lend(
        self, running: RunningJob, awaited: str, *, is_first: bool = False
    ) -> AsyncIterator[None]:
        """Lend the slot of a job during the block, in which it waits for another job.

        `is_first`: the job began before any job of its task had waited for another.
        """
        job = running.record
        self.tasks.add(job.task)
        most = LENT_MAX + (self._concurrency if is_first else 0)
        if job.id not in self._waits and len(self._waits) >= most:
            self._report(
                job, awaited, f"{len(self._waits)} handlers of this worker have lent their slots"
            )
            yield
            return
        self._waits[job.id] = self._waits.get(job.id, 0) + 1
        self.pass_on()
        self._on_lent()
        try:
            yield
        except BaseException:
            if running.cancelled:
                self._end_wait(job)  # the job is about to end, so it needs no slot
            else:  # the handler's own time-out has cancelled the wait, and the handler continues
                await self._take_back(job)
            raise
        await self._take_back(job)

    def kept(self, job: JobRecord, awaited: str) -> None:
        """Report a handler that waits outside the worker's loop and cannot lend, if no slot is
        free.
        """
        if not self._has_free():
            self._report(job, awaited, "only asynchronous handlers lend their slots")

    async def _take_back(self, job: JobRecord) -> None:
        if self._waits.get(job.id, 0) != 1 or self._has_free():
            self._end_wait(job)
        else:
            back: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._returning.append((job.id, back))
            try:
                await back
            finally:
                self.ended(job)

    def _end_wait(self, job: JobRecord) -> None:
        waits = self._waits.get(job.id, 0)
        if waits > 1:
            self._waits[job.id] = waits - 1
        else:
            self.ended(job)

    def pass_on(self) -> None:
        """Give free slots back to the jobs that want them, in the order of their requests."""
        while self._returning and self._has_free():
            id_, back = self._returning.popleft()
            self._waits.pop(id_, None)
            if not back.done():
                back.set_result(None)

    def ended(self, job: JobRecord) -> None:
        """Forget a job: it has its slot, or has ended."""
        self._waits.pop(job.id, None)
        for id_, back in self._returning:
            if id_ == job.id and not back.done():
                back.set_result(None)  # wakes a task that the handler left behind
        self._returning = deque(waiter for waiter in self._returning if waiter[0] != job.id)

    def _report(self, job: JobRecord, awaited: str, why: str) -> None:
        now = self._clock.boot()
        if now - self._reported_at >= _REPORT_EVERY:
            self._reported_at = now
            self._events.emit(SlotsKept(job.task, job.id, awaited, len(self._waits), why), job)
