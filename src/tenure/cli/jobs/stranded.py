"""What to do about a job that no worker can finish."""

from __future__ import annotations

from tenure.cli.text import duration, safe
from tenure.core.jobs.records import Stranded

__all__ = ["advice_for_stranded"]


def advice_for_stranded(job: Stranded) -> str:
    """Return why a job is stranded, and what an operator can do."""
    if job.why == "orphan":
        where = f"replica {safe(job.replica)!r}" if job.replica else "a replica"
        return (
            f"job {safe(job.id)} runs on {where} that is not in the store: its record was removed "
            "by hand. 'tenure recover' lets another worker run the job."
        )
    return (
        f"job {safe(job.id)} was set aside, because its record cannot be read. It is kept in "
        f"{job.where} for another {duration(job.left)}; 'tenure jobs delete {safe(job.id)}' "
        "removes it now. Enqueue it again if it is still needed."
    )
