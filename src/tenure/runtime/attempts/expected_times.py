"""Reports runs that take longer than their task or timer expects, each once.

Only handlers with `expected` get here; the others cost nothing. An alarm on the worker's loop
reports a run in time. While that loop is blocked, the thread that watches it calls `look`. Runs
without the store have no record, and are expected by the name of their timer.
"""

from __future__ import annotations

from functools import partial

from msgspec import Struct

from tenure.core.clock import Clock
from tenure.core.jobs.records import JobRecord
from tenure.core.jobs.run_numbers import runs_of
from tenure.core.overdue import overdue_after
from tenure.core.schedules.records import TIMERS_QUEUE
from tenure.observe.events import Events
from tenure.observe.jobs import JobRunsLong
from tenure.observe.timers import TimerRunsLong
from tenure.runtime.attempts.handler import Handler
from tenure.runtime.attempts.time_limit import Alarm, set_alarm

__all__ = ["ExpectedTimes"]


class _Run(Struct, frozen=True):
    about: JobRecord | str
    """Its job; the name of a timer that runs without the store."""
    expected: float
    began: float
    """When its handler was to be called: after the jitter of a timer."""
    alarm: Alarm

    @property
    def overdue_at(self) -> float:
        return self.began + overdue_after(self.expected)


class ExpectedTimes:
    """The runs of a worker that are not overdue so far."""

    def __init__(self, clock: Clock, events: Events) -> None:
        self._clock = clock
        self._events = events
        self._runs: dict[object, _Run] = {}

    def began(self, key: object, record: JobRecord, handler: Handler) -> None:
        """Expect the end of a run that begins now. `key` identifies it."""
        assert handler.expected is not None
        wait = 0.0 if handler.pacing is None else handler.pacing.before(record)
        self._expect(key, record, handler.expected, wait)

    def began_unlocked(self, key: object, timer: str, expected: float) -> None:
        """Expect the end of a run without the store."""
        self._expect(key, timer, expected, 0.0)

    def _expect(self, key: object, about: JobRecord | str, expected: float, wait: float) -> None:
        report = partial(self._report, key)
        alarm = set_alarm(self._clock, wait + overdue_after(expected), report)
        self._runs[key] = _Run(about, expected, self._clock.boot() + wait, alarm)

    def ended(self, key: object) -> None:
        """Forget a run."""
        if (run := self._runs.pop(key, None)) is not None:
            run.alarm.cancel()

    def look(self, now: float) -> None:
        """Report overdue runs whose alarm could not ring. For any thread."""
        for key, run in list(self._runs.items()):
            if now >= run.overdue_at:
                self._report(key)

    def _report(self, key: object) -> None:
        run = self._runs.pop(key, None)  # of two threads, one gets it
        if run is None:
            return
        record, seconds = run.about, round(self._clock.boot() - run.began, 1)
        if isinstance(record, str):
            self._events.emit(TimerRunsLong(record, "", seconds, run.expected))
            return
        if record.queue == TIMERS_QUEUE:
            timer = TimerRunsLong(record.schedule, record.id, seconds, run.expected)
            self._events.emit(timer, record)
            return
        job = JobRunsLong(
            record.task,
            record.id,
            seconds,
            queue=record.queue,
            attempt=runs_of(record),
            expected=run.expected,
        )
        self._events.emit(job, record)
