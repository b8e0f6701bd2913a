"""Tenure lets the replicas of one service share background work safely.

What jobs and timers need is imported at its first use: a service that only takes locks starts
without it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from tenure.app import Tenure
from tenure.core.jobs.retention import Retention
from tenure.core.jobs.retry_policy import Backoff
from tenure.core.leases import Grade, Lease, Traits
from tenure.core.release import VERSION
from tenure.errors import (
    AcquireTimeout,
    ArgumentsError,
    AttemptOver,
    ConfigError,
    JobCancelled,
    JobFailed,
    JobNotFound,
    JobStateError,
    JobUnreadable,
    LeaseLost,
    LimitMismatch,
    OnceFailed,
    ProcessDied,
    ResultUnavailable,
    StoreError,
    StoreFull,
    StoreUnavailable,
    TenureError,
    TimerBusy,
    TimerNotFound,
    TooLarge,
    UniqueBusy,
    UniqueMismatch,
    WouldDeadlock,
)
from tenure.locks.election import Election, Leader, Term
from tenure.locks.hold import Hold
from tenure.locks.lock import Lock, Outcome, Semaphore

if TYPE_CHECKING:
    from tenure.core.health import Health, HealthCheck
    from tenure.core.why import Why
    from tenure.jobs import Attempt, Job, JobRequest, Outgoing, OutgoingBatch, Task, Unique
    from tenure.runtime.attempts.job_context import JobContext, current_job
    from tenure.runtime.attempts.reports import Reject, Retry
    from tenure.timers import Tick, TickRecord, TimerHandle, TimerInfo, TimerPause

__version__ = VERSION

__all__ = [
    "AcquireTimeout",
    "ArgumentsError",
    "Attempt",
    "AttemptOver",
    "Backoff",
    "ConfigError",
    "Election",
    "Grade",
    "Health",
    "HealthCheck",
    "Hold",
    "Job",
    "JobCancelled",
    "JobContext",
    "JobFailed",
    "JobNotFound",
    "JobRequest",
    "JobStateError",
    "JobUnreadable",
    "Leader",
    "Lease",
    "LeaseLost",
    "LimitMismatch",
    "Lock",
    "OnceFailed",
    "Outcome",
    "Outgoing",
    "OutgoingBatch",
    "ProcessDied",
    "Reject",
    "ResultUnavailable",
    "Retention",
    "Retry",
    "Semaphore",
    "StoreError",
    "StoreFull",
    "StoreUnavailable",
    "Task",
    "Tenure",
    "TenureError",
    "Term",
    "Tick",
    "TickRecord",
    "TimerBusy",
    "TimerHandle",
    "TimerInfo",
    "TimerNotFound",
    "TimerPause",
    "TooLarge",
    "Traits",
    "Unique",
    "UniqueBusy",
    "UniqueMismatch",
    "Why",
    "WouldDeadlock",
    "current_job",
]

_LATER: Final = {
    **dict.fromkeys(("Health", "HealthCheck"), "tenure.core.health"),
    "Why": "tenure.core.why",
    **dict.fromkeys(
        ("Attempt", "Job", "JobRequest", "Outgoing", "OutgoingBatch", "Task", "Unique"),
        "tenure.jobs",
    ),
    **dict.fromkeys(("JobContext", "current_job"), "tenure.runtime.attempts.job_context"),
    **dict.fromkeys(("Reject", "Retry"), "tenure.runtime.attempts.reports"),
    **dict.fromkeys(
        ("Tick", "TickRecord", "TimerHandle", "TimerInfo", "TimerPause"), "tenure.timers"
    ),
}
"""The module of each name that is imported at its first use."""


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    value = globals()[name] = getattr(import_module(_LATER[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
