"""Decides which ticks get one of the worker's timer slots, and which wait for a slot.

A tick without a free slot stays undecided, so other replicas may run it. If this worker decided it
and let the run wait, no other replica could run it, and its time-out would already count.
"""

from __future__ import annotations

from itertools import islice

from tenure.core.clock import Clock
from tenure.observe.events import Events
from tenure.observe.timers import TimersFull
from tenure.runtime.attempts.backlog import Backlog
from tenure.runtime.timers.state import TimerState

__all__ = ["TimerSlots"]

# How often it is reported that ticks wait for a slot, and how many running timers that names.
_REPORT_EVERY = 60.0
_TIMERS_NAMED_MAX = 10


class TimerSlots:
    """The timer slots of one worker, as its ticker sees them."""

    def __init__(self, clock: Clock, events: Events, backlog: Backlog) -> None:
        self._clock = clock
        self._events = events
        self._backlog = backlog
        # Counted here, as a look at all timers for each tick would take a quadratic time.
        self._sent: set[TimerState] = set()
        self._waiting: dict[TimerState, None] = {}  # the longest wait first
        self._reported_at = -_REPORT_EVERY

    @property
    def free(self) -> int:
        """How many more ticks may be sent, as each answer may bring a run to start."""
        return max(0, self._backlog.free_runs - len(self._sent))

    def send(self, timer: TimerState) -> None:
        """Count a tick that is sent to the store, until `answered`."""
        if timer.runs_here:
            self._sent.add(timer)

    def answered(self, timer: TimerState) -> None:
        """Stop counting a tick: its run has started, or there is none, or the store is down."""
        self._sent.discard(timer)
        self.freed()

    def wait(self, timer: TimerState) -> None:
        """Wake the timer when a slot is free. Report it if its tick waits for other timers."""
        self._waiting[timer] = None
        now = self._clock.boot()
        is_waiting = self._sent or self._backlog.suspects or self._backlog.runs_suspect
        if not is_waiting and now - self._reported_at >= _REPORT_EVERY:
            self._reported_at = now
            running = tuple(self._backlog.running_timers[:_TIMERS_NAMED_MAX])
            event = TimersFull(timer.plan.name, self._backlog.timer_concurrency, running)
            self._events.emit(event)

    def freed(self) -> None:
        """Wake as many timers as there are free slots, the longest wait first."""
        if not self._waiting:
            return
        for timer in list(islice(self._waiting, self.free)):
            self._waiting.pop(timer)
            timer.wake_up.set()
