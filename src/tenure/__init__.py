"""Tenure lets the replicas of one service share background work safely."""

from tenure.app import Tenure
from tenure.core.model import Grade, Lease, Traits
from tenure.errors import (
    AcquireTimeout,
    ConfigError,
    LeaseLost,
    LimitMismatch,
    StoreError,
    StoreUnavailable,
    TenureError,
    WouldDeadlock,
)
from tenure.holds import Hold
from tenure.locks import Lock, Outcome, Semaphore

__version__ = "0.1.0"

__all__ = [
    "AcquireTimeout",
    "ConfigError",
    "Grade",
    "Hold",
    "Lease",
    "LeaseLost",
    "LimitMismatch",
    "Lock",
    "Outcome",
    "Semaphore",
    "StoreError",
    "StoreUnavailable",
    "Tenure",
    "TenureError",
    "Traits",
    "WouldDeadlock",
]
