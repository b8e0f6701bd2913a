"""Jobs: the handles that callers get, and the service behind them."""

from __future__ import annotations

from tenure.jobs.handles import Attempt, Job, JobPage, JobSnapshot, Request, report_of
from tenure.jobs.service import Jobs

__all__ = ["Attempt", "Job", "JobPage", "JobSnapshot", "Jobs", "Request", "report_of"]
