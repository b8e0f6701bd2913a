"""The stream of events of an app: each goes to the log and to the app's subscribers.

To add an event, write its class in the module of its subject, and add its name to `Event` and to
the package. Subscribers run where the event happens, which may be the keeper's thread, so they must
be quick and must not block. What a subscriber raises is logged and goes no further, `sys.exit()`
included: in the keeper's thread it would end the renewals and not the process.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TypeAlias

from tenure.core.jobs.records import JobRecord, NewJob
from tenure.observe.jobs import (
    AttemptLost,
    HandlerStuck,
    JobCancelled,
    JobEnqueued,
    JobFailed,
    JobHandedBack,
    JobRetried,
    JobRunsLong,
    JobsRecovered,
    JobStarted,
    JobSucceeded,
    ResultNotStored,
    SlotsKept,
    TaskUnknown,
)
from tenure.observe.locks import (
    HoldLost,
    LimitsDiffer,
    LockAcquired,
    LockHeldLong,
    LockRefused,
    LockReleased,
    LockTakenOver,
    LockTimedOut,
    RanUnlocked,
    RenewalFailing,
    RenewalRestored,
)
from tenure.observe.log_records import Raised, fields_of, write
from tenure.observe.replica import (
    ClockJumped,
    InterpreterBlocked,
    LoopBlocked,
    QueueDelayed,
    ReplicaExpired,
    ReplicaJoined,
    ReplicaLeft,
    ReplicaLost,
)
from tenure.observe.store import DataLost, StoreCalled, StoreFailing, StoreRestored
from tenure.observe.timers import (
    TickRan,
    TickSkipped,
    TicksMissed,
    TickUnlocked,
    TimerAhead,
    TimerRunsLong,
    TimersFull,
)

__all__ = ["Event", "Events"]

log = logging.getLogger("tenure")

Event: TypeAlias = (
    JobCancelled
    | JobEnqueued
    | JobFailed
    | JobHandedBack
    | JobRetried
    | JobStarted
    | JobSucceeded
    | LockAcquired
    | LockHeldLong
    | LockRefused
    | LockReleased
    | LockTakenOver
    | LockTimedOut
    | TickRan
    | TimerRunsLong
    | ReplicaJoined
    | ReplicaLeft
    | ReplicaExpired
    | ClockJumped
    | QueueDelayed
    | StoreCalled
    | HoldLost
    | LimitsDiffer
    | RanUnlocked
    | RenewalFailing
    | RenewalRestored
    | JobsRecovered
    | AttemptLost
    | ResultNotStored
    | TaskUnknown
    | JobRunsLong
    | HandlerStuck
    | SlotsKept
    | TickSkipped
    | TicksMissed
    | TickUnlocked
    | TimersFull
    | TimerAhead
    | ReplicaLost
    | LoopBlocked
    | InterpreterBlocked
    | StoreFailing
    | StoreRestored
    | DataLost
)

_FAILED = "an event subscriber failed on %s"


class Events:
    """Passes events to the log and to subscribers. The subscribers of `origin` get them as well.

    An app that is cloned for another event loop has events of its own, with the app as the origin.
    """

    def __init__(self, origin: Events | None = None) -> None:
        self._origin = origin
        self._subscribers: list[Callable[[Event], None]] = []
        self._has_keen = False

    def subscribe(self, subscriber: Callable[[Event], None], *, details: bool = True) -> None:
        """Have a function called with events; without `details` only with those that happen anyway.

        Events of normal work are made once any subscriber wants details.
        """
        self._subscribers.append(subscriber)
        self._has_keen = self._has_keen or details

    @property
    def wants_details(self) -> bool:
        """Whether anybody wants events of normal work: a subscriber, or the log at level DEBUG.

        Check it before you make a `Detail`. Without it, events would cost every job a little.
        """
        if self._has_keen or log.isEnabledFor(logging.DEBUG):
            return True
        return self._origin is not None and self._origin.has_subscribers

    @property
    def has_subscribers(self) -> bool:
        """Whether a subscriber wants details: only then are calls of the store reported."""
        return self._has_keen or (self._origin is not None and self._origin.has_subscribers)

    def emit(
        self, event: Event, job: JobRecord | NewJob | None = None, raised: Raised | None = None
    ) -> None:
        """Log an event, with the fields of its job, and call the subscribers."""
        text = event if raised is None else event.line
        fields = {"tenure_event": type(event).__name__, **event.fields, **fields_of(job)}
        write(event.level, text, fields, raised)
        self.notify(event)

    def notify(self, event: Event) -> None:
        """Call the subscribers, without a line in the log."""
        for subscriber in self._subscribers:
            try:
                subscriber(event)
            except KeyboardInterrupt:
                # Ctrl-C raises in the main thread only, where it must end the program.
                if threading.current_thread() is threading.main_thread():
                    raise
                log.exception(_FAILED, event)
            except BaseException:
                log.exception(_FAILED, event)
        if self._origin is not None:
            self._origin.notify(event)
