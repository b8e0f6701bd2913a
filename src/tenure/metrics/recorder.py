"""Counts events: one method for each kind of event that a metric needs, and none for the others.

Called where events happen, in several threads at once, so each method only adds to metrics.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from tenure.metrics import definitions as metric
from tenure.metrics.definitions import Metric
from tenure.metrics.labels import OTHER, Bounded, safe_label, text_before_colon
from tenure.observe import (
    AttemptLost,
    ClockJumped,
    DataLost,
    Event,
    HoldLost,
    JobCancelled,
    JobEnqueued,
    JobFailed,
    JobHandedBack,
    JobRetried,
    JobRunsLong,
    JobsRecovered,
    JobStarted,
    JobSucceeded,
    LockAcquired,
    LockHeldLong,
    LockRefused,
    LockReleased,
    LockTakenOver,
    LockTimedOut,
    QueueDelayed,
    RanUnlocked,
    ReplicaExpired,
    StoreCalled,
    TickRan,
    TickSkipped,
    TicksMissed,
    TickUnlocked,
    TimerRunsLong,
)
from tenure.observe.jobs import JobEvent

__all__ = ["OUTCOMES", "LockLabel", "Recorder", "Write"]

LockLabel: TypeAlias = Callable[[str], str]
Write: TypeAlias = Callable[[Metric, float, tuple[str, ...]], None]
"""Adds a value to a metric with these label values."""

# A queue for each customer, times all tasks, would still be too much.
_PAIRS_MAX = 500

OUTCOMES: Final = {
    JobSucceeded: "succeeded",
    JobFailed: "failed",
    JobRetried: "retried",
    JobCancelled: "cancelled",
    JobHandedBack: "handed_back",
}
_UNREACHABLE = ("StoreUnavailable", "StoreFull")


class Recorder:
    """Adds each event to the metrics. Subscribe it to an app."""

    def __init__(self, write: Write, lock_label: LockLabel | None = None) -> None:
        self._write = write
        self._lock_label = lock_label or text_before_colon
        self._tasks = Bounded(OTHER)
        self._queues = Bounded(OTHER)
        self._jobs = Bounded((OTHER, OTHER), _PAIRS_MAX)
        self._locks = Bounded(OTHER)
        self._timers = Bounded(OTHER)
        self._calls = Bounded(OTHER)
        self._methods: dict[type, Callable[[Any], None]] = {
            JobEnqueued: self._job_enqueued,
            JobStarted: self._job_started,
            **dict.fromkeys(OUTCOMES, self._attempt_ended),
            JobRunsLong: lambda event: self._write(metric.JOBS_RUN_LONG, 1, self._job(event)),
            JobsRecovered: self._jobs_recovered,
            AttemptLost: lambda _: self._write(metric.STALE_WRITES_REFUSED, 1, ()),
            LockAcquired: self._lock_acquired,
            LockRefused: lambda event: self._lock_refused(event, "busy"),
            LockTimedOut: self._lock_timed_out,
            LockReleased: lambda event: self._of_lock(metric.LOCK_HOLD, event, event.held),
            HoldLost: lambda event: self._of_lock(metric.LOCKS_LOST, event),
            LockTakenOver: lambda event: self._of_lock(metric.LOCKS_TAKEN_OVER, event),
            LockHeldLong: lambda event: self._of_lock(metric.LOCKS_HELD_LONG, event),
            RanUnlocked: lambda event: self._of_lock(metric.RAN_UNLOCKED, event),
            TickRan: self._tick_ran,
            TickSkipped: lambda event: self._ticks(event, "skipped"),
            TickUnlocked: lambda event: self._ticks(event, "unlocked"),
            TicksMissed: lambda event: self._ticks(event, "missed", event.ticks),
            TimerRunsLong: self._timer_runs_long,
            QueueDelayed: self._queue_delayed,
            StoreCalled: self._store_called,
            DataLost: lambda _: self._write(metric.DATA_LOST, 1, ()),
            ClockJumped: lambda _: self._write(metric.CLOCK_JUMPS, 1, ()),
            ReplicaExpired: lambda _: self._write(metric.REPLICAS_EXPIRED, 1, ()),
        }

    def __call__(self, event: Event) -> None:
        if (method := self._methods.get(type(event))) is not None:
            method(event)

    def remember(self, labels: Mapping[str, str]) -> None:
        """Keep the place of labels that an ended process has used, and whose counts go on here."""
        match labels:
            case {"queue": queue, "task": task}:
                self._jobs((self._queues(queue), self._tasks(task)))
            case {"queue": queue}:
                self._queues(queue)
            case {"lock": lock}:
                self._locks(lock)
            case {"timer": timer}:
                self._timers(timer)
            case _:
                pass  # calls of the store are few, and always the same

    # Jobs.

    def _job_enqueued(self, event: JobEnqueued) -> None:
        self._write(metric.JOBS_ENQUEUED, 1, self._job(event))

    def _job_started(self, event: JobStarted) -> None:
        job = self._job(event)
        self._write(metric.JOBS_STARTED, 1, job)
        self._write(metric.JOB_WAIT, event.waited, job)

    def _attempt_ended(
        self, event: JobSucceeded | JobFailed | JobRetried | JobCancelled | JobHandedBack
    ) -> None:
        job = self._job(event)
        self._write(metric.JOBS_FINISHED, 1, (*job, OUTCOMES[type(event)]))
        seconds = getattr(event, "seconds", 0.0)
        if seconds > 0:  # nobody measured an attempt that was lost with its worker
            self._write(metric.JOB_DURATION, seconds, job)

    def _jobs_recovered(self, event: JobsRecovered) -> None:
        ends = event.waiting, event.failed, event.cancelled, event.unreadable
        self._write(metric.JOBS_RECOVERED, sum(map(len, ends)), ())

    def _queue_delayed(self, event: QueueDelayed) -> None:
        self._write(metric.QUEUES_DELAYED, 1, (self._queues(event.queue),))

    def _job(self, event: JobEvent | JobRunsLong) -> tuple[str, str]:
        return self._jobs((self._queues(event.queue), self._tasks(event.task)))

    # Locks.

    def _lock_acquired(self, event: LockAcquired) -> None:
        self._of_lock(metric.LOCKS_ACQUIRED, event)
        self._of_lock(metric.LOCK_WAIT, event, event.waited)

    def _lock_timed_out(self, event: LockTimedOut) -> None:
        self._lock_refused(event, "timeout")
        self._of_lock(metric.LOCK_WAIT, event, event.waited)

    def _lock_refused(self, event: LockRefused | LockTimedOut, reason: str) -> None:
        self._write(metric.LOCK_REFUSALS, 1, (self._lock(event.name), reason))

    def _of_lock(self, of: Metric, event: Any, value: float = 1) -> None:
        self._write(of, value, (self._lock(event.name),))

    def _lock(self, name: str) -> str:
        return self._locks(safe_label(self._lock_label, name))

    # Timers.

    def _tick_ran(self, event: TickRan) -> None:
        self._ticks(event, "ran")
        self._write(metric.TICK_LATENESS, event.lateness, (self._timers(event.timer),))

    def _timer_runs_long(self, event: TimerRunsLong) -> None:
        self._write(metric.TIMERS_RUN_LONG, 1, (self._timers(event.timer),))

    def _ticks(self, event: Any, outcome: str, ticks: int = 1) -> None:
        self._write(metric.TICKS, ticks, (self._timers(event.timer), outcome))

    # The store.

    def _store_called(self, event: StoreCalled) -> None:
        call = self._calls(event.call)
        self._write(metric.STORE_CALL, event.seconds, (call,))
        self._write(metric.STORE_UP, 0 if event.error in _UNREACHABLE else 1, ())
        if event.error:
            self._write(metric.STORE_ERRORS, 1, (call,))
