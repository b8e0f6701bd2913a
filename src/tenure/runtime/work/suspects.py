"""Suspects: jobs that were lost so often that they may be killing their workers.

A suspect runs alone: in a process of its own under a supervisor (`isolation`), else in a worker
that runs nothing else meanwhile (`quarantine`).
"""

from __future__ import annotations

from tenure.core.jobs.records import JobRecord

__all__ = ["is_suspicious"]


def is_suspicious(record: JobRecord, losses: int) -> bool:
    """Return whether a job was lost at least `isolate_after` times, and must run alone."""
    return record.losses >= losses
