"""Every exception Tenure raises, in one small tree.

    TenureError
    ├─ ConfigError (ValueError)       a wrong argument, name or URL; nothing happened
    ├─ StoreError                     the store refused or misbehaved; see its cause
    │  ├─ JobUnreadable               the record of a job is damaged; everything else works
    │  └─ StoreUnavailable            not reachable for now; trying again later may work
    │     ├─ StoreFull                no memory or disk left; nothing was stored
    │     └─ UniqueBusy               an open transaction holds the unique key; nothing was stored
    ├─ AcquireTimeout (TimeoutError)  a lock or semaphore did not become free in time
    ├─ LeaseLost                      the lease of a hold has ended: stop writing
    ├─ WouldDeadlock                  this task would wait for a lock that it holds itself
    ├─ LimitMismatch                  a semaphore is in use with another limit (strict=True only)
    ├─ OnceFailed                     the body of app.once failed, here or on another replica
    ├─ ArgumentsError (TypeError)     arguments that do not fit a task's signature; nothing stored
    ├─ TooLarge (ValueError)          a payload, result or checkpoint above its limit
    ├─ UniqueMismatch                 a job with this unique key, but other arguments, exists
    ├─ JobNotFound (LookupError)      no such job, or its retention is over
    ├─ JobStateError                  the state of a job does not allow this call
    ├─ TimerNotFound (LookupError)    no timer or schedule of that name
    ├─ TimerBusy                      a timer cannot start another run now
    ├─ AttemptOver                    this attempt of a job is over; its transaction was undone
    ├─ ProcessDied                    the child process of an attempt died; the attempt has failed
    ├─ JobFailed                      result() of a job that has failed
    ├─ ResultUnavailable              result() of a job whose result could not be stored
    ├─ JobCancelled                   result() of a job that was cancelled
    ├─ RequestRefused                 a server has answered an HTTP client with a problem
    ├─ ServerUnreachable (ConnectionError)  a server does not answer an HTTP client
    └─ UnusableAnswer                 an HTTP client got a response that it cannot trust

Each message says what happened and what to do about it. Attributes hold the facts, so that callers
need not parse text.
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
    """The base class of all exceptions that Tenure raises."""


class ConfigError(TenureError, ValueError):
    """An argument, name or URL that cannot work. Nothing was sent to the store."""


class StoreError(TenureError):
    """The store answered with an error; `__cause__` is what its driver raised."""


class StoreUnavailable(StoreError):
    """The store cannot be reached now. The call may or may not have taken effect."""


class StoreFull(StoreUnavailable):
    """The store has no memory or disk left for this call. Nothing was stored.

    Calls work again as soon as there is room: finished jobs are pruned when their retention is
    over, or an operator gives the store more memory or disk.
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
    """The lease of a hold has ended before its block did.

    Another replica may hold the lock already, with a higher fence. The resource that you write to
    must reject writes under `fence` from then on.
    """

    def __init__(self, name: str, fence: int, reason: str) -> None:
        super().__init__(
            f"the lease on {name!r} (fence {fence}) is over: {reason}. "
            "Another replica may hold it now, so stop writing under this fence."
        )
        self.name = name
        self.fence = fence
        self.reason = reason


class WouldDeadlock(TenureError):
    """The task would wait for a lock that only it can release."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"this task or thread already holds {name!r} and would wait for itself. "
            "Pass the hold on instead, or use try_acquire(), which returns None."
        )
        self.name = name


class LimitMismatch(TenureError):
    """Live holders of a semaphore use another limit than this caller."""

    def __init__(self, name: str, limit: int, other: int) -> None:
        super().__init__(
            f"semaphore {name!r} has limit {limit} here, but live holders use {other}. Deploy one "
            "limit everywhere, or drop strict=True to use the smaller one meanwhile."
        )
        self.name = name
        self.limit = limit
        self.other = other


class OnceFailed(TenureError):
    """The body of `app.once` failed, here or on the replica that this call waited for."""

    def __init__(self, name: str, version: int | str, error: str) -> None:
        super().__init__(
            f"{name!r} (version {version}) failed: {error}. "
            "Every caller that waited for it gets this error. A new call of app.once tries again."
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
        """Pairs of a path, which starts with the name of a parameter, and what is wrong there."""


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
    """An open transaction holds the unique key, so this call cannot know which job will have it.

    Nothing was stored. Other jobs are not affected. PostgreSQL only: another connection enqueued
    a job with the same key in a transaction (`task.within`) that is still open.
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
            f"there is no job {job}. It was never stored, or the transaction that enqueues it was "
            "rolled back or is not committed yet, or it has finished and its retention is over."
        )
        self.job = job


class JobUnreadable(StoreError):
    """The store has a job of this id, but its record is damaged. Everything else works."""

    def __init__(self, job: str) -> None:
        super().__init__(
            f"job {job} cannot be read: its record in the store is damaged. It does not run, and "
            f"its result is lost. 'tenure jobs show {job}' says more, 'tenure jobs delete {job}' "
            "removes it. Enqueue it again if you still need it."
        )
        self.job = job


class JobStateError(TenureError):
    """The state of the job does not allow this call. Nothing was changed."""

    def __init__(self, job: str, problem: str) -> None:
        super().__init__(f"job {job} {problem}.")
        self.job = job


class TimerNotFound(TenureError, LookupError):
    """No timer or schedule has this name, or no process has declared it for two weeks."""

    def __init__(self, name: str, *, is_declared_here: bool = False) -> None:
        problem = (
            f"the store knows no timer or schedule {name!r}. A worker of an app that declares it "
            "must have run once; 'tenure timers ls' lists the timers in the store."
        )
        if is_declared_here:
            problem = (
                f"{name!r} is declared here, but no worker has stored it yet. Workers run timers: "
                "start 'tenure worker MODULE:APP', or use 'async with app.worker():' or 'await "
                "app.run_timers()' in this program. If a worker is just starting, try again in a "
                "moment."
            )
        super().__init__(problem)
        self.name = name


class TimerBusy(TenureError):
    """The timer cannot start another run now. Nothing was changed."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"timer {name!r} was not triggered: {problem}.")
        self.name = name


class ProcessDied(TenureError):
    """The child process of an attempt died or was killed. The attempt counts as a failure."""

    def __init__(self, how: str, exit_code: int) -> None:
        super().__init__(how)
        self.exit_code = exit_code
        """The exit code of the process; the negative number of the signal that killed it."""


class AttemptOver(TenureError):
    """The job no longer runs under the fence of this attempt. The transaction was rolled back.

    Another attempt has taken over, or the job has ended.
    """

    def __init__(self, job: str, fence: int) -> None:
        super().__init__(
            f"job {job} no longer runs under fence {fence}: it was taken over, or has ended. "
            "The transaction was rolled back. Stop writing for this attempt."
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
        """Over HTTP: the server's description, an RFC 9457 problem."""


class ResultUnavailable(TenureError):
    """The job has succeeded, but callers cannot get its result.

    The result is too large, has no JSON form, or does not fit the return type of the task.
    """

    def __init__(self, job: str, problem: str, value: Any = None) -> None:
        super().__init__(
            f"job {job} has succeeded, but its result is not available: {problem.rstrip('.')}."
        )
        self.job = job
        self.problem = problem
        self.value = value
        """The result as plain JSON values; None if it could not be stored at all."""


class JobCancelled(TenureError):
    """The job was cancelled."""

    def __init__(self, job: str, reason: str, problem: Mapping[str, Any] | None = None) -> None:
        super().__init__(f"job {job} was cancelled" + (f": {reason}" if reason else ""))
        self.job = job
        self.reason = reason
        self.problem = problem
        """Over HTTP: the server's description, an RFC 9457 problem."""


class RequestRefused(TenureError):
    """A server has answered with a problem: the request is wrong, or a limit is reached."""

    def __init__(
        self,
        request: str,
        status: int,
        problem: Mapping[str, Any],
        headers: Mapping[str, str],
        key: str | None = None,
        *,
        request_id: str | None = None,
    ) -> None:
        self.request = request
        """Its method and URL."""
        self.status = status
        self.problem = problem
        """The whole body of the response, an RFC 9457 problem."""
        self.type = str(problem.get("type", "about:blank"))
        self.title = str(problem.get("title", ""))
        self.detail = str(problem.get("detail", ""))
        errors = problem.get("errors")
        self.errors: list[Any] = errors if isinstance(errors, list) else []
        """For an invalid request: what is wrong, and in which part of the request."""
        self.headers = headers
        self.key = key
        """The idempotency key of a submission. Submit again with it to get the same job."""
        self.request_id = request_id
        """The `X-Request-Id` of the request, by which the server's logs name it."""
        reason = ". ".join(part for part in (self.title, self.detail) if part)
        where = f" {self.errors}" if self.errors else ""
        names = {"key": key, "request_id": request_id}
        shown = ", ".join(f"{name}={value!r}" for name, value in names.items() if value is not None)
        named = f" ({shown})" if shown else ""
        super().__init__(
            f"{request} was answered with {status}: {reason or 'no reason'}{where}{named}"
        )


class ServerUnreachable(TenureError, ConnectionError):
    """No response came within the client's patience. The request may have taken effect."""

    def __init__(
        self, request: str, error: str, key: str | None = None, *, request_id: str | None = None
    ) -> None:
        how = f" with key={key!r}, which creates no second job" if key is not None else ""
        named = f" (request_id={request_id!r})" if request_id is not None else ""
        super().__init__(
            f"{request} has no answer: {error}. Is the server there? Try again later{how}.{named}"
        )
        self.request = request
        self.error = error
        self.key = key
        """The idempotency key of a submission. Submit again with it to get the same job."""
        self.request_id = request_id
        """The `X-Request-Id` of the request, by which the server's logs name it."""


class UnusableAnswer(TenureError):
    """A response that does not come from Tenure's routes, or that points to another host."""

    def __init__(self, request: str, problem: str) -> None:
        super().__init__(f"the answer to {request} cannot be used: {problem}.")
        self.request = request
        self.problem = problem
