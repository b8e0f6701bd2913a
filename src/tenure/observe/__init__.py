"""Events: facts worth counting or alerting on, as typed values and as lines of the log.

Subscribe with `app.on_event(function)`. There is one module per subject: locks, jobs, timers,
replicas and the store.
"""

from tenure.observe.events import Event
from tenure.observe.jobs import (
    AttemptFailed,
    AttemptLost,
    HandlerStuck,
    JobLost,
    JobRunsLong,
    JobsRecovered,
    ResultNotStored,
    SlotsKept,
    TaskUnknown,
)
from tenure.observe.locks import (
    HoldLost,
    LimitsDiffer,
    RanUnlocked,
    RenewalFailing,
    RenewalRestored,
)
from tenure.observe.replica import InterpreterBlocked, LoopBlocked, ReplicaLost
from tenure.observe.store import DataLost, StoreFailing, StoreRestored
from tenure.observe.timers import TickSkipped, TicksMissed, TickUnlocked, TimerAhead, TimersFull

__all__ = [
    "AttemptFailed",
    "AttemptLost",
    "DataLost",
    "Event",
    "HandlerStuck",
    "HoldLost",
    "InterpreterBlocked",
    "JobLost",
    "JobRunsLong",
    "JobsRecovered",
    "LimitsDiffer",
    "LoopBlocked",
    "RanUnlocked",
    "RenewalFailing",
    "RenewalRestored",
    "ReplicaLost",
    "ResultNotStored",
    "SlotsKept",
    "StoreFailing",
    "StoreRestored",
    "TaskUnknown",
    "TickSkipped",
    "TickUnlocked",
    "TicksMissed",
    "TimerAhead",
    "TimersFull",
]
