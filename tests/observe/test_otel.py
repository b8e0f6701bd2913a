"""OpenTelemetry: the spans of a job from its enqueue to its settlement, and the metrics."""

import asyncio
import re
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi import FastAPI, Request
from httpx2 import ASGITransport, AsyncClient
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from pydantic import BaseModel

import tenure.otel
from tenure import Backoff, JobContext, Tenure, current_job
from tenure.app import engine_of
from tenure.core.jobs.headers import HEADERS_MAX
from tenure.errors import ConfigError, JobFailed, StoreUnavailable
from tenure.http import AsyncRouter
from tenure.jobs import Job
from tenure.metrics.definitions import METRICS
from tenure.metrics.snapshot import snapshot_of
from tenure.observe import AttemptLost, JobCancelled, JobSucceeded, LockRefused, StoreCalled
from tenure.otel import conventions, traces
from tenure.otel.meters import Instruments, MessagingRecorder
from tenure.otel.traces import Traces
from tenure.testing import Faults, FaultyStore, ManualClock
from tests.rig.wait import wait_until_async

CANARY = "c4n4ry"
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
TWICE = Backoff(max_attempts=2)
ONCE = Backoff(max_attempts=1)


class Otel:
    """The SDK of a service, in memory."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self._exporter))
        self._reader = InMemoryMetricReader()
        self.meters = MeterProvider([self._reader])

    def instrument(self, app: Tenure, **options: Any) -> None:
        tenure.otel.instrument(
            app, tracer_provider=self.tracers, meter_provider=self.meters, **options
        )

    @property
    def spans(self) -> list[ReadableSpan]:
        return sorted(self._exporter.get_finished_spans(), key=lambda span: span.start_time)

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.spans if span.name == name]

    def metrics(self) -> dict[str, list[Any]]:
        data = self._reader.get_metrics_data()
        if data is None:
            return {}
        return {
            metric.name: list(metric.data.data_points)
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    def everything(self) -> str:
        """All that would be exported, as text."""
        metrics = self._reader.get_metrics_data()
        spans = "".join(span.to_json() for span in self.spans)
        return spans + ("" if metrics is None else metrics.to_json())


@pytest.fixture
def otel() -> Otel:
    return Otel()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


class Wish(BaseModel):
    name: str


def owner(request: Request) -> str:
    return "ada"


async def finished(job: Job[Any], clock: ManualClock) -> Job[Any]:
    """Advance until a job has ended, in a thread or not, with all its retries."""

    async def has_ended() -> bool:
        await clock.advance(0.2)
        return (await job.refresh()).is_finished

    await wait_until_async(has_ended)
    return job


def app_on(clock: ManualClock, faults: Faults | None = None) -> Tenure:
    return Tenure(FaultyStore("memory://", faults, clock=clock), grace=0)


# One job.


async def test_an_enqueue_and_all_attempts_of_its_job_are_linked(otel, clock):
    app = app_on(clock)
    otel.instrument(app)
    runs: list[str] = []

    @app.task(queue="mail", retry=TWICE)
    async def send() -> None:
        runs.append(current_job().headers["traceparent"])
        if len(runs) == 1:
            raise ValueError(CANARY)

    async with app, app.worker():
        job = await finished(await send.enqueue(), clock)
    assert job.state == "succeeded"
    [sent] = otel.named("send mail")
    first, second = otel.named("process mail")
    retried, succeeded = otel.named("settle mail")
    assert (sent.kind, first.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert retried.kind == SpanKind.CLIENT
    for attempt in (first, second):
        assert attempt.parent is None
        assert [link.context.span_id for link in attempt.links] == [sent.context.span_id]
        assert [link.context.trace_id for link in attempt.links] == [sent.context.trace_id]
    assert len({span.context.trace_id for span in (sent, first, second)}) == 3
    assert retried.parent.span_id == first.context.span_id
    assert succeeded.parent.span_id == second.context.span_id
    common = {
        "messaging.system": "tenure",
        "messaging.destination.name": "mail",
        "messaging.message.id": job.id,
        "tenure.task": job.task,
    }
    assert dict(sent.attributes) == {
        **common,
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
    }
    assert dict(first.attributes) == {
        **common,
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "tenure.attempt": 1,
        "error.type": "ValueError",
    }
    assert first.status.status_code is StatusCode.ERROR
    assert second.status.status_code is StatusCode.UNSET
    assert dict(retried.attributes) == {
        **common,
        "messaging.operation.name": "settle",
        "messaging.operation.type": "settle",
        "tenure.outcome": "retried",
        "error.type": "ValueError",
    }
    assert succeeded.attributes["tenure.outcome"] == "succeeded"
    assert second.end_time <= succeeded.start_time + 1_000_000
    assert {header.split("-")[2] for header in runs} == {f"{sent.context.span_id:016x}"}


async def test_with_a_parent_a_request_its_job_and_its_retry_are_one_trace(otel, clock):
    app = app_on(clock)
    otel.instrument(app, parent=True)
    router = AsyncRouter(app, prefix="/reports", owner=owner)
    runs: list[int] = []
    tracer = otel.tracers.get_tracer("shop")

    @router.post("", retry=TWICE)
    async def build(body: Wish, job: JobContext) -> str:
        runs.append(job.attempt)
        if len(runs) == 1:
            raise ValueError(CANARY)
        with tracer.start_as_current_span("render"):
            return body.name

    api = FastAPI()
    api.include_router(router.router)
    client = AsyncClient(transport=ASGITransport(api), base_url="http://test")
    async with app, app.worker(), client:
        # The span that an instrumentation of FastAPI makes.
        with tracer.start_as_current_span("POST /reports"):
            answer = await client.post("/reports", json={"name": CANARY})
        assert answer.status_code == 202, answer.text
        await finished(await app.job(answer.json()["id"]), clock)
    assert runs == [1, 2]
    assert len({span.context.trace_id for span in otel.spans}) == 1
    names = [span.name.partition(" ")[0] for span in otel.spans]
    assert names == ["POST", "send", "process", "settle", "process", "render", "settle"]
    request, sent, first, _, second, render, _ = otel.spans
    assert sent.parent.span_id == request.context.span_id
    assert first.parent.span_id == second.parent.span_id == sent.context.span_id
    assert not first.links
    assert render.parent.span_id == second.context.span_id
    assert CANARY not in otel.everything()


async def test_a_request_that_no_one_traces_here_is_the_parent_of_what_it_sends(otel, clock):
    app = app_on(clock)
    otel.instrument(app)
    of_request = {"traceparent": f"00-{TRACE}-{'7' * 16}-01", "tracestate": "vendor=1"}

    @app.task(queue="mail")
    async def send() -> None: ...

    async with app:
        job = await send.using(headers=of_request).enqueue()
    [sent] = otel.spans
    assert sent.parent.span_id == int("7" * 16, 16)
    assert job.headers == {
        "traceparent": f"00-{TRACE}-{sent.context.span_id:016x}-01",
        "tracestate": "vendor=1",
    }


@pytest.mark.parametrize("kind", ["thread", "async"])
async def test_spans_of_a_handler_belong_to_its_attempt(otel, clock, kind):
    app = app_on(clock)
    otel.instrument(app)
    tracer = otel.tracers.get_tracer("shop")
    if kind == "async":

        @app.task(queue="mail")
        async def work() -> None:
            with tracer.start_as_current_span("inside"):
                pass

    else:

        @app.task(queue="mail")
        def work() -> None:
            with tracer.start_as_current_span("inside"):
                pass

    async with app, app.worker():
        await finished(await work.enqueue(), clock)
    [process], [inside] = otel.named("process mail"), otel.named("inside")
    assert inside.parent.span_id == process.context.span_id


async def test_a_job_enqueued_by_a_handler_is_sent_by_its_attempt(otel, clock):
    app = app_on(clock)
    otel.instrument(app)

    @app.task(queue="mail")
    async def last() -> None: ...

    @app.task(queue="first")
    async def first() -> None:
        await last.enqueue()

    async with app, app.worker():
        await finished(await first.enqueue(), clock)
    [process], [sent] = otel.named("process first"), otel.named("send mail")
    assert sent.parent.span_id == process.context.span_id


async def test_a_run_of_a_timer_has_a_trace_of_its_own(otel, clock):
    app = app_on(clock)
    otel.instrument(app)

    @app.timer(every="1h", name="penalties")
    async def penalties() -> None: ...

    async with app, app.worker():
        for _ in range(8):
            await clock.advance(900)
    process, *_ = [span for span in otel.spans if span.name.startswith("process")]
    settle, *_ = [span for span in otel.spans if span.name.startswith("settle")]
    assert process.attributes["tenure.task"] == "@penalties"
    assert (process.parent, process.links) == (None, ())
    assert settle.parent.span_id == process.context.span_id


async def test_each_try_of_a_run_has_a_span_and_the_store_settles_once(otel, clock):
    app = app_on(clock)
    otel.instrument(app)
    tries = []

    @app.timer(every="1h", name="penalties", retry=TWICE)
    async def penalties() -> None:
        tries.append(1)
        if len(tries) == 1:
            raise ValueError

    async with app, app.worker():
        while len(tries) < 2:
            await clock.advance(900)
        await clock.advance(1)
    names = [span.name.split()[0] for span in otel.spans]
    assert [names.count(name) for name in ("process", "settle")] == [2, 1]
    [settle] = [span for span in otel.spans if span.name.startswith("settle")]
    assert settle.attributes["tenure.outcome"] == "succeeded"


async def test_attempts_that_never_settle_do_not_pile_up(otel, clock, monkeypatch):
    monkeypatch.setattr(traces, "_UNSETTLED_MAX", 2)
    of_app = traces.Traces(otel.tracers.get_tracer("test"), has_parent=False)
    for job in "abc":
        context: Any = SimpleNamespace(id=job, queue="mail", task="send", attempt=1, headers={})
        async with of_app.processing(context):
            pass
    for job in "cba":
        of_app.settled(JobSucceeded(task="send", job=job, queue="mail", attempt=1))
    settled = [span.attributes["messaging.message.id"] for span in otel.named("settle mail")]
    assert sorted(settled) == ["b", "c"]  # the oldest one is forgotten


async def test_a_batch_is_one_span_for_all_its_jobs(otel, clock):
    app = app_on(clock)
    otel.instrument(app)

    @app.task(queue="mail")
    async def send(number: int) -> None: ...

    async with app:
        jobs = await app.enqueue_many(send.request(number) for number in range(3))
    [sent] = otel.spans
    assert sent.attributes["messaging.batch.message_count"] == 3
    assert "messaging.message.id" not in sent.attributes
    contexts = {job.headers["traceparent"].split("-")[2] for job in jobs}
    assert contexts == {f"{sent.context.span_id:016x}"}


# Ends.


async def test_an_enqueue_that_fails_marks_its_span(otel, clock):
    faults = Faults()
    app = app_on(clock, faults)
    otel.instrument(app)

    @app.task(queue="mail")
    async def send() -> None: ...

    async with app:
        faults.lose_request("insert", times=100)
        with pytest.raises(StoreUnavailable):
            await _with_time(clock, send.enqueue())
    [sent] = otel.spans
    assert sent.status.status_code is StatusCode.ERROR
    assert sent.status.description is None
    assert sent.attributes["error.type"] == "StoreUnavailable"


async def _with_time(clock: ManualClock, work: Any) -> Any:
    task = asyncio.ensure_future(work)
    while not task.done():
        await clock.advance(1)
        # A real server answers in real time. Leases, which end in this one, must outlast that.
        await asyncio.wait([task], timeout=0.05)
    return await task


@pytest.mark.parametrize("kind", ["thread", "async"])
async def test_a_time_out_is_told_by_the_settlement(otel, clock, kind):
    app = app_on(clock)
    otel.instrument(app)
    if kind == "async":

        @app.task(queue="mail", timeout=5, retry=ONCE)
        async def work() -> None:
            await clock.sleep(60)

    else:

        @app.task(queue="mail", timeout=5, retry=ONCE)
        def work() -> None:
            while not current_job().cancelled:
                pass

    async with app, app.worker():
        with pytest.raises(JobFailed):
            await (await finished(await work.enqueue(), clock)).result(0)
    [settle] = otel.named("settle mail")
    assert settle.attributes["tenure.outcome"] == "failed"
    assert settle.attributes["error.type"] == "timeout"


async def test_a_handler_that_returns_too_late_has_timed_out(otel, clock):
    app = app_on(clock)
    otel.instrument(app)

    may_return = threading.Event()

    @app.task(queue="mail", timeout=5, retry=TWICE)
    def work() -> None:
        may_return.wait(20)

    async with app, app.worker():
        job = await work.enqueue()
        await clock.advance(6)
        may_return.set()
        await finished(job, clock)
    late, in_time = otel.named("settle mail")
    assert late.attributes["tenure.outcome"] == "retried"
    assert late.attributes["error.type"] == "timeout"
    assert in_time.attributes["tenure.outcome"] == "succeeded"


async def test_an_attempt_that_was_taken_over_has_no_settlement_also_later(otel):
    spans = Traces(otel.tracers.get_tracer("tenure"), has_parent=False)
    job: Any = SimpleNamespace(id="j", task="pay", queue="mail", attempt=1, headers={})
    async with spans.processing(job):
        pass
    spans.settled(AttemptLost(job="j", fence=1, outcome="succeeded"))
    # A caller cancels the job while it waits for its next attempt.
    spans.settled(JobCancelled(task="pay", job="j", queue="mail"))
    assert [span.name for span in otel.spans] == ["process mail"]


async def test_a_cancelled_job_is_no_error(otel, clock):
    app = app_on(clock)
    otel.instrument(app)

    @app.task(queue="mail")
    async def work() -> None:
        await clock.sleep(60)

    async with app, app.worker():
        job = await work.enqueue()
        await clock.advance(1)
        await job.cancel()
        await finished(job, clock)
    [process], [settle] = otel.named("process mail"), otel.named("settle mail")
    assert process.status.status_code is StatusCode.UNSET
    assert settle.status.status_code is StatusCode.UNSET
    assert settle.attributes["tenure.outcome"] == "cancelled"


# Headers.


async def test_a_job_whose_headers_are_full_is_enqueued_without_a_trace(otel, clock):
    app = app_on(clock)
    otel.instrument(app)
    full = {f"x-{number}": CANARY for number in range(HEADERS_MAX)}

    @app.task(queue="mail")
    async def send() -> None: ...

    async with app, app.worker():
        job = await finished(await send.using(headers=full).enqueue(), clock)
    assert job.headers == full
    [process] = otel.named("process mail")
    assert process.links == ()
    assert CANARY not in otel.everything()


async def test_the_state_of_another_trace_is_not_sent_on(otel, clock):
    app = app_on(clock)
    otel.instrument(app)

    @app.task(queue="mail")
    async def send() -> None: ...

    foreign = {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01", "tracestate": "vendor=1"}
    async with app:
        with otel.tracers.get_tracer("shop").start_as_current_span("POST /reports") as span:
            job = await send.using(headers=foreign).enqueue()
    assert job.headers["traceparent"].split("-")[1] == f"{span.get_span_context().trace_id:032x}"
    assert "tracestate" not in job.headers


async def test_a_header_that_is_no_trace_context_is_ignored(otel, clock):
    app = app_on(clock)

    @app.task(queue="mail")
    async def send() -> None: ...

    async with app:
        job = await send.using(headers={"traceparent": CANARY, "tracestate": CANARY}).enqueue()
        otel.instrument(app)
        async with app.worker():
            await finished(job, clock)
    [process] = otel.named("process mail")
    assert process.links == ()
    assert CANARY not in otel.everything()


# Metrics.


async def test_the_metrics_of_the_conventions_and_our_own_are_there(otel, clock):
    app = app_on(clock)
    otel.instrument(app)

    @app.task(queue="mail", retry=ONCE)
    async def fail(word: str) -> None:
        await clock.sleep(2)
        raise ValueError(word)

    async with app:
        await fail.using(headers={"tenant": CANARY}).enqueue(CANARY)
        metrics = otel.metrics()
        [waiting] = [
            point.value
            for point in await _metrics_from_thread(otel, "tenure.queue.jobs")
            if point.attributes["tenure.state"] == "waiting"
        ]
        assert waiting == 1
        async with app.worker():
            await clock.advance(10)
        async with app.lock(f"invoice:{CANARY}"):
            pass
        engine_of(app).events.emit(LockRefused(name=f"invoice:{CANARY}"))
        metrics = otel.metrics()
    of_queue = {"messaging.system": "tenure", "messaging.destination.name": "mail"}
    [sent] = metrics["messaging.client.sent.messages"]
    assert (sent.value, of_queue.items() <= dict(sent.attributes).items()) == (1, True)
    [consumed] = metrics["messaging.client.consumed.messages"]
    assert (consumed.value, of_queue.items() <= dict(consumed.attributes).items()) == (1, True)
    [processed] = metrics["messaging.process.duration"]
    assert (processed.count, processed.sum) == (1, 2)
    assert processed.attributes["error.type"] == "error"
    operations = metrics["messaging.client.operation.duration"]
    names = {point.attributes["messaging.operation.name"] for point in operations}
    assert names == {"send", "claim", "settle"}
    [finished_] = metrics["tenure.jobs.finished"]
    assert finished_.attributes["tenure.outcome"] == "failed"
    [refused] = metrics["tenure.lock.refusals"]
    assert dict(refused.attributes) == {"tenure.lock": "invoice", "tenure.reason": "busy"}
    [up] = metrics["tenure.store.up"]
    assert up.value == 1
    assert CANARY not in otel.everything()


async def test_attempts_that_are_tried_again_count_as_errors(otel, clock):
    app = app_on(clock)
    otel.instrument(app)
    tries = []

    @app.task(queue="mail", retry=TWICE)
    async def work() -> None:
        tries.append(1)
        await clock.sleep(2)
        if len(tries) == 1:
            raise ValueError

    async with app, app.worker():
        await finished(await work.enqueue(), clock)
        points = otel.metrics()["messaging.process.duration"]
    ends = {point.attributes.get("error.type"): (point.count, point.sum) for point in points}
    assert ends == {"error": (1, 2), None: (1, 2)}


async def test_a_reader_on_the_loop_of_the_app_does_not_wait_for_it(clock):
    app = app_on(clock)
    async with app:
        snapshot_of(app).refresh_from_thread(patience=60)  # longer than a test may take
        assert snapshot_of(app).current() == ()


async def _metrics_from_thread(otel: Otel, name: str) -> list[Any]:
    """Read as an exporter does: in a thread of its own."""
    return (await asyncio.to_thread(otel.metrics))[name]


# Set-up.


async def test_two_apps_of_a_service_show_the_queues_and_the_trouble_of_both(otel):
    """An SDK drops the second of two observable instruments of a name."""
    orders, mail = Tenure("memory://"), Tenure("memory://")

    @orders.task(queue="orders")
    async def pay() -> None: ...

    @mail.task(queue="mail")
    async def send() -> None: ...

    otel.instrument(orders)
    otel.instrument(mail)
    async with orders, mail:
        await pay.enqueue()
        await send.enqueue()
        metrics = await asyncio.to_thread(otel.metrics)
    waiting = {
        point.attributes["tenure.queue"]: point.value
        for point in metrics["tenure.queue.jobs"]
        if point.attributes["tenure.state"] == "waiting"
    }
    assert waiting == {"orders": 1, "mail": 1}
    assert [point.value for point in otel.metrics()["tenure.store.up"]] == [1]
    engine_of(orders).events.emit(StoreCalled("beat", 5.0, "StoreUnavailable"))
    engine_of(mail).events.emit(StoreCalled("beat", 0.1))
    assert [point.value for point in otel.metrics()["tenure.store.up"]] == [0]


def test_an_app_is_instrumented_once(otel):
    app = Tenure("memory://")
    otel.instrument(app)
    with pytest.raises(ConfigError, match="instrumented already"):
        otel.instrument(app)


async def test_without_an_sdk_nothing_is_made_and_nothing_fails(clock):
    app = app_on(clock)
    tenure.otel.instrument(app)

    @app.task
    async def send() -> None: ...

    async with app, app.worker():
        job = await finished(await send.enqueue(), clock)
    assert (job.state, job.headers) == ("succeeded", {})


# The reference.

REFERENCE = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()


def test_every_metric_of_the_conventions_is_documented_and_the_reverse(otel):
    meter = otel.meters.get_meter("tenure")
    instruments = vars(MessagingRecorder(meter)).values()
    made = {each.name for each in instruments if hasattr(each, "name")}
    assert made == set(re.findall(r"^\| `(messaging[\w.]+)` \| \w+ \|", REFERENCE, re.MULTILINE))


def test_every_metric_of_prometheus_is_there_under_its_own_name(otel):
    Instruments(otel.meters.get_meter("tenure"))
    names = {f"tenure.{metric.name}" for metric in METRICS}
    names |= {"tenure.queue.jobs", "tenure.queue.oldest_age", "tenure.clock.offset"}
    documented = re.findall(r"^\| `tenure_(\w+?)(?:_total|_seconds)?` \|", REFERENCE, re.MULTILINE)
    assert {name.replace(".", "_") for name in names} == {f"tenure_{name}" for name in documented}


def test_every_attribute_is_documented():
    names = {value for value in vars(conventions).values() if isinstance(value, str)}
    attributes = {name for name in names if re.fullmatch(r"(messaging|tenure|error)\.[\w.]+", name)}
    attributes -= {conventions.__name__, conventions.__package__}
    assert [name for name in sorted(attributes) if f"`{name}`" not in REFERENCE] == []
