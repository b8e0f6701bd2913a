"""Sentry: what is reported of a job, once, and what never leaves the process."""

import json
import logging
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import sentry_sdk
from sentry_sdk.envelope import Envelope
from sentry_sdk.integrations.dedupe import DedupeIntegration
from sentry_sdk.integrations.logging import LoggingIntegration
from sentry_sdk.transport import Transport

import tenure.sentry
from tenure import Backoff, Reject, Tenure, current_job
from tenure.app import engine_of
from tenure.core.jobs.headers import HEADERS_MAX, HEADERS_SIZE_MAX
from tenure.errors import ConfigError
from tenure.jobs import Job
from tenure.observe import (
    AttemptLost,
    JobCancelled,
    JobFailed,
    JobHandedBack,
    JobRetried,
    JobSucceeded,
)
from tenure.observe.log_records import Raised
from tenure.sentry.attempts import Attempts
from tenure.testing import ManualClock
from tests.rig.wait import wait_until_async

CANARY = "c4n4ry"
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
TWICE = Backoff(max_attempts=2)
ONCE = Backoff(max_attempts=1)
WHO = "https://key@localhost/1"


class Sentry(Transport):
    """A server of Sentry that keeps what it gets."""

    def __init__(self) -> None:
        super().__init__()
        self._envelopes: list[Envelope] = []

    def capture_envelope(self, envelope: Envelope) -> None:
        self._envelopes.append(envelope)

    def init(self, **options: Any) -> None:
        sentry_sdk.init(
            WHO,
            transport=self,
            default_integrations=False,
            integrations=[DedupeIntegration(), LoggingIntegration()],
            **options,
        )

    @property
    def _items(self) -> list[dict[str, Any]]:
        return [item.payload.json for envelope in self._envelopes for item in envelope.items]

    @property
    def reports(self) -> list[dict[str, Any]]:
        return [item for item in self._items if item and item.get("type") != "transaction"]

    @property
    def transactions(self) -> list[dict[str, Any]]:
        return [item for item in self._items if item and item.get("type") == "transaction"]

    def everything(self) -> str:
        """All that would be sent, as text."""
        return "".join(json.dumps(item) for item in self._items)


@pytest.fixture
def sentry() -> Iterator[Sentry]:
    sentry_sdk.get_isolation_scope().generate_propagation_context({})  # no trace of other tests
    yield Sentry()
    sentry_sdk.get_global_scope().set_client(None)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def app(clock) -> Tenure:
    return Tenure("memory://", clock=clock, grace=0)


async def finished(job: Job[Any], clock: ManualClock) -> Job[Any]:
    """Advance until a job has ended, in a thread or not, with all its retries."""

    async def has_ended() -> bool:
        await clock.advance(0.2)
        return (await job.refresh()).is_finished

    await wait_until_async(has_ended)
    return job


def error_of(report: dict[str, Any]) -> dict[str, Any]:
    return report["exception"]["values"][-1]


# Reports.


@pytest.mark.parametrize("kind", ["thread", "async"])
async def test_a_job_is_reported_once_when_it_has_failed_for_good(sentry, app, clock, kind):
    sentry.init(traces_sample_rate=1.0)
    tenure.sentry.instrument(app)
    if kind == "async":

        @app.task(queue="mail", retry=TWICE)
        async def send(address: str) -> None:
            sentry_sdk.add_breadcrumb(message=f"attempt {current_job().attempt}")
            raise ValueError("no such host")

    else:

        @app.task(queue="mail", retry=TWICE)
        def send(address: str) -> None:
            sentry_sdk.add_breadcrumb(message=f"attempt {current_job().attempt}")
            raise ValueError("no such host")

    async with app, app.worker():
        job = await send.using(headers={"x-request-id": "r-81"}).enqueue(CANARY)
        await finished(job, clock)
    [report] = sentry.reports
    error = error_of(report)
    assert (report["level"], report["transaction"]) == ("error", job.task)
    assert (error["type"], error["value"]) == ("ValueError", "no such host")
    assert error["mechanism"] == {"type": "tenure", "handled": False}
    assert [frame["function"] for frame in error["stacktrace"]["frames"]] == ["send"]
    assert report["tags"] == {
        "tenure.task": job.task,
        "tenure.queue": "mail",
        "tenure.job": job.id,
        "tenure.attempt": "2",
        "tenure.request_id": "r-81",
    }
    # Those of this attempt alone, and no records of other jobs.
    assert [crumb["message"] for crumb in report["breadcrumbs"]["values"]] == ["attempt 2"]
    _, second = sentry.transactions
    assert report["contexts"]["trace"]["span_id"] == second["contexts"]["trace"]["span_id"]
    assert CANARY not in sentry.everything()


async def test_retries_are_reported_as_warnings_if_asked_for(sentry, app, clock):
    sentry.init()
    tenure.sentry.instrument(app, retries=True)

    @app.task(retry=TWICE)
    async def send() -> None:
        if current_job().attempt == 1:
            raise ValueError("no such host")

    async with app, app.worker():
        await finished(await send.enqueue(), clock)
    [report] = sentry.reports
    assert (report["level"], report["tags"]["tenure.attempt"]) == ("warning", "1")
    assert error_of(report)["mechanism"]["handled"] is True


async def test_nothing_is_reported_of_jobs_that_succeed_in_the_end(sentry, app, clock):
    sentry.init()
    tenure.sentry.instrument(app)

    @app.task(retry=TWICE)
    async def send() -> str:
        if current_job().attempt == 1:
            raise ValueError("no such host")
        return CANARY

    @app.task
    async def wait() -> None:
        await clock.sleep(60)

    async with app, app.worker():
        await finished(await send.enqueue(), clock)
        job = await wait.enqueue()
        await clock.advance(1)
        await job.cancel()
        await finished(job, clock)
    assert sentry.reports == []


@pytest.mark.parametrize("kind", ["thread", "async"])
async def test_a_time_out_is_reported_as_one(sentry, app, clock, kind):
    sentry.init()
    tenure.sentry.instrument(app)
    if kind == "async":

        @app.task(timeout=5, retry=ONCE)
        async def work() -> None:
            await clock.sleep(60)

    else:

        @app.task(timeout=5, retry=ONCE)
        def work() -> None:
            while not current_job().cancelled:
                pass

    async with app, app.worker():
        await finished(await work.enqueue(), clock)
    [report] = sentry.reports
    error = error_of(report)
    assert error["type"] == "TimeoutError"
    assert error["value"] == "it ran longer than its time-out of 5 s"
    if kind == "async":  # where it waited
        assert "work" in [frame["function"] for frame in error["stacktrace"]["frames"]]


async def test_arguments_that_do_not_fit_are_reported_without_them(sentry, clock, namespace):
    sentry.init()
    older, newer = (Tenure(f"memory://{namespace}", clock=clock, grace=0) for _ in range(2))
    tenure.sentry.instrument(newer)

    @older.task(name="pay")
    async def pay(amount: str) -> None: ...

    @newer.task(name="pay", retry=ONCE)
    async def pay_number(amount: int) -> None: ...

    async with older, newer, newer.worker():
        await finished(await pay.enqueue(CANARY), clock)
    [report] = sentry.reports
    assert error_of(report)["type"] == "tenure.errors.ArgumentsError"
    assert CANARY not in sentry.everything()


@pytest.mark.parametrize("error", [Reject(CANARY[:2]), KeyError("k")])
async def test_rejected_jobs_are_reported_too(sentry, app, clock, error):
    sentry.init()
    tenure.sentry.instrument(app)

    @app.task(retry=ONCE)
    async def work() -> None:
        raise error

    async with app, app.worker():
        await finished(await work.enqueue(), clock)
    [report] = sentry.reports
    assert error_of(report)["type"] == type(error).__name__


async def test_a_job_that_no_attempt_here_has_seen_is_reported_by_its_log_record(
    sentry, app, clock
):
    sentry.init()
    tenure.sentry.instrument(app)
    lost = JobFailed(task="pay", job="j-1", queue="mail", cause="lost", losses=3)
    hidden = CANARY
    try:
        raise ValueError(len(hidden))
    except ValueError as error:
        raised = Raised(error, error.__traceback__, "")
    async with app:
        engine_of(app).events.emit(lost, None, raised)
    [report] = sentry.reports
    assert report["logger"] == "tenure"
    assert CANARY not in sentry.everything()


@pytest.mark.parametrize(
    "end",
    [
        JobSucceeded("send", "j-1", "mail", 1),
        JobCancelled("send", "j-1", "mail", 1),
        JobHandedBack("send", "j-1", "mail", 1),
        JobRetried("send", "j-1", "mail", 1),
        AttemptLost("j-1", 7, "succeeded"),
    ],
    ids=lambda end: type(end).__name__,
)
async def test_an_attempt_is_forgotten_with_its_end(sentry, end):
    sentry.init()
    attempts = Attempts(retries=False, local_variables=False)
    job: Any = SimpleNamespace(id="j-1", queue="mail", task="send", attempt=1, headers={})
    async with attempts.processing(job):
        pass
    assert attempts.knows("j-1")
    attempts.ended(end)
    assert not attempts.knows("j-1")
    assert sentry.reports == []


async def test_attempts_that_never_end_do_not_pile_up(sentry, monkeypatch):
    sentry.init()
    monkeypatch.setattr(tenure.sentry.attempts, "_UNSETTLED_MAX", 2)
    attempts = Attempts(retries=False, local_variables=False)
    for name in "abc":
        job: Any = SimpleNamespace(id=name, queue="mail", task="send", attempt=1, headers={})
        async with attempts.processing(job):
            pass
    assert [attempts.knows(name) for name in "abc"] == [False, True, True]


async def test_an_error_that_the_handler_has_captured_is_not_reported_again(sentry, app, clock):
    sentry.init()
    tenure.sentry.instrument(app)

    @app.task(retry=ONCE)
    async def work() -> None:
        try:
            raise ValueError("no such host")
        except ValueError:
            sentry_sdk.capture_exception()
            raise

    async with app, app.worker():
        await finished(await work.enqueue(), clock)
    assert len(sentry.reports) == 1


async def test_runs_of_timers_are_reported(sentry, app, clock):
    sentry.init()
    tenure.sentry.instrument(app)

    @app.timer(every="1h", name="penalties")
    async def penalties() -> None:
        raise ValueError("no rates")

    async with app, app.worker():
        for _ in range(6):
            await clock.advance(900)
    report, *_ = sentry.reports
    assert report["tags"]["tenure.task"] == "@penalties"
    assert report["transaction"] == "@penalties"


async def test_attempts_that_run_at_the_same_time_have_scopes_of_their_own(sentry, app, clock):
    sentry.init()
    tenure.sentry.instrument(app)

    @app.task(retry=ONCE)
    async def work(number: int) -> None:
        sentry_sdk.set_tag("number", number)
        await clock.sleep(1)
        raise ValueError(number)

    async with app, app.worker():
        jobs = [await work.enqueue(number) for number in range(3)]
        for job in jobs:
            await finished(job, clock)
    seen = {report["tags"]["tenure.job"]: report["tags"]["number"] for report in sentry.reports}
    assert seen == {job.id: number for number, job in enumerate(jobs)}
    assert len(sentry.reports) == 3
    assert "number" not in sentry_sdk.get_isolation_scope()._tags


# What never leaves.


def failing(kind: str, app: Tenure, capture: Callable[[], object]) -> Any:
    if kind == "async":

        @app.task(retry=ONCE)
        async def work(word: str) -> str:
            hidden = {"inner": word}
            capture()
            raise RuntimeError(len(hidden))

    else:

        @app.task(retry=ONCE)
        def work(word: str) -> str:
            hidden = {"inner": word}
            capture()
            raise RuntimeError(len(hidden))

    return work


def nothing() -> None:
    pass


def capture_own_error() -> None:
    try:
        raise KeyError("own")
    except KeyError:
        sentry_sdk.capture_exception()


def capture_own_message() -> None:
    sentry_sdk.capture_message("own")


def log_own_error() -> None:
    logging.getLogger("shop").error("own", stack_info=True)


@pytest.mark.parametrize("kind", ["thread", "async"])
@pytest.mark.parametrize(
    "capture", [nothing, capture_own_error, capture_own_message, log_own_error]
)
async def test_no_report_has_the_variables_of_a_handler(sentry, app, clock, kind, capture):
    sentry.init(traces_sample_rate=1.0, attach_stacktrace=True)
    tenure.sentry.instrument(app)
    work = failing(kind, app, capture)
    async with app, app.worker():
        await finished(await work.enqueue(CANARY), clock)
    assert len(sentry.reports) == (1 if capture is nothing else 2)
    assert CANARY not in sentry.everything()
    assert '"vars"' not in sentry.everything()


async def test_local_variables_are_sent_if_asked_for(sentry, app, clock):
    sentry.init()
    tenure.sentry.instrument(app, local_variables=True)
    work = failing("async", app, nothing)
    async with app, app.worker():
        await finished(await work.enqueue("visible"), clock)
    [frame] = error_of(sentry.reports[0])["stacktrace"]["frames"]
    assert frame["vars"]["word"] == "'visible'"


# Traces.


@pytest.mark.parametrize("kind", ["thread", "async"])
async def test_a_request_its_job_and_its_retry_are_one_trace(sentry, app, clock, kind):
    sentry.init(traces_sample_rate=1.0)
    tenure.sentry.instrument(app)
    if kind == "async":

        @app.task(queue="mail", retry=TWICE)
        async def send() -> None:
            with sentry_sdk.start_span(op="db", name="inside"):
                if current_job().attempt == 1:
                    raise ValueError

    else:

        @app.task(queue="mail", retry=TWICE)
        def send() -> None:
            with sentry_sdk.start_span(op="db", name="inside"):
                if current_job().attempt == 1:
                    raise ValueError

    async with app, app.worker():
        with sentry_sdk.start_transaction(op="http.server", name="POST /reports"):
            job = await send.enqueue()
        await finished(job, clock)
    request, first, second = sentry.transactions
    [sent] = request["spans"]
    assert (sent["op"], sent["description"]) == ("queue.publish", "send mail")
    assert sent["data"]["messaging.message.id"] == job.id
    traces = [each["contexts"]["trace"] for each in (request, first, second)]
    assert len({trace["trace_id"] for trace in traces}) == 1
    assert [trace.get("parent_span_id") for trace in traces[1:]] == [sent["span_id"]] * 2
    assert [each["transaction"] for each in (first, second)] == [job.task] * 2
    assert [trace.get("status") for trace in traces] == [None, "internal_error", "ok"]
    assert traces[1]["op"] == "queue.process"
    assert traces[2]["data"]["messaging.message.id"] == job.id
    assert traces[2]["data"]["messaging.destination.name"] == "mail"
    assert traces[2]["data"]["messaging.message.retry.count"] == 1
    assert [span["description"] for span in second["spans"]] == ["inside"]


async def test_without_tracing_reports_belong_to_the_trace_of_the_enqueue(sentry, app, clock):
    sentry.init()
    tenure.sentry.instrument(app)

    @app.task(retry=ONCE)
    async def send() -> None:
        raise ValueError

    async with app, app.worker():
        job = await finished(await send.enqueue(), clock)
    [report] = sentry.reports
    assert report["contexts"]["trace"]["trace_id"] == job.headers["sentry-trace"].split("-")[0]
    assert sentry.transactions == []


async def test_a_batch_is_one_span_and_all_its_jobs_have_its_trace(sentry, app):
    sentry.init(traces_sample_rate=1.0)
    tenure.sentry.instrument(app)

    @app.task(queue="mail")
    async def send(number: int) -> None: ...

    async with app:
        with sentry_sdk.start_transaction(name="POST /reports"):
            jobs = await app.enqueue_many(send.request(number) for number in range(3))
    [sent] = sentry.transactions[0]["spans"]
    assert {job.headers["sentry-trace"].split("-")[1] for job in jobs} == {sent["span_id"]}


FULL = {f"x-{number}": CANARY for number in range(HEADERS_MAX)}
ALMOST = {"x": CANARY.ljust(HEADERS_SIZE_MAX - 100)}


@pytest.mark.parametrize(
    ("headers", "added"),
    [
        ({}, {"sentry-trace", "baggage"}),
        (FULL, set()),
        (ALMOST, {"sentry-trace"}),
        ({"baggage": "vendor=1,sentry-release=old"}, {"sentry-trace"}),
    ],
)
async def test_trace_headers_take_only_the_room_that_is_left(sentry, app, clock, headers, added):
    sentry.init(traces_sample_rate=1.0, release="shop@7")
    tenure.sentry.instrument(app)

    @app.task
    async def send() -> None: ...

    async with app, app.worker():
        job = await finished(await send.using(headers=headers).enqueue(), clock)
    assert job.state == "succeeded"
    assert job.headers.keys() - headers.keys() == added
    for name in headers.keys() - {"baggage"}:
        assert job.headers[name] == headers[name]
    if "baggage" in headers:
        vendor, *own = job.headers["baggage"].split(",")
        assert vendor == "vendor=1"
        assert "sentry-release=shop%407" in own
        assert "sentry-release=old" not in own


async def test_the_baggage_of_others_stays_where_our_own_has_no_room(sentry, app):
    sentry.init(traces_sample_rate=1.0, release="shop@7")
    tenure.sentry.instrument(app)

    @app.task
    async def send() -> None: ...

    async with app:
        job = await send.using(headers={**ALMOST, "baggage": "vendor=1"}).enqueue()
    assert job.headers["baggage"] == "vendor=1"
    assert "sentry-trace" in job.headers


async def test_headers_that_are_no_trace_harm_nothing(sentry, app, clock):
    sentry.init(traces_sample_rate=1.0)

    @app.task
    async def send() -> None: ...

    async with app:
        bad = {"sentry-trace": CANARY, "baggage": CANARY}
        job = await send.using(headers=bad).enqueue()
        tenure.sentry.instrument(app)
        async with app.worker():
            await finished(job, clock)
    assert len(sentry.transactions) == 1
    assert CANARY not in sentry.everything()


async def test_an_enqueue_that_fails_raises_its_error(sentry, app):
    sentry.init(traces_sample_rate=1.0)
    tenure.sentry.instrument(app)

    @app.on_enqueue
    def refuse(job: Any) -> None:
        job.headers["Bad Name"] = ""

    @app.task
    async def send() -> None: ...

    async with app:
        with pytest.raises(ConfigError):
            await send.enqueue()


# Set-up.


async def test_without_sentry_set_up_nothing_is_made_and_nothing_fails(app, clock):
    tenure.sentry.instrument(app)
    scopes: list[object] = []

    @app.task(retry=ONCE)
    async def send() -> None:
        scopes.append(dict(sentry_sdk.get_isolation_scope()._tags))
        raise ValueError

    async with app, app.worker():
        job = await finished(await send.enqueue(), clock)
    assert (job.state, job.headers, scopes) == ("failed", {}, [{}])
    assert tenure.sentry.trace_headers() == {}


async def test_with_streamed_spans_reports_are_made_and_no_transactions(sentry, app, clock):
    sentry.init(traces_sample_rate=1.0, _experiments={"trace_lifecycle": "stream"})
    tenure.sentry.instrument(app)

    @app.task(retry=ONCE)
    async def send() -> None:
        raise ValueError("no such host")

    async with app, app.worker():
        await finished(await send.enqueue(), clock)
    assert [error_of(report)["type"] for report in sentry.reports] == ["ValueError"]
    assert sentry.transactions == []


def test_an_app_is_instrumented_once(app):
    tenure.sentry.instrument(app)
    with pytest.raises(ConfigError, match="instrumented already"):
        tenure.sentry.instrument(app)
