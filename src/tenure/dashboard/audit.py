"""The audit log: one INFO line on the logger `tenure.dashboard` for each action of a viewer.

A line names the viewer, the action, its subject and the outcome, also of a refused or failed one.
It never has arguments, results, reasons or tokens.
"""

from __future__ import annotations

import logging
from typing import Final

from tenure.core.safe_text import safe
from tenure.dashboard.viewer import Viewer

__all__ = ["record"]

log = logging.getLogger("tenure.dashboard")

_SUBJECT_MAX: Final = 300
_OUTCOME_MAX: Final = 8000
"""Room for the ids of 200 chosen jobs."""


def record(viewer: Viewer, action: str, subject: str, outcome: str) -> None:
    """Log what a viewer did."""
    fields = {
        "tenure_event": "DashboardAction",
        "viewer": viewer.name,
        "action": action,
        "subject": safe(subject)[:_SUBJECT_MAX],
        "outcome": safe(outcome)[:_OUTCOME_MAX],
    }
    log.info(
        "dashboard: %s %s by %s: %s",
        action,
        fields["subject"],
        viewer.name,
        fields["outcome"],
        extra=fields,
    )
