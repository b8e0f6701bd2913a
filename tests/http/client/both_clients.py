"""Helpers to use the async and the plain client alike."""

import inspect
from collections.abc import AsyncIterator, Iterator

import httpx2

from tenure.http import JobEvent
from tests.http.network import HurriedClock, Mishap
from tests.http.report_server import Server

AT_ONCE = ["0", "Wed, 21 Oct 2015 07:28:00 GMT"]
"""Values of `Retry-After` that would make a client come back at once."""


class Outage(Mishap):
    """An outage for as many requests as planned, until `is_over` is set."""

    def __init__(self, status: int | None = 503):
        self._status = status
        self.is_over = False

    def instead(self, request):
        if self.is_over:
            return None
        if self._status is None:
            raise httpx2.ConnectError("planned", request=request)
        return httpx2.Response(self._status)


class Quiet(Mishap):
    """An event stream, or another answer, that stays silent for some seconds."""

    def __init__(self, clock: HurriedClock, seconds: float):
        self._stream = QuietStream(clock, seconds)

    def instead(self, request):
        kind = {"Content-Type": "text/event-stream"}
        return httpx2.Response(200, headers=kind, stream=self._stream)


class QuietStream(httpx2.SyncByteStream, httpx2.AsyncByteStream):
    def __init__(self, clock: HurriedClock, seconds: float):
        self._clock, self._seconds = clock, seconds

    def __iter__(self) -> Iterator[bytes]:
        self._clock.pause(self._seconds)
        yield b""
        raise httpx2.ReadTimeout("planned")

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for part in self:
            yield part


async def got(value):
    """Return the answer of either client; the server runs in a thread of its own."""
    return await value if inspect.isawaitable(value) else value


async def each(events) -> AsyncIterator[JobEvent]:
    if isinstance(events, Iterator):
        for event in events:
            yield event
    else:
        async for event in events:
            yield event


async def followed(events, server: Server, gate: str) -> list[JobEvent]:
    """Return all events of a job that takes its next step after each event."""
    seen = []
    async for event in each(events):
        seen.append(event)
        server.open(gate)
    return seen


def jobs_of(server: Server, user: str) -> list[dict[str, object]]:
    answer = httpx2.get(
        f"{server.url}/reports/jobs?limit=200", headers={"X-User": user}, verify=False
    )
    return answer.json()["jobs"]
