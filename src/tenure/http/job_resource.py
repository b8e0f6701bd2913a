"""The JSON of a job that clients get, and when they should ask again.

The server builds a `JobResource` from a job record, the client decodes it. `Responses` lets users
replace the JSON. `Pace` estimates `Retry-After` from the jobs that this process has seen finish.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from statistics import median
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Struct

from tenure.core.durations import micros
from tenure.core.jobs.records import JobRecord
from tenure.core.jobs.results import read_stored
from tenure.core.jobs.run_numbers import runs_of
from tenure.core.jobs.states import FINISHED, JobState
from tenure.core.jobs.view import as_datetime
from tenure.http.problems import Problem, problem_of_report
from tenure.jobs import report_of

__all__ = ["JobList", "JobResource", "Links", "Pace", "Progress", "Responses", "failure"]

T = TypeVar("T")

_PACE_KEEPS = 50
_SOONEST, _LATEST = 1, 30
_INLINE_MAX = 65_536
_KINDS_OF_FAILURE = {"timeout": "job-timed-out", "lost": "job-lost"}


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress that a handler has reported."""

    part: float
    """From 0 to 1."""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Links:
    """The other routes of a job."""

    job: str
    result: str
    events: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobResource(Generic[T]):
    """A job as clients see it."""

    id: str
    state: JobState
    created: datetime
    started: datetime | None = None
    """When the current or last attempt began."""
    finished: datetime | None = None
    expires: datetime | None = None
    """When the store may remove it."""
    attempt: int = 0
    progress: Progress | None = None
    cancelling: bool = False
    """Whether cancellation was requested and the handler still runs."""
    error: dict[str, Any] | None = None
    """Why it failed or was cancelled, or why its result is not available, as a problem."""
    links: Links

    result: T | None = None
    """The result, if it is JSON of up to 64 KiB. `links.result` has every result."""

    @classmethod
    def of(cls, record: JobRecord, base: str, *, inline: bool = False) -> JobResource[Any]:
        """Return the public view of a job. Its links point to the routes under `base`."""
        path = f"{base}/jobs/{record.id}"
        is_finished = record.state in FINISHED
        problem = failure(record)
        return cls(
            id=record.id,
            state=record.state,
            created=as_datetime(record.created),
            started=as_datetime(record.started) if record.started else None,
            finished=as_datetime(record.finished) if record.finished else None,
            expires=as_datetime(record.finished + micros(record.kept_for)) if is_finished else None,
            attempt=runs_of(record),
            progress=None if record.progress is None else Progress(record.progress, record.message),
            cancelling=record.cancelling,
            error=None if problem is None else problem.body,
            links=Links(path, f"{path}/result", f"{path}/events"),
            result=_inlined(record) if inline else None,
        )


def _inlined(record: JobRecord) -> Any:
    """Return the stored result, which is JSON already; None if it is missing or large."""
    if record.result is None or len(record.result) > _INLINE_MAX or failure(record) is not None:
        return None
    return read_stored(record.result).sent


@dataclass(frozen=True, slots=True)
class JobList:
    """One page of an owner's jobs, newest first."""

    jobs: list[Any]
    cursor: str | None = None
    """Pass it as `cursor` to get the next page; null on the last page."""


def failure(record: JobRecord) -> Problem | None:
    """Return why a job will have no result; None if it has one, or still may.

    That is the `Problem` that its handler raised. Other errors become a general problem, because
    their text may contain secrets.
    """
    if record.state == "succeeded" and record.result is not None:
        return None if _is_available(record.result) else Problem.of("result-unavailable")
    if record.state == "cancelled":
        return Problem.of("cancelled", record.reason)
    if record.state != "failed":
        return None
    report = report_of(record)
    own = None if report is None else problem_of_report(report)
    if own is not None:
        return own
    # The reason decides, not the error: a handler may raise a TimeoutError of its own.
    return Problem.of(_KINDS_OF_FAILURE.get(record.reason, "job-failed"))


def _is_available(result: bytes) -> bool:
    try:
        return not read_stored(result).problem
    except (ValueError, RecursionError):  # it was damaged in the store
        return False


class Pace:
    """How long the jobs of an endpoint take, for Retry-After.

    It knows the last 50 jobs that this process has seen succeed, so replicas may differ.
    """

    def __init__(self) -> None:
        self._seen: deque[float] = deque(maxlen=_PACE_KEEPS)
        self._counted: deque[str] = deque(maxlen=_PACE_KEEPS)

    def see(self, record: JobRecord) -> None:
        """Count the duration of a finished job, once."""
        if record.state == "succeeded" and record.id not in self._counted:
            self._counted.append(record.id)
            self._seen.append((record.finished - record.started) / 1e6)

    @property
    def usual(self) -> int:
        """The usual duration of a job in seconds, from 1 to 30."""
        return self._within(0.0)

    def retry_after(self, record: JobRecord, now: int) -> int:
        """Return after how many seconds the client should ask again."""
        return self._within((now - record.started) / 1e6 if record.state == "running" else 0.0)

    def _within(self, since: float) -> int:
        usual = median(self._seen) if self._seen else 0.0
        return max(_SOONEST, min(_LATEST, math.ceil(usual - since)))


class Responses(Struct, frozen=True, kw_only=True):
    """Functions that replace the JSON of responses.

    Args:
        job: takes a `JobResource` and returns what to send in its place, wherever a job is shown.
        problem: takes the body of a problem and returns what to send in its place.
    """

    job: Callable[[JobResource[Any]], Any] | None = None
    problem: Callable[[dict[str, Any]], Any] | None = None

    def write_job(self, resource: JobResource[Any]) -> bytes:
        return msgspec.json.encode(resource if self.job is None else self.job(resource))

    def show_job(self, resource: JobResource[Any]) -> Any:
        return resource if self.job is None else self.job(resource)

    def encode_problem(self, problem: Problem) -> bytes:
        shown = problem.body if self.problem is None else self.problem(problem.body)
        return msgspec.json.encode(shown)
