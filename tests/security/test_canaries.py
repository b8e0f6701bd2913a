"""Secrets of a service with everything switched on: what logs, events, metrics, traces, health say.

Each canary is a value that a user might not want to see outside. `ALLOWED` names where it may
appear; docs/security.md has the same table.
"""

import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest
import sentry_sdk
from fastapi import FastAPI, Request
from httpx2 import ASGITransport
from prometheus_client import CollectorRegistry, generate_latest
from pydantic import BaseModel

import tenure.http
import tenure.prometheus
import tenure.sentry
from tenure import AcquireTimeout, ArgumentsError, Backoff, JobContext, Reject, Tenure, current_job
from tenure.app import engine_of
from tenure.errors import RequestRefused, StoreError, TooLarge
from tenure.http import AsyncClient, AsyncRouter
from tenure.observe import Event, HoldLost
from tenure.observe.formatters import JsonFormatter, TextFormatter
from tests.contract.worlds import World
from tests.observe.test_otel import Otel, _with_time, finished
from tests.observe.test_sentry import Sentry

ONCE = Backoff(max_attempts=1)
TWICE = Backoff(max_attempts=2)


def canary(name: str) -> str:
    return f"canary-{name}-4f1c"


# Where a canary may appear; all others nowhere.
ALLOWED = {
    "error": {"logs", "events", "sentry"},
    "lock-name": {"logs", "events"},
    "request-id": {"logs", "spans", "sentry"},
}
HIDDEN = (
    "argument",
    "result",
    "odd-result",
    "checkpoint",
    "progress",
    "authorization",
    "cookie",
    "api-key",
    "agent",
    "query",
    "bad-body",
    "idempotency-key",
    "owner",
    "job-header",
    "tag",
    "unique-key",
    "lock-meta",
    "large",
)


class Wish(BaseModel):
    note: str
    number: int = 1


class Odd:
    """A result that has no JSON form."""

    def __repr__(self) -> str:
        return canary("odd-result")


class Service:
    """A service and everything that looks at it."""

    def __init__(
        self, store: Any, clock: Any, caplog: pytest.LogCaptureFixture, **options: Any
    ) -> None:
        self.otel, self.sentry = Otel(), Sentry()
        self.clock, self._caplog = clock, caplog
        self.sentry.init(traces_sample_rate=1.0, attach_stacktrace=True)
        self.app = Tenure(store, grace=0, payload_limit=10_000, **options)
        self.registry = CollectorRegistry()
        self.metrics = tenure.prometheus.instrument(self.app, self.registry)
        self.otel.instrument(self.app)
        tenure.sentry.instrument(self.app)
        self.events: list[Event] = []
        self.app.on_event(self.events.append)
        self.probes = tenure.http.health(self.app, details=True)
        self._answers: list[str] = []

    @asynccontextmanager
    async def open(self) -> AsyncIterator[AsyncClient]:
        web = FastAPI()
        web.include_router(self._reports().router)
        inside = ASGITransport(web)
        sent = {
            "Authorization": f"Bearer {canary('authorization')}",
            "Cookie": f"session={canary('cookie')}",
            "X-Api-Key": canary("api-key"),
            "User-Agent": canary("agent"),
            "X-Request-Id": canary("request-id"),
        }
        client = AsyncClient("http://test", transport=inside, headers=sent, clock=self.clock)
        async with self.app, self.app.worker(), client:
            yield client

    def _reports(self) -> AsyncRouter:
        def owner(request: Request) -> str:
            return canary("owner")

        router = AsyncRouter(self.app, prefix="/reports", owner=owner)

        @router.post("", retry=TWICE)
        async def build(body: Wish, token: str, job: JobContext) -> str:
            hidden = body.note + token
            if job.attempt == 1:
                raise ValueError(canary("error") + str(len(hidden)))
            await job.save({"seen": canary("checkpoint")})
            job.progress(0.5, canary("progress"))
            return canary("result")

        return router

    async def look(self) -> dict[str, str]:
        """Return what each place says, as text."""
        health = await self.app.health()
        await self.metrics.refresh()
        probes = AsyncClient("http://test", transport=ASGITransport(self.probes))
        async with probes:
            answers = [await probes._http.get(path) for path in ("/live", "/ready")]
        places = {
            "logs": self._logs(),
            "events": "\n".join(
                f"{event} {event!r} {event.fields} {msgspec.to_builtins(event)}"
                for event in list(self.events)
            ),
            "metrics": generate_latest(self.registry).decode() + self._metrics(),
            "spans": "".join(span.to_json() for span in self.otel.spans),
            "health": "\n".join(
                [f"{health} {health!r} {health.document()}", *(each.text for each in answers)]
            ),
            "sentry": self.sentry.everything(),
        }
        return {place: text + _decoded(text) for place, text in places.items()}

    def _logs(self) -> str:
        text, document = TextFormatter(), JsonFormatter()
        return "\n".join(
            f"{text.format(record)}\n{document.format(record)}\n{record.args!r}"
            for record in self._caplog.records
            if record.name.partition(".")[0] == "tenure"
        )

    def _metrics(self) -> str:
        return json.dumps(self.otel.metrics(), default=str)


def _decoded(text: str) -> str:
    """Return the text once more, without the escapes of JSON."""
    return text.replace("\\", "")


@pytest.fixture
def service(world: World, caplog: pytest.LogCaptureFixture) -> Any:
    caplog.set_level(logging.DEBUG)
    yield Service(world.unopened(), world.clock, caplog)
    sentry_sdk.get_global_scope().set_client(None)


async def _over_http(service: Service, client: AsyncClient) -> None:
    query = {"token": canary("query")}
    headers = {"Idempotency-Key": canary("idempotency-key")}
    note = {"note": canary("argument")}
    job = await client.submit("/reports", note, params=query, headers=headers)
    await finished(await service.app.job(job.id), service.clock)
    assert await job.result(timeout=20) == canary("result")
    bad = {"note": 1, "number": canary("bad-body")}
    with pytest.raises(RequestRefused):
        await client.submit("/reports", bad, params=query)


async def _jobs(service: Service) -> None:
    app, clock = service.app, service.clock

    @app.task(retry=ONCE)
    async def fail(word: str) -> None:
        hidden = {"inner": word}
        raise RuntimeError(canary("error") + str(len(hidden)))

    @app.task(retry=ONCE)
    def fail_in_thread(word: str) -> None:
        current_job().progress(0.1, canary("progress"))
        raise Reject(canary("error"))

    @app.task(retry=ONCE)
    async def odd(word: str) -> Any:
        return Odd()

    @app.task(retry=ONCE, timeout=5)
    async def slow(word: str) -> None:
        await clock.sleep(60)

    secret = canary("argument")
    options = {
        "headers": {"tenant": canary("job-header"), "x-request-id": canary("request-id")},
        "tags": [canary("tag")],
    }
    for task in (fail, fail_in_thread, odd, slow):
        await finished(await task.using(**options).enqueue(secret), clock)
    job = await fail.using(unique=canary("unique-key"), delay="1h").enqueue(secret)
    with suppress(Exception):
        await fail.using(unique=canary("unique-key"), delay="1h").enqueue("another")
    await job.cancel()
    with pytest.raises(ArgumentsError):
        await fail.enqueue({secret: 1})
    with pytest.raises(TooLarge):
        await fail.enqueue(canary("large") * 1000)


async def _locks(service: Service) -> None:
    app = service.app
    name, meta = f"invoice:{canary('lock-name')}", {"why": canary("lock-meta")}
    async with app.lock(name, meta=meta):
        assert await app.lock(name, meta=meta).try_acquire() is None
        with pytest.raises(AcquireTimeout):
            await _with_time(service.clock, app.lock(name, meta=meta, wait=1).acquire())
    lost = HoldLost(name=name, fence=1, reason="its lease has ended")
    engine_of(app).events.emit(lost)


async def test_no_canary_is_where_it_does_not_belong(service: Service, world: World):
    async with service.open() as client:
        await _over_http(service, client)
        await _jobs(service)
        await _locks(service)
        places = await service.look()
    appearances = {
        (place, name)
        for place, text in places.items()
        for name in (*HIDDEN, *ALLOWED)
        if canary(name) in text
    }
    # All that is allowed does appear: this search finds what is there.
    assert appearances == {(place, name) for name, where in ALLOWED.items() for place in where}
    for place in ("logs", "events", "metrics", "spans", "sentry"):
        assert "fail_in_thread" in places[place]
    password = urlsplit(world.url).password
    assert password is None or not [place for place, text in places.items() if password in text]


PASSWORD = "canary-password-4f1c"


@pytest.mark.parametrize(
    "url",
    [
        f"redis://ann:{PASSWORD}@127.0.0.1:1/0",
        f"redis://127.0.0.1:1/0?password={PASSWORD}",
        f"postgresql://ann:{PASSWORD}@127.0.0.1:1/d",
    ],
)
async def test_the_password_of_a_store_that_is_away_is_nowhere(url: str, caplog):
    caplog.set_level(logging.DEBUG)
    service = Service(url, None, caplog, connect="lazy")
    try:
        with suppress(StoreError):
            async with service.app:
                places = await service.look()
    finally:
        sentry_sdk.get_global_scope().set_client(None)
    assert "127.0.0.1" in places["health"] + places["logs"]
    assert not [place for place, text in places.items() if PASSWORD in text]
