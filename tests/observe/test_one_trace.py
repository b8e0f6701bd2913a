"""One request, from a client over HTTP to its job, its retry and its log lines: one trace."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from typing import Any

import pytest
from fastapi import FastAPI, Request
from httpx2 import ASGITransport
from opentelemetry import context as contexts
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from pydantic import BaseModel

import tenure.otel
from tenure import Backoff, JobContext, Tenure
from tenure.http import AsyncClient, AsyncRouter
from tenure.jobs.log_fields import JobFields
from tenure.testing import ManualClock
from tests.observe.test_otel import Otel, finished

shop_log = logging.getLogger("shop")


class Wish(BaseModel):
    name: str


def owner(request: Request) -> str:
    return "ada"


class Separate:
    """An ASGI app as in another process: it knows of the caller what the headers say.

    With `tracer`, it makes the span that an instrumentation of the web framework makes.
    """

    def __init__(self, app: Any, tracer: Any = None) -> None:
        self._app = app
        self._tracer = tracer

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        token = contexts.attach(Context())
        try:
            with self._span(f"{scope['method']} {scope['path']}", headers):
                await self._app(scope, receive, send)
        finally:
            contexts.detach(token)

    def _span(self, name: str, headers: dict[str, str]) -> Any:
        if self._tracer is None:
            return nullcontext()
        caller = TraceContextTextMapPropagator().extract(headers, Context())
        return self._tracer.start_as_current_span(name, caller, SpanKind.SERVER)


class Scene:
    """A service with a worker, and a client of it."""

    def __init__(self, *, parent: bool, is_traced: bool) -> None:
        self.otel = Otel()
        self.clock = ManualClock()
        self.app = Tenure("memory://", clock=self.clock, grace=0)
        self.otel.instrument(self.app, parent=parent)
        self.tracer = self.otel.tracers.get_tracer("shop")
        self._server_tracer = self.tracer if is_traced else None

    @asynccontextmanager
    async def served(self, router: AsyncRouter) -> AsyncIterator[AsyncClient]:
        api = FastAPI()
        api.include_router(router.router)
        inside = ASGITransport(Separate(api, self._server_tracer))
        client = AsyncClient(
            "http://test", transport=inside, context=tenure.otel.trace_headers, clock=self.clock
        )
        async with self.app, self.app.worker(), client:
            yield client

    def span(self, name: str, number: int = 0) -> ReadableSpan:
        return self.otel.named(name)[number]


def parent_of(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


def id_of(span: ReadableSpan) -> int:
    return span.context.span_id


def reports_of(scene: Scene) -> AsyncRouter:
    router = AsyncRouter(scene.app, prefix="/reports", owner=owner)

    @router.post("", retry=Backoff(max_attempts=2), queue="reports")
    async def build(body: Wish, job: JobContext) -> str:
        shop_log.warning("attempt %d", job.attempt)
        if job.attempt == 1:
            raise ValueError("no rates")
        with scene.tracer.start_as_current_span("render"):
            return body.name

    return router


@pytest.mark.parametrize("is_traced", [True, False], ids=["traced-server", "plain-server"])
async def test_a_request_its_job_and_its_retry_are_one_trace_from_client_to_store(is_traced):
    scene = Scene(parent=True, is_traced=is_traced)
    async with scene.served(reports_of(scene)) as client:
        with scene.tracer.start_as_current_span("checkout"):
            remote = await client.submit("/reports", {"name": "May"})
        job = await finished(await scene.app.job(remote.id), scene.clock)
        assert await remote.result(timeout=20) == "May"
    names = ["checkout", "send reports", "process reports", "settle reports"]
    checkout, sent, first, retried = map(scene.span, names)
    second, succeeded = scene.span(names[2], 1), scene.span(names[3], 1)
    whole = [checkout, sent, first, retried, second, succeeded, scene.span("render")]
    assert len({span.context.trace_id for span in whole}) == 1
    if is_traced:
        request = scene.span("POST /reports")
        assert parent_of(request) == id_of(checkout)
        assert parent_of(sent) == id_of(request)
    else:
        assert parent_of(sent) == id_of(checkout)
    assert parent_of(first) == parent_of(second) == id_of(sent)
    assert [parent_of(retried), parent_of(succeeded)] == [id_of(first), id_of(second)]
    assert parent_of(scene.span("render")) == id_of(second)
    assert not any(span.links for span in whole)
    assert [span.kind for span in (sent, first, retried)] == [
        SpanKind.PRODUCER,
        SpanKind.CONSUMER,
        SpanKind.CLIENT,
    ]
    for span in (sent, first, retried, second, succeeded):
        assert span.attributes["messaging.system"] == "tenure"
        assert span.attributes["messaging.destination.name"] == "reports"
        assert span.attributes["messaging.message.id"] == remote.id
        assert span.attributes["tenure.task"] == job.task
        assert span.attributes["tenure.request_id"] == remote.request_id
    assert [span.attributes["tenure.attempt"] for span in (first, second)] == [1, 2]
    assert [first.status.status_code, second.status.status_code] == [
        StatusCode.ERROR,
        StatusCode.UNSET,
    ]
    outcomes = [span.attributes["tenure.outcome"] for span in (retried, succeeded)]
    assert outcomes == ["retried", "succeeded"]


async def test_by_default_both_attempts_link_to_the_trace_of_the_request():
    scene = Scene(parent=False, is_traced=True)
    async with scene.served(reports_of(scene)) as client:
        with scene.tracer.start_as_current_span("checkout"):
            remote = await client.submit("/reports", {"name": "May"})
        await finished(await scene.app.job(remote.id), scene.clock)
    sent = scene.span("send reports")
    assert sent.context.trace_id == scene.span("checkout").context.trace_id
    attempts = scene.otel.named("process reports")
    assert len({sent.context.trace_id, *(span.context.trace_id for span in attempts)}) == 3
    for attempt in attempts:
        assert attempt.parent is None
        [link] = attempt.links
        assert (link.context.trace_id, link.context.span_id) == (
            sent.context.trace_id,
            id_of(sent),
        )


async def test_a_tick_and_its_run_are_one_trace():
    scene = Scene(parent=True, is_traced=True)

    @scene.app.timer(every="1h", name="penalties")
    async def penalties() -> None:
        with scene.tracer.start_as_current_span("inside"):
            pass

    async with scene.app, scene.app.worker():
        for _ in range(5):
            await scene.clock.advance(900)
    run, inside = scene.span("process @timers"), scene.span("inside")
    settled = scene.span("settle @timers")
    assert len({span.context.trace_id for span in (run, inside, settled)}) == 1
    assert (run.parent, run.links) == (None, ())
    assert parent_of(inside) == parent_of(settled) == id_of(run)
    assert run.attributes["tenure.task"] == "@penalties"
    assert run.attributes["tenure.attempt"] == 1
    assert settled.attributes["tenure.outcome"] == "succeeded"
    assert "tenure.request_id" not in run.attributes


async def test_the_spans_of_a_batch_have_a_request_id_if_its_jobs_share_it():
    scene = Scene(parent=False, is_traced=False)

    @scene.app.task
    async def send(number: int) -> None: ...

    def batch(*ids: str) -> list[Any]:
        return [send.using(headers={"x-request-id": each}).request(1) for each in ids]

    async with scene.app:
        await scene.app.enqueue_many(batch("r-1", "r-1"))
        await scene.app.enqueue_many(batch("r-1", "r-2"))
        await scene.app.enqueue_many(batch("r" * 300))
    same, mixed, long = (span.attributes.get("tenure.request_id") for span in scene.otel.spans)
    assert (same, mixed, long) == ("r-1", None, "r" * 200)


async def test_one_request_id_finds_the_log_lines_of_tenure_and_of_the_handler(caplog):
    caplog.set_level(logging.DEBUG)
    caplog.handler.addFilter(JobFields())
    scene = Scene(parent=True, is_traced=True)
    async with scene.served(reports_of(scene)) as client:
        remote = await client.submit("/reports", {"name": "May"}, headers={"X-Request-Id": "r-81"})
        other = await client.submit("/reports", {"name": "June"})
        await finished(await scene.app.job(remote.id), scene.clock)
        await finished(await scene.app.job(other.id), scene.clock)
    with_id = [each for each in caplog.records if getattr(each, "request_id", "") == "r-81"]
    assert {record.job for record in with_id} == {remote.id}
    seen = [(record.name, record.attempt) for record in with_id]
    assert seen.count(("shop", 1)) == seen.count(("shop", 2)) == 1
    # What Tenure says of each attempt: that it has started, and how it has ended.
    events = [record.tenure_event for record in with_id if hasattr(record, "tenure_event")]
    for event, times in (("JobStarted", 2), ("JobRetried", 1), ("JobSucceeded", 1)):
        assert events.count(event) == times
    assert len({record.request_id for record in caplog.records if record.name == "shop"}) == 2


@pytest.mark.parametrize("kind", ["thread", "async"])
async def test_a_record_of_a_handler_keeps_its_own_fields(caplog, kind):
    caplog.handler.addFilter(JobFields())
    scene = Scene(parent=False, is_traced=False)
    if kind == "async":

        @scene.app.task
        async def work() -> None:
            shop_log.warning("inside", extra={"task": "mine"})

    else:

        @scene.app.task
        def work() -> None:
            shop_log.warning("inside", extra={"task": "mine"})

    async with scene.app, scene.app.worker():
        shop_log.warning("outside")
        job = await finished(await work.enqueue(), scene.clock)
    outside, inside = [record for record in caplog.records if record.name == "shop"]
    assert not hasattr(outside, "job")
    assert (inside.job, inside.task, inside.queue) == (job.id, "mine", "default")
    assert not hasattr(inside, "request_id")


def test_outside_of_a_span_there_are_no_trace_headers():
    assert tenure.otel.trace_headers() == {}
