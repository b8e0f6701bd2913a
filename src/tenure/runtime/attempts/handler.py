"""Handlers: the functions that jobs run, with the options of their tasks.

An app makes one `Handler` for each task and timer. A worker looks it up by the task of a job.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, Final, Literal, Protocol, TypeAlias, get_args

from msgspec import Struct

from tenure.core.jobs.records import JobRecord
from tenure.core.jobs.retry_policy import Backoff
from tenure.core.values.signature import Signature
from tenure.runtime.attempts.job_context import JobContext

__all__ = ["EXECUTORS", "Around", "Executor", "Handler", "Pacing"]

Around: TypeAlias = Callable[
    [JobContext], AbstractAsyncContextManager[Any] | AbstractContextManager[Any]
]
"""Middleware: returns the context manager that surrounds one attempt.

An async one is entered on the event loop, a plain one where the handler runs.
"""

Executor: TypeAlias = Literal["auto", "thread", "process"]
"""Where a handler runs; "auto": async functions on the loop, plain ones in threads."""
EXECUTORS: Final = get_args(Executor)


class Pacing(Protocol):
    """Decides when an attempt begins, and whether it calls its handler again after an error.

    Timers use it for their jitter and their retries: a run of a timer is a single attempt.
    """

    def before(self, record: JobRecord) -> float:
        """Return how long to wait before the handler is called."""
        ...

    def after_failure(
        self, record: JobRecord, tries: int, seconds: float, requested: float | None
    ) -> float | None:
        """Return how long to wait before the handler is called again; None: it is not.

        `seconds` have passed since the attempt began. `requested` is the pause of a `Retry`.
        """
        ...


class Handler(Struct, frozen=True, kw_only=True):
    """The function of a task, and how to run it."""

    name: str
    function: Callable[..., Any]
    is_async: bool
    signature: Signature
    retry: Backoff
    executor: Executor = "auto"
    pacing: Pacing | None = None
    expected: float | None = None
    """How many seconds a run usually takes; a much longer one is reported."""

    @property
    def runs_in_thread(self) -> bool:
        """Whether a thread of the worker calls it, not the event loop or a child process."""
        return not self.is_async and self.executor != "process"

    @property
    def is_cancellable(self) -> bool:
        """Whether a worker can stop it. A thread can only be asked to stop."""
        return self.is_async or self.executor == "process"
