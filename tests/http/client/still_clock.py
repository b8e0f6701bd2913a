"""A clock that moves only when a client pauses, and answers that take exact times on it."""

import asyncio
from typing import Any

from msgspec import json

from tenure.core.clock import SystemClock
from tests.http.network import Answered, Mishap

JITTER = 0.5
"""The random number of a still clock: half of each random pause."""

EVENT_STREAM = {"Content-Type": "text/event-stream"}
ID = "01900000-0000-7000-8000-000000000000"
PLACE = {"Location": f"/reports/jobs/{ID}"}


class StillClock(SystemClock):
    """Moves when a client pauses or a test advances it."""

    def __init__(self) -> None:
        super().__init__()
        self.pauses: list[float] = []
        self._now = 1000.0

    def boot(self) -> float:
        return self._now

    def random(self) -> float:
        return JITTER

    def let_pass(self, seconds: float) -> None:
        self._now += seconds

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self._now += seconds

    async def sleep(self, seconds: float) -> None:
        self.pause(seconds)
        await asyncio.sleep(0)


class After(Mishap):
    """An answer that takes `seconds`."""

    def __init__(self, clock: StillClock, seconds: float, answer: Mishap):
        self._clock, self._seconds, self._answer = clock, seconds, answer

    def instead(self, request):
        self._clock.let_pass(self._seconds)
        return self._answer.instead(request)


def job_of(state: str = "running", **members: Any) -> bytes:
    """Return a job resource as the routes send it."""
    links = {"job": "/s", "result": "/r", "events": "/e"}
    shown = {"id": ID, "state": state, "created": "2026-01-01T00:00:00Z", "links": links}
    return json.encode({**shown, **members})


def shown(state: str = "running", *, headers: dict[str, str] | None = None, **members: Any):
    """Return the answer of a server that shows a job."""
    return Answered(200, headers, job_of(state, **members))


def stored(state: str = "waiting", **members: Any) -> Answered:
    """Return the answer of a server that has stored a job."""
    return Answered(202, PLACE, job_of(state, **members))


def event(revision: int, state: str = "running", kind: str | None = None) -> bytes:
    """Return one event of a stream."""
    named = "" if kind is None else f"event: {kind}\n"
    return f"id: {revision}\n{named}data: ".encode() + job_of(state) + b"\n\n"


def stream(*events: bytes) -> Answered:
    """Return the answer of a server that sends these events and ends."""
    return Answered(200, EVENT_STREAM, b"".join(events))
