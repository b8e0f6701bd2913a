"""What a client does next, free of I/O: when it asks again, how long it waits, when it gives up.

A conversation is a generator. It yields what to do, is sent what came of it, and returns what was
asked for; `Client` and `AsyncClient` do it, each in its own way.
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
from tenure.core.policy import Backoff
from tenure.errors import RequestRefused, ServerUnreachable, UnusableAnswer
from tenure.http.request import Headers

__all__ = [
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

SILENCE: Final = 30.0
"""How long a server may take for an answer, beyond what it was asked to wait."""

# Soon at first, as most interruptions are short; a server that stays away is not to be hurried.
_BACKOFF: Final = Backoff(base=0.25, cap=10)
# Whatever a server says: one that says 0, or a time that is over, would be asked without a pause.
_SOONEST: Final = 0.25
# A client's own mistakes, and what a server will never be able to do, stay what they are.
_PASSING: Final = frozenset({408, 425, 429})
_LASTING: Final = frozenset({501, 505})
_PORTS: Final = {"http": 80, "https": 443}


class Ask(Struct, frozen=True, kw_only=True):
    """Send this."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes | None = None
    silence: float = SILENCE
    """For how long nothing may come."""
    within: float = float("inf")
    """How long all of it may take."""

    @property
    def key(self) -> str | None:
        """By which a server knows a submission that is sent again."""
        return self.headers.get("idempotency-key")

    def __str__(self) -> str:
        # A query may hold what is nobody else's business, and so may what is before the host.
        return f"{self.method} {urlsplit(self.url).path or '/'}"


class Pause(Struct, frozen=True):
    """Let this many seconds pass."""

    seconds: float


class Reply(Struct, frozen=True, kw_only=True):
    """What a server has said."""

    status: int
    headers: Headers
    body: bytes = b""


class Lost(Struct, frozen=True):
    """No answer, or only a part of one: whether anything has happened is not known."""

    error: Exception


Steps: TypeAlias = Generator[Ask | Pause, Reply | Lost | None, T]
"""A conversation: what to do, what came of it, and what it leads to."""


class Deadline:
    """When a caller will not wait any longer."""

    def __init__(self, clock: Clock, timeout: Duration | None, then: str) -> None:
        self._clock = clock
        self._timeout = None if timeout is None else seconds(timeout, "timeout")
        self._until = float("inf") if self._timeout is None else clock.boot() + self._timeout
        self._then = then

    @property
    def left(self) -> float:
        return self._until - self._clock.boot()

    def passed(self) -> TimeoutError:
        """Return what to raise when it has passed."""
        return TimeoutError(f"not within {self._timeout:g} s: {self._then}.")


class Tries:
    """How often something was tried in vain, and whether it is worth another try."""

    def __init__(self, clock: Clock, patience: float, deadline: Deadline) -> None:
        self._clock = clock
        self._patience = patience
        self._deadline = deadline
        self._failures = 0
        self._until: float | None = None
        """When patience ends; it begins with a failure, however long nothing was tried before."""

    def answered(self) -> None:
        """Have patience again, after a sign of life; what fails all the same is not hurried."""
        self._until = None

    def worked(self) -> None:
        """Begin anew."""
        self._failures = 0
        self._until = None

    def failed(self, ask: Ask, got: Reply | Lost) -> Pause:
        """Return how long to wait before the next try; raise what stands if there is none."""
        self._failures += 1
        now = self._clock.boot()
        if self._until is None:
            self._until = now + self._patience
        requested, error = None, _failure(ask, got)
        if isinstance(got, Reply):
            requested = retry_after(got.headers, self._clock)
        # All of it is random: a server that comes back must not meet all clients at once.
        own = _BACKOFF.delay(self._failures, 1.0) * self._clock.random()
        pause = pause_of(requested or 0.0, own)
        if pause >= self._deadline.left:
            raise self._deadline.passed() from error
        if now + pause > self._until:
            raise error
        return Pause(pause)


class Caller:
    """Talks to a server for as long as it has patience."""

    def __init__(self, clock: Clock, patience: Duration) -> None:
        self.clock = clock
        self.patience = seconds(patience, "patience")

    def deadline(self, timeout: Duration | None, then: str) -> Deadline:
        return Deadline(self.clock, timeout, then)

    def tries(self, deadline: Deadline) -> Tries:
        return Tries(self.clock, self.patience, deadline)

    def exchange(self, ask: Ask, deadline: Deadline) -> Steps[Reply]:
        """Ask until there is an answer, and return it if it is a good one.

        Raises:
            RequestRefused: it is not, and that will not change soon.
            ServerUnreachable: there is none.
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
    """Return how long to stay away: as long as one was told to, but never no time at all."""
    # Added, so that those who were sent away together do not come back together.
    return max(_SOONEST, requested) + jitter


def _failure(ask: Ask, got: Reply | Lost) -> RequestRefused | ServerUnreachable:
    """Return what to raise when there is no other try."""
    if isinstance(got, Reply):
        return refusal(ask, got)
    reason = str(got.error) or type(got.error).__name__
    error = ServerUnreachable(str(ask), reason, ask.key)
    error.__cause__ = got.error
    return error


def may_pass(status: int) -> bool:
    """Return whether such an answer is worth another try."""
    return status in _PASSING or (status >= 500 and status not in _LASTING)


def refusal(ask: Ask, reply: Reply) -> RequestRefused:
    """Return what an answer says that is no good one."""
    problem: Any = None
    with suppress(ValueError, RecursionError):
        problem = msgspec.json.decode(reply.body)
    if not isinstance(problem, dict):
        # Somebody between here and the routes has answered, in words of their own.
        elsewhere = reply.headers.get("location", "")
        detail = f"It is at {elsewhere}, which is not followed." if elsewhere else ""
        problem = {"type": "about:blank", "title": "No problem is named", "detail": detail}
    return RequestRefused(str(ask), reply.status, problem, reply.headers, ask.key)


def retry_after(headers: Headers, clock: Clock) -> float | None:
    """Return in how many seconds to come back; None if nothing was said that can be read."""
    text = headers.get("retry-after", "").strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        # Both by the server's clock, if it tells its time.
        then = parsedate_to_datetime(text).timestamp()
        date = headers.get("date")
        now = clock.wall() / 1e6 if date is None else parsedate_to_datetime(date).timestamp()
    except (ValueError, OverflowError):
        return None
    return max(0.0, then - now)


def on_the_same_host(ask: Ask, location: str | None) -> str:
    """Return where a job is. What goes along with requests is for nobody but the host asked."""
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
    """Return scheme, host and port of a URL; None if it has none that can be read."""
    try:
        parts = urlsplit(url)
        port = parts.port or _PORTS.get(parts.scheme)
    except ValueError:
        return None
    return (parts.scheme, parts.hostname, port) if parts.hostname else None
