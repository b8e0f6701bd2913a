"""What Tenure tells about itself: events for programs, log lines for people."""

from tenure.observe.events import (
    AttemptFailed,
    AttemptLost,
    Event,
    HandlerStuck,
    HoldLost,
    JobsRecovered,
    LimitsDiffer,
    LoopBlocked,
    RenewalFailing,
    RenewalRestored,
    ReplicaLost,
    StoreFailing,
    StoreRestored,
    TaskUnknown,
)

__all__ = [
    "AttemptFailed",
    "AttemptLost",
    "Event",
    "HandlerStuck",
    "HoldLost",
    "JobsRecovered",
    "LimitsDiffer",
    "LoopBlocked",
    "RenewalFailing",
    "RenewalRestored",
    "ReplicaLost",
    "StoreFailing",
    "StoreRestored",
    "TaskUnknown",
]
