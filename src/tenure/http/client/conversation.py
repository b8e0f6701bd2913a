"""The retry logic of a client, free of I/O: when to send again, how long to wait, when to give up.

A conversation is a generator. It yields an `Ask` to send or a `Pause` to wait, receives the `Reply`
or `Lost`, and returns the result. `Client` runs it with blocking calls, `AsyncClient` on an event
loop, so both share this logic.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import suppress
from email.utils import parsedate_to_datetime
from typing import Any, Final, TypeAlias, TypeVar
from urllib.parse import urljoin, urlsplit

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from tenure.core.clock import Clock
from tenure.core.durations import Duration, seconds
from tenure.core.jobs.retry_policy import Backoff
from tenure.errors import RequestRefused, ServerUnreachable, UnusableAnswer
from tenure.http.request import Headers

__all__ = [
    "REQUEST_ID",
    "SILENCE",
    "Ask",
    "Caller",
    "Deadline",
    "Lost",
    "Pause",
    "Reply",
    "Steps",
    "Tries",
    "may_pass",
    "on_the_same_host",
    "origin",
    "pause_of",
    "refusal",
    "retry_after",
]

T = TypeVar("T")

REQUEST_ID: Final = "x-request-id"
"""The header by which logs and traces of a server name a request."""

SILENCE: Final = 30.0
"""How many seconds a server may take to respond, beyond a requested `Prefer: wait`."""

# The first retries come soon, as most interruptions are short. Later ones spare the server.
_BACKOFF: Final = Backoff(base=0.25, cap=10)
# A minimum, because Retry-After may say 0 or a time in the past: no pause at all would flood the
# server.
_SOONEST: Final = 0.25
# Other 4xx statuses are mistakes of the client, and 501 and 505 never change: no retry helps.
_PASSING: Final = frozenset({408, 425, 429})
_LASTING: Final = frozenset({501, 505})
_PORTS: Final = {"http": 80, "https": 443}


class Ask(Struct, frozen=True, kw_only=True):
    """A request to send."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes | None = None
    silence: float = SILENCE
    """How many seconds may pass without a byte from the server."""
    within: float = float("inf")
    """How many seconds the whole exchange may take."""

    @property
    def key(self) -> str | None:
        """The idempotency key, by which a server recognises a repeated submission."""
        return self.headers.get("idempotency-key")

    @property
    def request_id(self) -> str | None:
        """The request id, by which a server's logs and traces name the request."""
        return self.headers.get(REQUEST_ID)

    def __str__(self) -> str:
        # Without query and user info, which may contain secrets: errors show this text.
        return f"{self.method} {urlsplit(self.url).path or '/'}"


class Pause(Struct, frozen=True):
    """A wait before the next step."""

    seconds: float


class Reply(Struct, frozen=True, kw_only=True):
    """A response of the server."""

    status: int
    headers: Headers
    body: bytes = b""


class Lost(Struct, frozen=True):
    """No response, or only a part. The server may or may not have acted on the request."""

    error: Exception


Steps: TypeAlias = Generator[Ask | Pause, Reply | Lost | None, T]
"""A conversation: yields requests and pauses, receives responses, returns a result."""


class Deadline:
    """The instant at which the caller's `timeout` has passed."""

    def __init__(self, clock: Clock, timeout: Duration | None, then: str) -> None:
        self._clock = clock
        self._timeout = None if timeout is None else seconds(timeout, "timeout")
        self._until = float("inf") if self._timeout is None else clock.boot() + self._timeout
        self._then = then

    @property
    def left(self) -> float:
        return self._until - self._clock.boot()

    def passed(self) -> TimeoutError:
        """Return the error to raise when the deadline has passed."""
        return TimeoutError(f"not within {self._timeout:g} s: {self._then}.")


class Tries:
    """Counts failed tries, and decides whether and when to try again."""

    def __init__(self, clock: Clock, patience: float, deadline: Deadline) -> None:
        self._clock = clock
        self._patience = patience
        self._deadline = deadline
        self._failures = 0
        self._until: float | None = None
        """When patience ends. It starts with the first failure, not with the first request."""

    def answered(self) -> None:
        """Restart the patience after a response. The back-off stays as long as it was."""
        self._until = None

    def worked(self) -> None:
        """Restart patience and back-off after a success."""
        self._failures = 0
        self._until = None

    def failed(self, ask: Ask, got: Reply | Lost) -> Pause:
        """Return the pause before the next try. Raises the last error if there is no next try."""
        self._failures += 1
        now = self._clock.boot()
        if self._until is None:
            self._until = now + self._patience
        requested, error = None, _failure(ask, got)
        if isinstance(got, Reply):
            requested = retry_after(got.headers, self._clock)
        # Full jitter: all clients must not come back to a restarted server at once.
        own = _BACKOFF.delay(self._failures, 1.0) * self._clock.random()
        pause = pause_of(requested or 0.0, own)
        if pause >= self._deadline.left:
            raise self._deadline.passed() from error
        if now + pause > self._until:
            raise error
        return Pause(pause)


class Caller:
    """Sends requests to a server, with the patience of one client."""

    def __init__(self, clock: Clock, patience: Duration) -> None:
        self.clock = clock
        self.patience = seconds(patience, "patience")

    def deadline(self, timeout: Duration | None, then: str) -> Deadline:
        return Deadline(self.clock, timeout, then)

    def tries(self, deadline: Deadline) -> Tries:
        return Tries(self.clock, self.patience, deadline)

    def exchange(self, ask: Ask, deadline: Deadline) -> Steps[Reply]:
        """Send a request until the server answers it with a status below 300, and return that.

        Raises:
            RequestRefused: the status is 300 or more, and a retry cannot help or patience is over.
            ServerUnreachable: no response came before patience was over.
            TimeoutError: the deadline has passed.
        """
        tries = self.tries(deadline)
        while True:
            if (left := deadline.left) <= 0:
                raise deadline.passed()
            got = yield replace(ask, silence=min(ask.silence, left), within=left)
            assert got is not None
            if isinstance(got, Reply) and not may_pass(got.status):
                break
            yield tries.failed(ask, got)
        if got.status >= 300:
            raise refusal(ask, got)
        return got


def pause_of(requested: float, jitter: float) -> float:
    """Return the pause that the server requested, with a minimum and with jitter."""
    # Jitter is added, so that clients that got the same Retry-After do not return together.
    return max(_SOONEST, requested) + jitter


def _failure(ask: Ask, got: Reply | Lost) -> RequestRefused | ServerUnreachable:
    """Return the error to raise when there is no other try."""
    if isinstance(got, Reply):
        return refusal(ask, got)
    reason = str(got.error) or type(got.error).__name__
    error = ServerUnreachable(str(ask), reason, ask.key, request_id=ask.request_id)
    error.__cause__ = got.error
    return error


def may_pass(status: int) -> bool:
    """Return whether a retry can help after this status."""
    return status in _PASSING or (status >= 500 and status not in _LASTING)


def refusal(ask: Ask, reply: Reply) -> RequestRefused:
    """Return the error for a response with a status of 300 or more."""
    problem: Any = None
    with suppress(ValueError, RecursionError):
        problem = msgspec.json.decode(reply.body)
    if not isinstance(problem, dict):
        # A proxy answered, not the routes: its body is no problem document.
        elsewhere = reply.headers.get("location", "")
        detail = f"It is at {elsewhere}, which is not followed." if elsewhere else ""
        problem = {"type": "about:blank", "title": "No problem is named", "detail": detail}
    return RequestRefused(
        str(ask), reply.status, problem, reply.headers, ask.key, request_id=ask.request_id
    )


def retry_after(headers: Headers, clock: Clock) -> float | None:
    """Return the seconds of `Retry-After`, which may be a date; None if it cannot be read."""
    text = headers.get("retry-after", "").strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        # Compared with the server's own `Date`, because this machine's clock may be wrong.
        then = parsedate_to_datetime(text).timestamp()
        date = headers.get("date")
        now = clock.wall() / 1e6 if date is None else parsedate_to_datetime(date).timestamp()
    except (ValueError, OverflowError):
        return None
    return max(0.0, then - now)


def on_the_same_host(ask: Ask, location: str | None) -> str:
    """Return the URL of a new job. Raises UnusableAnswer if it is on another host.

    Later requests carry the same credentials, which must not go to a host that the user never
    named.
    """
    if not location:
        raise UnusableAnswer(str(ask), "it names no job (no Location). Is this an async route?")
    try:
        url = urljoin(ask.url, location)
    except ValueError:
        raise UnusableAnswer(str(ask), f"it names no URL ({location!r})") from None
    if origin(url) != origin(ask.url):
        raise UnusableAnswer(str(ask), f"it points to another host ({location!r})")
    return url.partition("#")[0].partition("?")[0]


def origin(url: str) -> tuple[str, str, int | None] | None:
    """Return scheme, host and port of a URL; None if it has no host or cannot be parsed."""
    try:
        parts = urlsplit(url)
        port = parts.port or _PORTS.get(parts.scheme)
    except ValueError:
        return None
    return (parts.scheme, parts.hostname, port) if parts.hostname else None
