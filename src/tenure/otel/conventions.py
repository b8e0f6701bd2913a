"""Names of OpenTelemetry's conventions for messaging, and those of Tenure's own attributes."""

from __future__ import annotations

from typing import Final

__all__ = [
    "ATTEMPT",
    "BATCH_COUNT",
    "DESTINATION",
    "ERROR_TYPE",
    "MESSAGE_ID",
    "OPERATION",
    "OPERATION_TYPE",
    "OUTCOME",
    "REQUEST_ID",
    "SYSTEM",
    "TASK",
    "about",
]

SYSTEM: Final = "messaging.system"
DESTINATION: Final = "messaging.destination.name"
OPERATION: Final = "messaging.operation.name"
OPERATION_TYPE: Final = "messaging.operation.type"
MESSAGE_ID: Final = "messaging.message.id"
BATCH_COUNT: Final = "messaging.batch.message_count"
ERROR_TYPE: Final = "error.type"

TASK: Final = "tenure.task"
ATTEMPT: Final = "tenure.attempt"
OUTCOME: Final = "tenure.outcome"
REQUEST_ID: Final = "tenure.request_id"


def about(operation: str, kind: str, queue: str = "") -> dict[str, str | int]:
    """Return the attributes that every span and every metric of messaging has."""
    attributes: dict[str, str | int] = {
        SYSTEM: "tenure",
        OPERATION: operation,
        OPERATION_TYPE: kind,
    }
    if queue:
        attributes[DESTINATION] = queue
    return attributes
