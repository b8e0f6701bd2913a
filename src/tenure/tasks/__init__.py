"""Tasks: functions that jobs run, how they are declared, and how to ask for a job of one."""

from __future__ import annotations

from tenure.tasks.functions import check_declarable, is_declared_again, make_handler
from tenure.tasks.options import Options, Unique
from tenure.tasks.task import AsyncTask, PlainTask, StoredTask, Task, TaskDecorator, make_task

__all__ = [
    "AsyncTask",
    "Options",
    "PlainTask",
    "StoredTask",
    "Task",
    "TaskDecorator",
    "Unique",
    "check_declarable",
    "is_declared_again",
    "make_handler",
    "make_task",
]
