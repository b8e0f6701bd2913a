"""The work in one process: jobs and runs of timers, from their claim to their settlement.

Invariant: a claimed job is in exactly one place: a slot, the backlog, the suspects of the
quarantine, the isolation, or on its way back to the store. The store has the only durable record:
this state can be lost at any time.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from msgspec.structs import replace

from tenure.core.jobs.endings import cancelled
from tenure.core.jobs.hand_backs import UNKNOWN_TASK, unknown_task_delay, yielding_delay
from tenure.core.jobs.records import JobRecord, Note
from tenure.core.jobs.run_numbers import runs_of
from tenure.core.leases import Meta
from tenure.core.schedules.definition import Plan
from tenure.core.settings import Settings
from tenure.observe.events import Events
from tenure.observe.jobs import TaskUnknown
from tenure.runtime.attempts.backlog import Backlog
from tenure.runtime.attempts.handler import Around, Handler
from tenure.runtime.attempts.run_counter import RunCounter
from tenure.runtime.attempts.running_job import Insert
from tenure.runtime.attempts.settler import Settler
from tenure.runtime.attempts.slots import Slots, is_run
from tenure.runtime.attempts.unlocked_runs import UnlockedRuns
from tenure.runtime.store_retry import Retrier
from tenure.runtime.supervised.link import SupervisorLink
from tenure.runtime.timers.ticker import Ticker
from tenure.runtime.work.isolation import Isolation
from tenure.runtime.work.options import WorkerOptions
from tenure.runtime.work.postponed_jobs import PostponedJobs
from tenure.runtime.work.suspects import is_suspicious
from tenure.runtime.work.worker_state import WorkerState
from tenure.stores.contract import Store

__all__ = ["LocalWork"]


class LocalWork:
    """Takes claimed jobs, starts them, and tracks all jobs of this process."""

    def __init__(
        self,
        store: Store,
        retrier: Retrier,
        events: Events,
        settings: Settings,
        state: WorkerState,
        *,
        counter: RunCounter,
        handlers: Mapping[str, Handler],
        plans: Sequence[Plan],
        around: Sequence[Around],
        options: WorkerOptions,
        insert: Insert,
        link: SupervisorLink | None,
        isolation_meta: Meta | None,
    ) -> None:
        """`isolation_meta`: for the second replica, which claims suspects; None: no isolation."""
        self._clock = store.clock
        self._events = events
        self._state = state
        self._handlers = handlers
        self._is_burst = options.burst
        self._isolate_after = settings.isolate_after
        self.settler = Settler(
            store, retrier, events, counter, on_settled=self._settled, on_stale=self._stop_stale
        )
        self.slots = Slots(
            store,
            events,
            self.settler,
            settings,
            counter,
            around=around,
            board=None if link is None else link.board,
            concurrency=options.concurrency,
            on_freed=self._slot_freed,
            on_room=self._process_freed,
            insert=insert,
        )
        self.unlocked = UnlockedRuns(
            self._clock,
            events,
            handlers,
            expected_times=self.slots.expected_times,
            is_running=lambda timer: timer in self.slots.timers,
            on_ended=self._unlocked_ended,
        )
        self.backlog = Backlog(
            self._clock,
            self.slots,
            self.settler,
            self.unlocked,
            concurrency=options.concurrency,
            timer_concurrency=options.timer_concurrency,
            needs_process=self.needs_process,
        )
        self.ticker = Ticker(
            store,
            retrier,
            events,
            plans,
            replica=lambda: state.replica,
            start=self.start,
            withdraw=self._withdraw,
            backlog=self.backlog,
            unlocked=self.unlocked,
        )
        self.postponed = PostponedJobs(
            store, retrier, self.settler, stopped=state.stopped, burst=options.burst
        )
        self.isolation: Isolation | None = None
        """Runs suspects in a process of their own; None without a supervisor."""
        if link is not None and isolation_meta is not None:
            self.isolation = Isolation(
                store,
                retrier,
                self.settler,
                settings,
                link,
                meta=isolation_meta,
                stopped=state.stopped,
            )

    # State.

    @property
    def ids(self) -> set[str]:
        """The jobs that run, wait to run, or wait to be settled."""
        elsewhere = {*self.settler.unsettled, *self.ticker.pending}
        isolated = [] if self.isolation is None else self.isolation.ids
        return {*self.backlog.ids, *self.slots.ids, *elsewhere, *isolated}

    @property
    def is_running(self) -> bool:
        """Whether a handler runs, with or without a job."""
        return bool(self.slots or self.unlocked)

    @property
    def is_empty(self) -> bool:
        """Whether nothing runs and every settlement is stored."""
        return not (self.is_running or self.settler.unsettled or self.ticker.pending)

    @property
    def has_suspects(self) -> bool:
        """Whether claimed jobs wait to run alone."""
        return bool(self.backlog.suspects or (self.isolation and self.isolation.waiting))

    def knows(self, record: JobRecord) -> bool:
        """Return whether this process has the task of a job."""
        return record.task in self._handlers

    def needs_process(self, record: JobRecord) -> bool:
        """Return whether a job runs in a child process, of which there are few."""
        handler = self._handlers.get(record.task)
        return handler is not None and handler.executor == "process" and not is_run(record)

    # Placing claimed jobs.

    def accept(self, record: JobRecord, now: float) -> None:
        """Start a job that was claimed at the boot instant `now`, or queue it."""
        if not self.knows(record):
            self._hand_back_unknown(record)
        elif is_suspicious(record, self._isolate_after):
            isolation = self.isolation
            (self.backlog.suspects if isolation is None else isolation.waiting).append(record)
        elif self.slots.must_yield(record):
            self._yield(record)
        elif self._state.is_stopping or not self.backlog.has_slot(record):
            self.backlog.wait_for_slot(record, now)
        else:
            self.start(record)

    def start(self, record: JobRecord) -> None:
        """Start a job, or the run of a tick. The ticker requests no more runs than fit."""
        self.slots.start(record, self._handlers[record.task])

    def _hand_back_unknown(self, record: JobRecord) -> None:
        """Hand back a job of an unknown task: a rolling deploy may bring workers that know it."""
        self._events.emit(TaskUnknown(record.task, record.id, runs_of(record)), record)
        delay = unknown_task_delay(record.attempt, self._clock.random())
        self.settler.hand_back(record, delay, reason=UNKNOWN_TASK, is_recorded=True)

    def _yield(self, record: JobRecord) -> None:
        """Hand back a job that would wait for jobs that need the remaining slots."""
        delay = yielding_delay(record.attempt, self._clock.random())
        self.postponed.hand_back(record, delay, reason="the jobs that it may wait for come first")

    async def _withdraw(self, record: JobRecord, reason: str) -> None:
        """End a run that must not start. Returns once the store has settled it."""
        await self.settler.settle(record, replace(cancelled(record), reason=reason))

    # Ending work.

    def cancel(self, ids: Collection[str]) -> None:
        """Cancel these jobs: stop the running ones, and settle those that have not begun."""
        self.slots.stop("cancelled", ids)
        isolated = [] if self.isolation is None else self.isolation.take(ids)
        for record in (*self.backlog.take(ids), *isolated):
            self.settler.settle(record, cancelled(record))

    def take_over(self, replica: str) -> list[str]:
        """Drop jobs that other workers run now. Returns the jobs that were stopped here."""
        self.backlog.forget()
        if self.isolation is not None:
            self.isolation.waiting.clear()
        return self.slots.stop_replica(replica)

    def hand_back_waiting(self) -> None:
        """Hand back all claimed jobs that have not begun."""
        self.backlog.hand_back(reason="its worker stops")
        if self.isolation is not None:
            for record in self.isolation.take(self.isolation.ids):
                self.settler.hand_back(record, reason="its worker stops")

    # Callbacks.

    def _settled(self, schedules: Collection[str]) -> None:
        self.ticker.runs_ended(schedules)
        self._state.changed.set()
        if self._is_burst:
            self._state.look_again.set()  # this may have been the last running job

    def _stop_stale(self, note: Note) -> None:
        self.slots.stop_stale(note)

    def _slot_freed(self) -> None:
        while not self._state.is_stopping and (record := self.backlog.next_for_slot()) is not None:
            if not self.slots.must_yield(record):
                self.start(record)
                break
            self._yield(record)
        self.ticker.slot_freed()
        self._state.changed.set()

    def _unlocked_ended(self, timer: str) -> None:
        self.ticker.runs_ended([timer])
        self._slot_freed()

    def _process_freed(self) -> None:
        """Claim again, because a child process is free or may start."""
        self._state.look_again.set()
        self._slot_freed()
