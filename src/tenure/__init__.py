"""Tenure lets the replicas of one service share background work safely."""

from tenure.app import Tenure
from tenure.core.model import Grade, Lease, Traits
from tenure.election import Election, Leader, Term
from tenure.errors import (
    AcquireTimeout,
    ConfigError,
    LeaseLost,
    LimitMismatch,
    OnceFailed,
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
    "Election",
    "Grade",
    "Hold",
    "Leader",
    "Lease",
    "LeaseLost",
    "LimitMismatch",
    "Lock",
    "OnceFailed",
    "Outcome",
    "Semaphore",
    "StoreError",
    "StoreUnavailable",
    "Tenure",
    "TenureError",
    "Term",
    "Traits",
    "WouldDeadlock",
]
