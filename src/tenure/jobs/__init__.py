"""Tasks and jobs: how a task is declared, what a caller gets, and the service behind it."""

from __future__ import annotations

from tenure.jobs.changes import JobChanges
from tenure.jobs.enqueue_hooks import (
    AroundEnqueue,
    EnqueueHooks,
    OnEnqueue,
    Outgoing,
    OutgoingBatch,
)
from tenure.jobs.functions import check_declarable, is_declared_again, make_handler
from tenure.jobs.job import Attempt, Job, JobPage, JobRequest, JobSnapshot, report_of
from tenure.jobs.options import Options, Unique
from tenure.jobs.service import Jobs
from tenure.jobs.surroundings import read_surroundings
from tenure.jobs.task import AsyncTask, PlainTask, StoredTask, Task, TaskDecorator, make_task

__all__ = [
    "AroundEnqueue",
    "AsyncTask",
    "Attempt",
    "EnqueueHooks",
    "Job",
    "JobChanges",
    "JobPage",
    "JobRequest",
    "JobSnapshot",
    "Jobs",
    "OnEnqueue",
    "Options",
    "Outgoing",
    "OutgoingBatch",
    "PlainTask",
    "StoredTask",
    "Task",
    "TaskDecorator",
    "Unique",
    "check_declarable",
    "is_declared_again",
    "make_handler",
    "make_task",
    "read_surroundings",
    "report_of",
]
