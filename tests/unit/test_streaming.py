"""How often the events of a job are sent."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any, cast

import pytest
from msgspec.structs import replace

from tenure.errors import JobNotFound, StoreUnavailable
from tenure.http.request import Headers
from tenure.http.server.event_stream import job_events, last_event_id
from tenure.jobs.changes import JobChanges
from tests.unit.test_pace import record


class Talkative:
    """Stands for the services of an app whose one job says something every 50 ms."""

    def __init__(self, last: int) -> None:
        self.now = 0.0
        self.store = self.jobs = self.clock = self
        self._last = last

    def boot(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds

    async def wait(self, seconds: float) -> bool:
        self.now += min(0.05, seconds)
        return True

    @asynccontextmanager
    async def changes(self, id_: str) -> AsyncIterator[JobChanges]:
        assert id_ == "job-1"
        yield JobChanges(lambda: self.record(id_), cast("Any", self), cast("Any", self))

    async def record(self, id_: str) -> Any:
        revision = 1 + int(self.now / 0.05 + 0.5)
        state = "succeeded" if revision >= self._last else "running"
        return replace(record(1, state=state), revision=revision)


async def test_events_are_sent_at_a_bounded_pace_and_the_last_one_is_sent():
    services: Any = Talkative(100)
    sent = [
        (services.now, event)
        async for event in job_events(services, "job-1", 0, lambda record: b"{}")
    ]
    pauses = [round(later - earlier, 3) for (earlier, _), (later, _) in pairwise(sent)]
    assert set(pauses[:-1]) == {0.2}
    assert sent[0][1].startswith(b"id: 1\nevent: state\n")
    assert b"event: progress" in sent[1][1]
    assert b"event: result" in sent[-1][1]


async def test_a_silent_job_is_pinged_about():
    services: Any = Talkative(10**9)
    waiting = replace(record(1, state="waiting"), revision=7)

    async def silent(id_: str) -> Any:
        return waiting if services.now < 40 else replace(waiting, state="cancelled", revision=8)

    services.record = silent
    sent = [event async for event in job_events(services, "job-1", 7, lambda record: b"{}")]
    assert sent[:-1] == [b": still here\n\n"] * 2
    assert sent[-1].startswith(b"id: 8\n")


@pytest.mark.parametrize("error", [JobNotFound("job-1"), StoreUnavailable("away")])
async def test_a_stream_ends_with_an_error_of_the_store(error: Exception):
    services: Any = Talkative(10)

    async def fail(id_: str) -> Any:
        if services.now > 0:
            raise error
        return replace(record(1, state="running"), revision=1)

    services.record = fail
    sent = [event async for event in job_events(services, "job-1", 0, lambda record: b"{}")]
    assert len(sent) == 1


@pytest.mark.parametrize(
    ("text", "revision"),
    [
        ("", 0),
        ("7", 7),
        ("9" * 19, int("9" * 19)),
        ("9" * 20, 0),
        ("-1", 0),
        ("x", 0),
        ("\u0663", 0),
    ],
)
def test_the_last_event_that_a_client_has_seen(text: str, revision: int):
    assert last_event_id(Headers({"last-event-id": text})) == revision
    assert last_event_id(Headers({})) == 0
