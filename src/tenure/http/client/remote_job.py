"""A job on a server, free of I/O: its last known state, and the conversations with its routes.

`RemoteJob` and `AsyncRemoteJob` run the conversations of `KnownJob`. `Tail` follows the events of a
job over as many streams as needed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, Literal, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from tenure.core.durations import Duration
from tenure.core.jobs.states import FINISHED
from tenure.errors import (
    JobCancelled,
    JobFailed,
    JobNotFound,
    JobStateError,
    RequestRefused,
    ResultUnavailable,
    ServerUnreachable,
    UnusableAnswer,
)
from tenure.http.client.conversation import (
    REQUEST_ID,
    SILENCE,
    Ask,
    Caller,
    Deadline,
    Lost,
    Pause,
    Reply,
    Steps,
    may_pass,
    pause_of,
    refusal,
    retry_after,
)
from tenure.http.job_resource import JobResource
from tenure.http.problems import PREFIX
from tenure.http.request import Headers, wait_preference

__all__ = ["JobEvent", "JobView", "KnownJob", "Tail"]

_WAIT: Final = 20.0
"""How many seconds one long poll lasts: less than the idle timeout of common proxies."""
# The server pings every 15 s, so three pings are missing by then.
_DEAD_AIR: Final = 45.0
# Jitter in seconds, so that clients with the same Retry-After do not poll at the same instant.
_APART: Final = 0.25
_APPLIED: Final = "preference-applied"
_ONLY_OF_SUBMIT: Final = frozenset({"content-type", "idempotency-key", "prefer"})
# The job is stored, so `submit` returns its handle and drops these errors. The next call on the
# handle raises them again if they persist.
_PASSING_BY: Final = (TimeoutError, ServerUnreachable, RequestRefused, JobNotFound)


class KnownJob:
    """A job at a URL, in the state of the last response about it."""

    def __init__(self, caller: Caller, url: str, headers: Mapping[str, str]) -> None:
        self._caller = caller
        lower = {name.lower(): value for name, value in headers.items()}
        self._headers = {name: lower[name] for name in lower.keys() - _ONLY_OF_SUBMIT}
        self.url = url
        self._resource: JobResource[Any] | None = None

    @property
    def id(self) -> str:
        return self.url.rpartition("/")[2]

    @property
    def request_id(self) -> str | None:
        return self._headers.get(REQUEST_ID)

    @property
    def resource(self) -> JobResource[Any]:
        if self._resource is None:
            problem = "is stored, but has not been seen yet: refresh() it, or wait() for it"
            raise JobStateError(self.id, problem)
        return self._resource

    @property
    def is_finished(self) -> bool:
        return self.shown in FINISHED

    @property
    def shown(self) -> str:
        """The state in one word; "unseen" before the first response."""
        return "unseen" if self._resource is None else self._resource.state

    def deadline(self, timeout: Duration | None) -> Deadline:
        then = f"job {self.id} has not finished, and goes on"
        return self._caller.deadline(timeout, then)

    def ask(self, method: str, below: str = "", headers: Mapping[str, str] | None = None) -> Ask:
        named = {**self._headers, **(headers or {})}
        return Ask(method=method, url=f"{self.url}{below}", headers=named)

    def tail(self, after: int, timeout: Duration | None) -> Tail:
        return Tail(self, self._caller, after, self.deadline(timeout))

    def see(self, ask: Ask, body: bytes) -> JobResource[Any]:
        self._resource = _read_job(ask, body)
        return self._resource

    def asking(self, ask: Ask, deadline: Deadline) -> Steps[Reply]:
        """Send a request about this job. Raises JobNotFound if the server does not have it."""
        try:
            return (yield from self._caller.exchange(ask, deadline))
        except RequestRefused as error:
            self.check_found(error)
            raise

    def check_found(self, error: RequestRefused) -> None:
        if error.type == f"{PREFIX}not-found":
            raise JobNotFound(self.id) from error

    def refreshing(self, timeout: Duration | None) -> Steps[None]:
        """Fetch the job."""
        then = f"there is no answer about job {self.id}, which goes on"
        yield from self._seeing("GET", self._caller.deadline(timeout, then))

    def cancelling(self, timeout: Duration | None) -> Steps[None]:
        """Request cancellation."""
        then = f"whether job {self.id} was asked to end is not known. Cancel it again"
        yield from self._seeing("DELETE", self._caller.deadline(timeout, then))

    def _seeing(self, method: Literal["GET", "DELETE"], deadline: Deadline) -> Steps[None]:
        ask = self.ask(method)
        reply = yield from self.asking(ask, deadline)
        self.see(ask, reply.body)

    def meeting(self, deadline: Deadline) -> Steps[None]:
        """Fetch the job for the first time. Errors are dropped; see `_PASSING_BY`."""
        with suppress(*_PASSING_BY):
            yield from self._seeing("GET", deadline)

    def waiting(self, deadline: Deadline) -> Steps[None]:
        """Poll until the job has finished, each time as long as the server lets a poll wait."""
        clock = self._caller.clock
        while not self.is_finished:
            # Rounded up: the deadline cuts the last poll off, not a wait that is too short.
            wait, since = math.ceil(min(_WAIT, deadline.left)), clock.boot()
            ask = self.ask("GET", headers={"prefer": f"wait={wait}"})
            reply = yield from self.asking(replace(ask, silence=SILENCE + wait), deadline)
            if self.see(ask, reply.body).state in FINISHED:
                return
            applied = wait_preference(Headers({"prefer": reply.headers.get(_APPLIED, "")}))
            if not 0 < applied / 2 <= clock.boot() - since:
                # The server did not wait, so the client waits for Retry-After before it polls.
                requested = retry_after(reply.headers, clock)
                pause = pause_of(1.0 if requested is None else requested, _APART * clock.random())
                yield Pause(max(0.0, min(pause, deadline.left)))

    def lingering(self, wait: float) -> Steps[None]:
        """Wait up to `wait` seconds for the job to finish. Errors are dropped."""
        with suppress(*_PASSING_BY):
            yield from self.waiting(self.deadline(wait))

    def resulting(self, timeout: Duration | None) -> Steps[Any]:
        """Wait for the result and return it. Raises an error that says why there is none."""
        deadline = self.deadline(timeout)
        yield from self.waiting(deadline)
        problem = self.resource.error or {}
        text = ". ".join(
            str(problem[member]) for member in ("title", "detail") if problem.get(member)
        )
        if self.resource.state == "failed":
            reason = str(problem.get("type", "")).removeprefix(PREFIX) or "failed"
            raise JobFailed(self.id, reason, text, problem)
        if self.resource.state == "cancelled":
            raise JobCancelled(self.id, str(problem.get("detail", "")), problem)
        if self.resource.result is not None:
            return self.resource.result
        if problem:
            raise ResultUnavailable(self.id, text)
        ask = self.ask("GET", "/result")
        reply = yield from self.asking(ask, deadline)
        kind = reply.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json" and not kind.endswith("+json"):
            return reply.body
        return _decoded(ask, reply.body, Any)


def _decoded(ask: Ask, body: bytes, type_: Any) -> Any:
    try:
        return msgspec.json.decode(body, type=type_)
    except (ValueError, RecursionError) as error:  # msgspec's own errors are ValueErrors
        raise UnusableAnswer(str(ask), f"it is not what these routes say ({error})") from None


def _read_job(ask: Ask, body: bytes) -> JobResource[Any]:
    return cast("JobResource[Any]", _decoded(ask, body, JobResource[Any]))


class JobView:
    """The attributes that `RemoteJob` and `AsyncRemoteJob` share."""

    def __init__(self, job: KnownJob) -> None:
        self._job = job

    @property
    def id(self) -> str:
        return self._job.id

    @property
    def url(self) -> str:
        """The URL of the job. Pass it to `Client.job` to get the job again."""
        return self._job.url

    @property
    def request_id(self) -> str | None:
        """The `X-Request-Id` of requests about the job, which the server's logs name.

        None for a job of `Client.job` without that header.
        """
        return self._job.request_id

    @property
    def resource(self) -> JobResource[Any]:
        """The job as of the last response: `resource.state`, `resource.progress` and so on.

        Raises:
            JobStateError: the job was stored, but no response described it yet. Call `refresh`.
        """
        return self._job.resource

    @property
    def is_finished(self) -> bool:
        return self._job.is_finished

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} {self._job.shown}>"


class JobEvent(Struct, frozen=True, kw_only=True):
    """A change of a job."""

    revision: int
    """Rises with every change. Pass it to `events(after=)` to continue after this event."""
    kind: str
    """"state", "progress", or "result" for the end of a job that has succeeded."""
    job: JobResource[Any]
    """The job after the change."""


class Tail:
    """Follows the events of a job, and reconnects until the job has finished.

    Each event comes at most once, and the last one always comes.
    """

    def __init__(self, job: KnownJob, caller: Caller, after: int, deadline: Deadline) -> None:
        self._job = job
        self._after = after
        self._deadline = deadline
        self._tries = caller.tries(deadline)
        self._lines = _Lines()
        self._ask = job.ask("GET", "/events")
        self._has_ended = False

    def has_ended(self) -> bool:
        """Return whether the last event has come."""
        return self._has_ended

    def next_ask(self) -> Ask:
        """Return the request for a stream that continues after the last received event."""
        if (left := self._deadline.left) <= 0:
            raise self._deadline.passed()
        self._lines = _Lines()
        headers = {"accept": "text/event-stream"}
        if self._after:
            headers["last-event-id"] = str(self._after)
        self._ask = self._job.ask("GET", "/events", headers)
        return replace(self._ask, silence=min(_DEAD_AIR, left), within=left)

    @property
    def left(self) -> float:
        return self._deadline.left

    def begins(self, reply: Reply) -> bool:
        """Return whether the response is a stream of events. If not, pass it to `interrupted`."""
        kind = reply.headers.get("content-type", "")
        if reply.status != 200 or not kind.startswith("text/event-stream"):
            return False
        self._tries.answered()
        return True

    def feed(self, part: bytes) -> Iterator[JobEvent]:
        """Yield the events that a part of a stream completes."""
        self._tries.worked()
        for fields in self._lines.feed(part):
            revision = fields.get("id", "")
            if not (revision.isascii() and revision.isdigit()):
                raise UnusableAnswer(str(self._ask), "an event of it has no revision")
            # A proxy may drop Last-Event-ID, and then the server repeats old events.
            if int(revision) < self._after:
                continue
            job = self._job.see(self._ask, fields["data"].encode())
            self._has_ended = job.state in FINISHED
            if int(revision) > self._after:
                self._after = int(revision)
                yield JobEvent(revision=self._after, kind=fields.get("event", "state"), job=job)
        if not self._has_ended and self._deadline.left <= 0:
            raise self._deadline.passed()

    def interrupted(self, got: Reply | Lost | None) -> Pause:
        """Return the pause before the next stream. Raises if another stream cannot help."""
        if got is None:
            got = Lost(ConnectionError("the stream has ended before the job"))
        if isinstance(got, Reply):
            if got.status == 204:  # nothing has happened since, and nothing will
                self._has_ended = True
                return Pause(0)
            if got.status < 300:
                raise UnusableAnswer(str(self._ask), "it is no stream of events")
            error = refusal(self._ask, got)
            self._job.check_found(error)
            if not may_pass(got.status):
                raise error
        return self._tries.failed(self._ask, got)


class _Lines:
    """Parses server-sent events from parts of any size."""

    def __init__(self) -> None:
        self._rest = b""
        self._fields: dict[str, str] = {}

    def feed(self, part: bytes) -> Iterator[dict[str, str]]:
        """Yield the fields of each event that this part completes."""
        # Splits bytes, not text: str.splitlines also splits at U+2028, which JSON may contain.
        whole, end, self._rest = (self._rest + part).rpartition(b"\n")
        for raw in (whole + end).splitlines():
            name, _, value = raw.decode(errors="replace").partition(":")
            if name:
                self._add(name, value.removeprefix(" "))
            elif not raw:
                if "data" in self._fields:
                    yield self._fields
                self._fields = {}

    def _add(self, name: str, value: str) -> None:
        if name == "data" and name in self._fields:
            value = f"{self._fields[name]}\n{value}"
        self._fields[name] = value
