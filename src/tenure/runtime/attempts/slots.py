"""The jobs that run in this process: starts them, stops them, settles them.

Each attempt runs in a task of its own. Jobs take slots, up to `concurrency`; runs of timers have
slots of their own. `Backlog` decides which job gets a free slot.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from tenure.core.jobs import endings
from tenure.core.jobs.records import JobRecord, Note, Settlement
from tenure.core.jobs.run_numbers import runs_of
from tenure.core.schedules.records import TIMERS_QUEUE
from tenure.core.settings import Settings
from tenure.observe.events import Events
from tenure.observe.jobs import HandlerStuck, JobRunsLong, JobStarted
from tenure.observe.log_records import fields_of
from tenure.runtime.attempts.attempt import AttemptRunner
from tenure.runtime.attempts.attempt_endings import AttemptEndings
from tenure.runtime.attempts.expected_times import ExpectedTimes
from tenure.runtime.attempts.handler import Around, Handler
from tenure.runtime.attempts.job_ends import report_success
from tenure.runtime.attempts.lent_slots import LentSlots
from tenure.runtime.attempts.processes.pool import ProcessLimits
from tenure.runtime.attempts.run_counter import RunCounter
from tenure.runtime.attempts.running_job import Insert, RunningJob, StopReason
from tenure.runtime.attempts.settler import Settler
from tenure.runtime.supervised.scoreboard import Scoreboard
from tenure.stores.contract import Store

__all__ = ["Slots", "is_run"]

log = logging.getLogger("tenure")

# Ended jobs are remembered to name what may have blocked the interpreter a moment ago.
_ENDED_KEPT = 32

_STOPPED = "its worker was stopped"
_RAN_ON = f"{_STOPPED}, and it ran on"

_UNEXPECTED = "job %s failed in an unexpected way"


@dataclass(slots=True, eq=False)
class _Running:
    record: JobRecord
    handler: Handler
    context: RunningJob
    began: float
    place: int
    """Its line on the scoreboard, if there is a supervisor."""
    is_first: bool = False
    """Whether it began before any job of its task had waited for another job."""
    is_reported_long: bool = False
    """Whether `JobRunsLong` was emitted for it."""
    is_abandoned: bool = False
    """Whether it was handed back although it runs on."""
    task: asyncio.Task[None] | None = None

    def stop(self, reason: StopReason) -> None:
        """Ask the attempt to stop, once. A thread sees it only if it checks its context."""
        if self.context.stop_reason is not None:
            return
        if self.context.settles_itself and reason == "taken over":
            return  # its commit decides; a late note may have been rejected because of that commit
        self.context.stop(reason)
        if self.handler.is_cancellable and self.task is not None:
            # Not before its first step: a task that is cancelled before it began never runs at all.
            self.task.get_loop().call_soon(self.task.cancel)


class Slots:
    """Runs attempts, each in a task of its own, and settles them."""

    def __init__(
        self,
        store: Store,
        events: Events,
        settler: Settler,
        settings: Settings,
        counter: RunCounter,
        *,
        around: Sequence[Around],
        board: Scoreboard | None,
        concurrency: int,
        on_freed: Callable[[], None],
        on_room: Callable[[], None],
        insert: Insert,
    ) -> None:
        """`on_freed` is called when a slot is free, `on_room` when a child process is."""
        self._clock = clock = store.clock
        self._events = events
        self._settler = settler
        self._counter = counter
        self._result_limit = settings.result_limit
        self._board = board
        self._on_freed = on_freed
        self._home = (store.url, store.namespace)
        self._insert = insert
        self._endings = AttemptEndings(clock, events, settler.report_when_settled)
        self._runner = AttemptRunner(
            clock,
            events,
            self._endings,
            payload_limit=settings.payload_limit,
            result_limit=settings.result_limit,
            around=around,
            processes=ProcessLimits(
                workers=settings.process_workers,
                start=settings.process_start,
                memory=settings.process_memory,
            ),
            on_room=on_room,
        )
        self.expected_times = ExpectedTimes(clock, events)
        self._running: dict[_Running, None] = {}  # in the order in which they began
        self._ended_at: deque[tuple[float, JobRecord]] = deque(maxlen=_ENDED_KEPT)
        self._lent = LentSlots(
            clock,
            events,
            concurrency=concurrency,
            has_free=lambda: self.jobs < concurrency,
            on_lent=on_freed,
        )
        self.runs = 0
        """How many runs of timers run."""
        self._in_processes = 0
        self._loop = asyncio.get_running_loop()
        self._context = copy_context()
        self.mean_seconds: float | None = None
        """The recent mean duration of jobs in this process."""
        self.ends: Counter[str] = Counter()
        """How many attempts have ended here, by their outcome."""

    def __len__(self) -> int:
        return len(self._running)

    @property
    def busy(self) -> int:
        """How many jobs and runs of timers run and do not wait for another job."""
        return len(self._running) - len(self._lent)

    @property
    def jobs(self) -> int:
        """How many slots are taken, by jobs that run and do not wait for another job."""
        return self.busy - self.runs

    @property
    def returning(self) -> int:
        """How many jobs have lent their slot and want it back."""
        return self._lent.returning

    @property
    def process_room(self) -> int:
        """How many more jobs could begin in child processes now."""
        return max(0, self._runner.processes.capacity - self._in_processes)

    @property
    def timers(self) -> list[str]:
        """The timers that have a run, each once."""
        names = (running.record.schedule for running in self._running if is_run(running.record))
        return list(dict.fromkeys(names))

    @property
    def ids(self) -> list[str]:
        """The jobs that run."""
        return [running.record.id for running in list(self._running)]

    def records_since(self, then: float) -> list[JobRecord]:
        """Return the jobs that ended since `then`, and those that run. For any thread."""
        ended = [record for at, record in list(self._ended_at) if at >= then]
        return ended + [running.record for running in list(self._running)]

    def job_of(self, task: asyncio.Task[Any]) -> JobRecord | None:
        """Return the job that a task runs. For any thread."""
        for running in list(self._running):
            if running.task is task:
                return running.record
        return None

    def start(self, record: JobRecord, handler: Handler) -> None:
        send, within = self._settler.note, self._settler.within
        context = RunningJob(record, send, self._loop, self._result_limit, within)
        context.home, context.insert = self._home, self._insert
        began, place = self._clock.boot(), 0
        if self._board is not None:
            place = self._board.begin(record.id, (record.timeout and began + record.timeout) or 0.0)
            if handler.executor == "process":
                context.on_deadline = partial(self._board.postpone, place)
        is_first = record.task not in self._lent.tasks
        running = _Running(record, handler, context, began, place, is_first)
        if not is_run(record):  # runs of timers take no slot from the jobs that they wait for
            context.lend_slot = partial(self._lend, running)
        self._running[running] = None
        if handler.expected is not None:
            self.expected_times.began(running, record, handler)
        self._in_processes += handler.executor == "process"
        self.runs += is_run(record)
        # A copy of the worker's context: the end of another job may call this, with that job's
        # context.
        context_variables = self._context.copy()
        running.task = self._loop.create_task(self._attempt(running), context=context_variables)
        self._counter.started(record)
        if self._events.wants_details:
            waited = max(0.0, (record.started - record.due) / 1e6)
            run = runs_of(record)
            self._events.emit(JobStarted(record.task, record.id, record.queue, run, waited), record)

    def must_yield(self, record: JobRecord) -> bool:
        """Whether a job must wait, because the jobs it would wait for could get no slot."""
        if is_run(record) or not self._lent.is_scarce(record.task):
            return False
        tasks = self._lent.tasks
        keeping = sum(
            running.record.task in tasks
            and not is_run(running.record)
            and not self._lent.has_lent(running.record)
            for running in self._running
        )
        return keeping >= self._lent.share

    def report_long(self, seconds: float) -> None:
        """Report jobs without a time-out that run for longer than `seconds`, each once.

        Jobs of tasks with `expected` have an alarm of their own.
        """
        now = self._clock.boot()
        for running in self._running:
            age, record = now - running.began, running.record
            if running.handler.expected is not None or record.timeout is not None:
                continue
            if age > seconds and not running.is_reported_long:
                running.is_reported_long = True
                queue, run = record.queue, runs_of(record)
                event = JobRunsLong(record.task, record.id, round(age, 1), queue, run)
                self._events.emit(event, record)

    def stop(self, reason: StopReason, ids: Collection[str] | None = None) -> None:
        """Ask the jobs in `ids` to stop, or all."""
        for running in list(self._running):
            if ids is None or running.record.id in ids:
                running.stop(reason)

    def stop_replica(self, replica: str) -> list[str]:
        """Stop the jobs of a replica id that was declared dead; return their ids."""
        lost = [running for running in self._running if running.record.replica == replica]
        for running in lost:
            running.stop("taken over")
        return [running.record.id for running in lost]

    def stop_stale(self, note: Note) -> None:
        """Stop an attempt that another worker has taken over, as a rejected note shows."""
        for running in list(self._running):
            if (running.record.id, running.record.fence) == (note.id, note.fence):
                running.stop("taken over")

    async def abandon(self) -> None:
        """Hand back jobs that do not stop. They may run on here and elsewhere; fences differ."""
        for running in list(self._running):
            record = running.record
            self._events.emit(HandlerStuck(record.task, record.id, "shutting down"), record)
            if running.task is not None:
                running.task.cancel()
        await self._clock.sleep(0)
        for running in self._running:
            settlement = self._stopped(running, "handed back", _RAN_ON)
            self._settler.settle(running.record, settlement, reason=_RAN_ON)
            running.is_abandoned = True

    @property
    def all_stopping(self) -> bool:
        """Whether every running job was asked to stop."""
        return all(running.context.stop_reason is not None for running in self._running)

    async def close(self) -> None:
        self._runner.threads.close()
        await self._runner.processes.close()

    async def _attempt(self, running: _Running) -> None:
        settlement: Settlement | None = None
        try:
            settlement = await self._runner.run(running.handler, running.record, running.context)
            await running.context.flush_notes()
        except asyncio.CancelledError:
            settlement = settlement or self._after_cancel(running)
        except Exception as error:
            # The error itself cannot be formatted. The job must still be settled.
            about = running.record
            log.exception(_UNEXPECTED, about.id, extra=fields_of(about))
            settlement = self._endings.failed_unreadably(about, error, running.began)
        finally:
            seconds = self._ended(running)
        if settlement is not None:
            self.ends[settlement.outcome] += 1
            reason = ""
            if settlement.outcome == "handed back":
                if running.is_abandoned:
                    return
                reason = _STOPPED
            self._settler.settle(running.record, settlement, seconds=seconds, reason=reason)
        elif running.context.is_settled:
            self.ends["succeeded"] += 1
            self._counter.ended(running.record, "succeeded", seconds)
            if self._events.wants_details:
                report_success(self._events, running.record, seconds)

    def _after_cancel(self, running: _Running) -> Settlement | None:
        """Return the settlement of a cancelled attempt; None if none is needed."""
        if running.context.is_settled:
            return None
        record, began = running.record, running.began
        match running.context.stop_reason:
            case "taken over":
                return None
            case "shutting down":
                return self._stopped(running, "handed back", _STOPPED)
            case "cancelled":
                return self._stopped(running, "cancelled")
            case "timed out":
                return self._endings.timed_out(running.handler, record, began)
            case None:
                error = RuntimeError("the handler cancelled itself")
                return self._endings.failed(running.handler, record, error, began)

    def _stopped(
        self, running: _Running, outcome: Literal["handed back", "cancelled"], why: str = ""
    ) -> Settlement:
        record = running.record
        history = self._endings.history(record, outcome, running.began, why)
        end = endings.cancelled if outcome == "cancelled" else endings.handed_back
        return end(record, history=history)

    def _lend(self, running: _Running, awaited: str) -> AbstractAsyncContextManager[None]:
        """Lend the slot of a job while it waits for another job. Does nothing if it has ended."""
        if asyncio.get_running_loop() is not self._loop:
            # A plain handler waits on a loop of its own, but slots belong to the worker's loop.
            with suppress(RuntimeError):  # the worker's loop is closed
                self._loop.call_soon_threadsafe(self._lent.kept, running.record, awaited)
            return nullcontext()
        return (
            self._lent.lend(running.context, awaited, is_first=running.is_first)
            if running in self._running
            else nullcontext()
        )

    def _ended(self, running: _Running) -> float:
        """Free the slot of an attempt; return for how many seconds it ran."""
        self._running.pop(running, None)
        if running.handler.expected is not None:
            self.expected_times.ended(running)
        self.runs -= is_run(running.record)
        self._lent.ended(running.record)
        self._lent.pass_on()
        self._in_processes -= running.handler.executor == "process"
        if self._board is not None:
            self._board.end(running.place)
        now = self._clock.boot()
        self._ended_at.append((now, running.record))
        seconds = now - running.began
        if not is_run(running.record):
            mean = self.mean_seconds
            self.mean_seconds = seconds if mean is None else 0.9 * mean + 0.1 * seconds
        self._on_freed()
        return seconds


def is_run(record: JobRecord) -> bool:
    """Return whether a job is a run of a timer, which takes a timer slot."""
    return record.queue == TIMERS_QUEUE
