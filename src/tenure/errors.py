"""Every exception Tenure raises, in one small tree.

    TenureError
    ├─ ConfigError (ValueError)       a wrong argument, name or URL; nothing happened
    ├─ StoreError                     the store refused or misbehaved; see its cause
    │  ├─ JobUnreadable               the record of a job is damaged; everything else works
    │  └─ StoreUnavailable            not reachable for now; trying again later may work
    │     ├─ StoreFull                no memory or disk left; nothing was stored
    │     └─ UniqueBusy               an open transaction holds the unique key; nothing was stored
    ├─ AcquireTimeout (TimeoutError)  a lock or semaphore did not become free in time
    ├─ LeaseLost                      what was held is no longer yours: stop writing
    ├─ WouldDeadlock                  this task would wait for a lock that it holds itself
    ├─ LimitMismatch                  a semaphore is in use with another limit (strict=True only)
    ├─ OnceFailed                     what should run once failed, here or on another replica
    ├─ ArgumentsError (TypeError)     arguments that do not fit a task's signature; nothing stored
    ├─ TooLarge (ValueError)          a payload, result or checkpoint above its limit
    ├─ UniqueMismatch                 a job with this unique key, but other arguments, exists
    ├─ JobNotFound (LookupError)      no such job, or its retention is over
    ├─ JobStateError                  a job is not in a state in which that can be done
    ├─ TimerNotFound (LookupError)    no timer or schedule of that name
    ├─ TimerBusy                      a timer may not run once more just now
    ├─ AttemptOver                    this attempt of a job is over; its transaction was undone
    ├─ ProcessDied                    the child process of an attempt died; the attempt has failed
    ├─ JobFailed                      the job whose result was asked for has failed
    ├─ ResultUnavailable              the job has succeeded, but its result cannot be had
    ├─ JobCancelled                   the job whose result was asked for was cancelled
    ├─ RequestRefused                 a server has answered an HTTP client with a problem
    ├─ ServerUnreachable (ConnectionError)  a server does not answer an HTTP client
    └─ UnusableAnswer                 an HTTP client got an answer that it must not go by

Each message says what happened and what to do about it. The facts are attributes too, so
that a handler need not parse text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = [
    "AcquireTimeout",
    "ArgumentsError",
    "AttemptOver",
    "ConfigError",
    "JobCancelled",
    "JobFailed",
    "JobNotFound",
    "JobStateError",
    "JobUnreadable",
    "LeaseLost",
    "LimitMismatch",
    "OnceFailed",
    "ProcessDied",
    "RequestRefused",
    "ResultUnavailable",
    "ServerUnreachable",
    "StoreError",
    "StoreFull",
    "StoreUnavailable",
    "TenureError",
    "TimerBusy",
    "TimerNotFound",
    "TooLarge",
    "UniqueBusy",
    "UniqueMismatch",
    "UnusableAnswer",
    "WouldDeadlock",
]


class TenureError(Exception):
    """Anything Tenure raises on purpose."""


class ConfigError(TenureError, ValueError):
    """An argument, name or URL that cannot work. Nothing was sent anywhere."""


class StoreError(TenureError):
    """The store answered with an error; `__cause__` is what its driver raised."""


class StoreUnavailable(StoreError):
    """The store cannot be reached now. What was asked may or may not have happened."""


class StoreFull(StoreUnavailable):
    """The store has no memory or no disk left for what was asked. Nothing was stored.

    It goes on as soon as there is room: finished jobs are pruned when their retention is over, or
    an operator gives the store more.
    """


class AcquireTimeout(TenureError, TimeoutError):
    """The lock or semaphore was not free within `wait` seconds."""

    def __init__(self, name: str, wait: float) -> None:
        super().__init__(
            f"{name!r} was not free within {wait:g} s. Wait longer (wait=...), try once with "
            "try_acquire(), or see who holds it with app.locks()."
        )
        self.name = name
        self.wait = wait


class LeaseLost(TenureError):
    """The lease behind a hold has ended before its block did.

    Another replica may hold it already, with a higher fence. Whatever was written under
    `fence` since then must be refused by the place it was written to.
    """

    def __init__(self, name: str, fence: int, reason: str) -> None:
        super().__init__(
            f"the lease on {name!r} (fence {fence}) is over: {reason}. "
            "Another replica may be at work now; do not write under this fence any more."
        )
        self.name = name
        self.fence = fence
        self.reason = reason


class WouldDeadlock(TenureError):
    """The task asked to wait for something only itself can give back."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"this task or thread already holds {name!r} and would wait for itself. "
            "Pass the hold on instead, or use try_acquire(), which answers None."
        )
        self.name = name


class LimitMismatch(TenureError):
    """Live holders of a semaphore use another limit than the one asked for."""

    def __init__(self, name: str, limit: int, other: int) -> None:
        super().__init__(
            f"semaphore {name!r} was asked for with limit {limit}, but live holders use {other}. "
            "Deploy one limit everywhere, or drop strict=True to go by the smaller one meanwhile."
        )
        self.name = name
        self.limit = limit
        self.other = other


class OnceFailed(TenureError):
    """The body of `app.once` failed, here or on the replica that this call waited for."""

    def __init__(self, name: str, version: int | str, error: str) -> None:
        super().__init__(
            f"{name!r} (version {version}) failed: {error}. "
            "Whoever waited for it is told; a new call of app.once tries again."
        )
        self.name = name
        self.version = version
        self.error = error


class ArgumentsError(TenureError, TypeError):
    """Arguments that do not fit the signature of a task."""

    def __init__(
        self,
        task: str,
        problem: str,
        problems: Sequence[tuple[tuple[str | int, ...], str]] = (),
    ) -> None:
        super().__init__(f"these arguments do not fit task {task!r}: {problem.rstrip('.')}.")
        self.task = task
        self.problem = problem
        self.problems = tuple(problems)
        """Each place in the arguments, from the name of a parameter on, and what is wrong there."""


class TooLarge(TenureError, ValueError):
    """Something is larger than its limit."""

    def __init__(self, what: str, size: int, limit: int, setting: str) -> None:
        super().__init__(
            f"{what}: {size:,} bytes, and {setting} allows {limit:,}. Store large data "
            f"elsewhere and pass a reference, or raise {setting} in Tenure(...)."
        )
        self.size = size
        self.limit = limit
        self.setting = setting


class UniqueMismatch(TenureError):
    """The unique key belongs to a job with other arguments. Nothing was stored."""

    def __init__(self, key: str, job: str) -> None:
        super().__init__(
            f"unique key {key!r} belongs to job {job}, which has other arguments. "
            "Use another key for another request."
        )
        self.key = key
        self.job = job


class UniqueBusy(StoreUnavailable):
    """An open transaction holds the unique key, so it is not known who will have it.

    Nothing was stored. Other jobs are not affected. PostgreSQL only: another connection enqueued
    with the same key in a transaction of its own (`task.within`) and has not ended it.
    """

    def __init__(self, key: str) -> None:
        super().__init__(
            f"unique key {key!r} is held by a transaction that does not end. Nothing was stored. "
            "Commit or roll back the transaction that enqueued with this key, then try again."
        )
        self.key = key


class JobNotFound(TenureError, LookupError):
    """No job has this id, or it was pruned."""

    def __init__(self, job: str) -> None:
        super().__init__(
            f"there is no job {job}. It was never stored, or the transaction that it was bound to "
            "was rolled back or is not committed yet, or it has finished and its retention is over."
        )
        self.job = job


class JobUnreadable(StoreError):
    """The store has a job of this id, but its record is damaged. Everything else works."""

    def __init__(self, job: str) -> None:
        super().__init__(
            f"job {job} cannot be read: its record in the store is damaged. It does not run, and "
            f"its result is lost. 'tenure jobs show {job}' says more, 'tenure jobs delete {job}' "
            "removes it. Enqueue it again if it is still wanted."
        )
        self.job = job


class JobStateError(TenureError):
    """The job is not in a state in which that can be done. Nothing was changed."""

    def __init__(self, job: str, problem: str) -> None:
        super().__init__(f"job {job} {problem}.")
        self.job = job


class TimerNotFound(TenureError, LookupError):
    """No timer or schedule has this name, or nobody has declared it for a long time."""

    def __init__(self, name: str, *, is_declared_here: bool = False) -> None:
        problem = (
            f"the store knows no timer or schedule {name!r}. A process that declares it must have "
            "run its timers once; 'tenure timers ls' shows those that are there."
        )
        if is_declared_here:
            problem = (
                f"{name!r} is declared here, but no worker has made it known to the store yet: "
                "timers run where a worker runs. Start 'tenure worker MODULE:APP', or in this "
                "program 'async with app.worker():' or 'await app.run_timers()'. If one is just "
                "starting, try again in a moment."
            )
        super().__init__(problem)
        self.name = name


class TimerBusy(TenureError):
    """The timer may not run once more just now. Nothing was changed."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"timer {name!r} was not triggered: {problem}.")
        self.name = name


class ProcessDied(TenureError):
    """The child process that ran an attempt died, or had to be ended. Counts as a failure."""

    def __init__(self, how: str, exit_code: int) -> None:
        super().__init__(how)
        self.exit_code = exit_code
        """What it ended with; the negative number of a signal if it was one."""


class AttemptOver(TenureError):
    """The job no longer runs under the fence of this attempt: nothing of the block was kept.

    Another attempt has taken over, or the job has ended.
    """

    def __init__(self, job: str, fence: int) -> None:
        super().__init__(
            f"job {job} no longer runs under fence {fence}: it was taken over, or has ended. "
            "The transaction was rolled back; do not write for this attempt any more."
        )
        self.job = job
        self.fence = fence


class JobFailed(TenureError):
    """The job has failed for good: out of attempts, rejected, or lost too often."""

    def __init__(
        self, job: str, reason: str, error: str, problem: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(f"job {job} failed ({reason}): {error}")
        self.job = job
        self.reason = reason
        self.error = error
        self.problem = problem
        """Over HTTP: what the server says about it, as RFC 9457 has it."""


class ResultUnavailable(TenureError):
    """The job has succeeded, but what its handler returned cannot be given to a caller.

    It is too large, has no JSON form, or is not what the return type of the task says.
    """

    def __init__(self, job: str, problem: str, value: Any = None) -> None:
        super().__init__(
            f"job {job} has succeeded, but its result is not available: {problem.rstrip('.')}."
        )
        self.job = job
        self.problem = problem
        self.value = value
        """What was returned, as plain JSON values; None if it could not be stored at all."""


class JobCancelled(TenureError):
    """The job was cancelled."""

    def __init__(self, job: str, reason: str, problem: Mapping[str, Any] | None = None) -> None:
        super().__init__(f"job {job} was cancelled" + (f": {reason}" if reason else ""))
        self.job = job
        self.reason = reason
        self.problem = problem
        """Over HTTP: what the server says about it, as RFC 9457 has it."""


class RequestRefused(TenureError):
    """A server has answered with a problem: the request is wrong, or not welcome for now."""

    def __init__(
        self,
        request: str,
        status: int,
        problem: Mapping[str, Any],
        headers: Mapping[str, str],
        key: str | None = None,
    ) -> None:
        self.request = request
        """Its method and URL."""
        self.status = status
        self.problem = problem
        """All of the answer's body, as RFC 9457 has it."""
        self.type = str(problem.get("type", "about:blank"))
        self.title = str(problem.get("title", ""))
        self.detail = str(problem.get("detail", ""))
        errors = problem.get("errors")
        self.errors: list[Any] = errors if isinstance(errors, list) else []
        """What is wrong where, for a request that does not fit."""
        self.headers = headers
        self.key = key
        """Under which a job was submitted. Sent again with it, there is one job of both."""
        reason = ". ".join(part for part in (self.title, self.detail) if part)
        where = f" {self.errors}" if self.errors else ""
        named = f" (key={key!r})" if key is not None else ""
        super().__init__(
            f"{request} was answered with {status}: {reason or 'no reason'}{where}{named}"
        )


class ServerUnreachable(TenureError, ConnectionError):
    """No answer for as long as a client has patience. What was asked may have happened."""

    def __init__(self, request: str, error: str, key: str | None = None) -> None:
        how = f" with key={key!r}, and there is one job of both" if key is not None else ""
        super().__init__(
            f"{request} has no answer: {error}. Is the server there? Try again later{how}."
        )
        self.request = request
        self.error = error
        self.key = key
        """Under which a job was submitted. Sent again with it, there is one job of both."""


class UnusableAnswer(TenureError):
    """An answer that does not come from routes of Tenure, or that points to another host."""

    def __init__(self, request: str, problem: str) -> None:
        super().__init__(f"the answer to {request} cannot be used: {problem}.")
        self.request = request
        self.problem = problem
