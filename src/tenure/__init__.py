"""Tenure lets the replicas of one service share background work safely."""

from tenure.app import Tenure
from tenure.core.calendar.blackouts import daily, weekdays, weekends, window
from tenure.core.jobs.retention import Retention
from tenure.core.leases import Grade, Lease, Traits
from tenure.core.policy import Backoff
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
    RequestRefused,
    ResultUnavailable,
    ServerUnreachable,
    StoreError,
    StoreFull,
    StoreUnavailable,
    TenureError,
    TimerBusy,
    TimerNotFound,
    TooLarge,
    UniqueBusy,
    UniqueMismatch,
    UnusableAnswer,
    WouldDeadlock,
)
from tenure.jobs import Attempt, Job, Request, Task, Unique
from tenure.locks.election import Election, Leader, Term
from tenure.locks.hold import Hold
from tenure.locks.lock import Lock, Outcome, Semaphore
from tenure.runtime.attempts.attempt import Reject, Retry
from tenure.runtime.attempts.job_context import JobContext, current_job
from tenure.timers import Pause, Tick, TickRecord, TimerHandle, TimerInfo

__version__ = "0.1.0"

__all__ = [
    "AcquireTimeout",
    "ArgumentsError",
    "Attempt",
    "AttemptOver",
    "Backoff",
    "ConfigError",
    "Election",
    "Grade",
    "Hold",
    "Job",
    "JobCancelled",
    "JobContext",
    "JobFailed",
    "JobNotFound",
    "JobStateError",
    "JobUnreadable",
    "Leader",
    "Lease",
    "LeaseLost",
    "LimitMismatch",
    "Lock",
    "OnceFailed",
    "Outcome",
    "Pause",
    "ProcessDied",
    "Reject",
    "Request",
    "RequestRefused",
    "ResultUnavailable",
    "Retention",
    "Retry",
    "Semaphore",
    "ServerUnreachable",
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
    "TooLarge",
    "Traits",
    "Unique",
    "UniqueBusy",
    "UniqueMismatch",
    "UnusableAnswer",
    "WouldDeadlock",
    "current_job",
    "daily",
    "weekdays",
    "weekends",
    "window",
]
