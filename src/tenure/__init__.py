"""Tenure lets the replicas of one service share background work safely."""

from tenure.app import Tenure
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
from tenure.jobs import Attempt, Job, JobRequest, Task, Unique
from tenure.locks.election import Election, Leader, Term
from tenure.locks.hold import Hold
from tenure.locks.lock import Lock, Outcome, Semaphore
from tenure.runtime.attempts.job_context import JobContext, current_job
from tenure.runtime.attempts.reports import Reject, Retry
from tenure.timers import Tick, TickRecord, TimerHandle, TimerInfo, TimerPause

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
    "WouldDeadlock",
    "current_job",
]
