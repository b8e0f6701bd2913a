"""Prometheus metrics: what is counted, what never becomes a label, and what a scrape costs."""

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from httpx2 import ASGITransport, AsyncClient
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

import tenure.prometheus
from tenure import Backoff, Tenure, current_job
from tenure.app import engine_of
from tenure.core.clock import SystemClock
from tenure.core.jobs.records import QueueCounts
from tenure.errors import ConfigError, StoreUnavailable
from tenure.errors import JobFailed as JobFailedError
from tenure.metrics import snapshot
from tenure.metrics.snapshot import bounded_queues
from tenure.observe import (
    AttemptLost,
    ClockJumped,
    DataLost,
    Event,
    HoldLost,
    JobCancelled,
    JobEnqueued,
    JobFailed,
    JobHandedBack,
    JobRetried,
    JobRunsLong,
    JobsRecovered,
    JobStarted,
    JobSucceeded,
    LockAcquired,
    LockHeldLong,
    LockRefused,
    LockReleased,
    LockTakenOver,
    LockTimedOut,
    QueueDelayed,
    RanUnlocked,
    ReplicaExpired,
    StoreCalled,
    TickRan,
    TickSkipped,
    TicksMissed,
    TickUnlocked,
    TimerRunsLong,
)
from tenure.prometheus.families import QueueGauges
from tenure.stores.connect import connect
from tenure.testing import Faults, FaultyStore, ManualClock
from tests.rig.wait import wait_until_async

CANARY = "c4n4ry"


class Page:
    """What a scrape returns, by name and labels."""

    def __init__(self, text: str) -> None:
        self.text = text
        families = list(text_string_to_metric_families(text))
        self.names = {family.name for family in families}
        self._values = {
            (sample.name, *sorted(sample.labels.items())): sample.value
            for family in families
            for sample in family.samples
        }

    def value(self, name: str, **labels: str) -> float | None:
        return self.of(f"tenure_{name}", **labels)

    def of(self, name: str, **labels: str) -> float | None:
        return self._values.get((name, *sorted(labels.items())))

    def labels(self, name: str) -> set[str]:
        return {
            value
            for sample in self._values
            if sample[0] == f"tenure_{name}"
            for _, value in sample[1:]
        }


async def scrape(metrics: tenure.prometheus.Metrics) -> Page:
    await metrics.refresh()
    return Page(generate_latest(metrics.registry).decode())


def instrumented(app: Tenure, **options: Any) -> tenure.prometheus.Metrics:
    return tenure.prometheus.instrument(app, CollectorRegistry(), **options)


def emit(app: Tenure, *events: Event) -> None:
    for event in events:
        engine_of(app).events.emit(event)


def job(kind: type, task: str = "pay", queue: str = "mail", **fields: Any) -> Any:
    return kind(task=task, job=f"job-{CANARY}", queue=queue, attempt=1, **fields)


# What is counted.


async def test_each_event_is_counted_once_in_the_metric_that_names_it():
    app = Tenure("memory://")
    metrics = instrumented(app)
    emit(
        app,
        job(JobEnqueued),
        job(JobStarted, waited=2.0),
        job(JobRetried, error=CANARY, seconds=3.0),
        job(JobFailed, error=CANARY, seconds=4.0),
        job(JobSucceeded, seconds=5.0),
        job(JobCancelled),
        job(JobHandedBack, reason=CANARY),
        JobsRecovered(
            by="me",
            replicas=(CANARY,),
            waiting=("a", "b"),
            failed=("c",),
            cancelled=("d",),
            unreadable=("e",),
        ),
        AttemptLost(job=CANARY, fence=7, outcome="succeeded"),
        LockAcquired(name=f"invoice:{CANARY}", fence=1, waited=0.5),
        LockRefused(name=f"invoice:{CANARY}"),
        LockTimedOut(name=f"invoice:{CANARY}", waited=1.5),
        LockReleased(name=f"invoice:{CANARY}", fence=1, held=6.0),
        HoldLost(name=f"invoice:{CANARY}", fence=1, reason=CANARY),
        LockTakenOver(name=f"invoice:{CANARY}", fence=2),
        LockHeldLong(name=f"invoice:{CANARY}", fence=1, held=3.0, expected=2.0),
        RanUnlocked(name=f"invoice:{CANARY}", error=CANARY),
        TickRan(timer="penalties", nominal=0, lateness=0.25),
        TickSkipped(timer="penalties", reason=CANARY),
        TicksMissed(timer="penalties", ticks=3, reason=CANARY),
        TickUnlocked(timer="penalties", nominal=0),
        job(JobRunsLong, seconds=9.0),
        TimerRunsLong(timer="penalties", job=CANARY, seconds=9.0, expected=3.0),
        QueueDelayed(queue="mail", age=9.0, expected=3.0),
        StoreCalled(call="claim", seconds=0.125),
        ClockJumped(seconds=-3.0),
        DataLost(store=CANARY, replica=CANARY, jobs=(CANARY,), holds=(CANARY,)),
        ReplicaExpired(replica=CANARY, by=CANARY),
    )
    page = await scrape(metrics)
    of_job = {"queue": "mail", "task": "pay"}
    assert page.value("jobs_enqueued_total", **of_job) == 1
    assert page.value("jobs_started_total", **of_job) == 1
    assert page.value("job_wait_seconds_sum", **of_job) == 2
    for outcome in ("succeeded", "failed", "retried", "cancelled", "handed_back"):
        assert page.value("jobs_finished_total", **of_job, outcome=outcome) == 1
    assert page.value("job_duration_seconds_sum", **of_job) == 12
    assert page.value("job_duration_seconds_count", **of_job) == 3
    assert page.value("jobs_recovered_total") == 5
    assert page.value("stale_writes_refused_total") == 1
    assert page.value("locks_acquired_total", lock="invoice") == 1
    assert page.value("lock_refusals_total", lock="invoice", reason="busy") == 1
    assert page.value("lock_refusals_total", lock="invoice", reason="timeout") == 1
    assert page.value("lock_wait_seconds_sum", lock="invoice") == 2
    assert page.value("lock_hold_seconds_sum", lock="invoice") == 6
    assert page.value("locks_lost_total", lock="invoice") == 1
    assert page.value("locks_taken_over_total", lock="invoice") == 1
    assert page.value("locks_held_long_total", lock="invoice") == 1
    assert page.value("ran_unlocked_total", lock="invoice") == 1
    assert page.value("ticks_total", timer="penalties", outcome="ran") == 1
    assert page.value("ticks_total", timer="penalties", outcome="skipped") == 1
    assert page.value("ticks_total", timer="penalties", outcome="missed") == 3
    assert page.value("ticks_total", timer="penalties", outcome="unlocked") == 1
    assert page.value("tick_lateness_seconds_sum", timer="penalties") == 0.25
    assert page.value("jobs_run_long_total", **of_job) == 1
    assert page.value("timers_run_long_total", timer="penalties") == 1
    assert page.value("queues_delayed_total", queue="mail") == 1
    assert page.value("store_call_seconds_sum", call="claim") == 0.125
    assert page.value("clock_jumps_total") == 1
    assert page.value("data_lost_total") == 1
    assert page.value("replicas_expired_total") == 1
    assert CANARY not in page.text


async def test_jobs_locks_and_ticks_of_a_service_are_counted_on_each_store(real_world):
    app = Tenure(real_world.unopened(), replica_ttl=3)
    metrics = instrumented(app)
    runs: list[int] = []
    ticks: list[int] = []

    @app.task(queue="mail", retry=Backoff(max_attempts=2, base=0.1))
    async def send(user: str) -> str:
        runs.append(current_job().attempt)
        if len(runs) == 1:
            raise ValueError(user)
        async with app.lock(f"invoice:{user}"):
            assert await app.lock(f"invoice:{user}").try_acquire() is None
        return user

    @app.task(queue="mail", retry=Backoff(max_attempts=1))
    async def fail(user: str) -> None:
        raise ValueError(user)

    @app.timer(every="1s", name="penalties")
    async def penalties() -> None:
        ticks.append(1)

    async with app, app.worker():
        job = await send.using(headers={"tenant": CANARY}, unique=CANARY).enqueue(CANARY)
        assert await job.result(20) == CANARY
        with pytest.raises(JobFailedError):
            await (await fail.enqueue(CANARY)).result(20)
        await wait_until_async(lambda: ticks, 20)
        page = await scrape(metrics)
        assert page.value("queue_jobs", queue="mail", state="waiting") == 0
        await metrics.close()
    page = await scrape(metrics)
    of_send = {"queue": "mail", "task": job.task}
    assert page.value("jobs_enqueued_total", **of_send) == 1
    assert page.value("jobs_started_total", **of_send) == 2
    assert page.value("jobs_finished_total", **of_send, outcome="retried") == 1
    assert page.value("jobs_finished_total", **of_send, outcome="succeeded") == 1
    assert page.value("job_duration_seconds_count", **of_send) == 2
    assert page.value("job_wait_seconds_count", **of_send) == 2
    failed = {name for name in page.labels("jobs_finished_total") if name.endswith("fail")}
    assert page.value("jobs_finished_total", queue="mail", task=failed.pop(), outcome="failed") == 1
    assert page.value("locks_acquired_total", lock="invoice") == 1
    assert page.value("lock_refusals_total", lock="invoice", reason="busy") == 1
    assert page.value("lock_hold_seconds_count", lock="invoice") == 1
    assert page.value("ticks_total", timer="penalties", outcome="ran") >= 1
    assert page.value("tick_lateness_seconds_count", timer="penalties") >= 1
    assert page.value("store_call_seconds_count", call="claim") >= 1
    assert page.value("store_up") == 1
    assert CANARY not in page.text


async def test_an_attempt_that_nobody_measured_has_no_duration():
    app = Tenure("memory://")
    metrics = instrumented(app)
    emit(app, job(JobFailed, cause="lost", losses=3))
    page = await scrape(metrics)
    assert page.value("jobs_finished_total", queue="mail", task="pay", outcome="failed") == 1
    assert page.value("job_duration_seconds_count", queue="mail", task="pay") is None


# Labels.


async def test_buckets_reach_from_quick_jobs_to_those_of_hours():
    app = Tenure("memory://")
    metrics = instrumented(app)
    emit(app, job(JobSucceeded, seconds=0.02), job(JobSucceeded, seconds=4000.0))
    page = await scrape(metrics)
    limits = ("0.01", "0.05", "3600.0", "21600.0")
    of_job = {"queue": "mail", "task": "pay"}
    shown = [page.value("job_duration_seconds_bucket", **of_job, le=limit) for limit in limits]
    assert shown == [0, 1, 1, 2]


async def test_the_101st_task_is_counted_as_other():
    app = Tenure("memory://")
    metrics = instrumented(app)
    emit(app, *(job(JobEnqueued, task=f"task-{number}") for number in range(150)))
    page = await scrape(metrics)
    assert page.value("jobs_enqueued_total", queue="mail", task="task-99") == 1
    assert page.value("jobs_enqueued_total", queue="mail", task="other") == 50
    assert len(page.labels("jobs_enqueued_total")) == 102  # with "mail" and "other"


async def test_queues_times_tasks_stay_bounded_too():
    app = Tenure("memory://")
    metrics = instrumented(app)
    numbers = [(queue, task) for queue in range(60) for task in range(60)]
    emit(app, *(job(JobEnqueued, f"t{task}", f"q{queue}") for queue, task in numbers))
    page = await scrape(metrics)
    series = page.text.count("\ntenure_jobs_enqueued_total{")
    assert series == 501
    assert page.value("jobs_enqueued_total", queue="other", task="other") == 3600 - 500


async def test_lock_names_never_stand_in_a_label_and_their_kinds_are_bounded():
    app = Tenure("memory://")
    metrics = instrumented(app)
    emit(app, *(LockRefused(name=f"kind-{number}") for number in range(101)))
    page = await scrape(metrics)
    assert page.value("lock_refusals_total", lock="other", reason="busy") == 1


async def test_the_label_of_locks_can_be_chosen_and_an_error_in_it_harms_nobody():
    def label(name: str) -> str:
        return {"a/1": "letters", "c/3": "long" * 100}[name]

    app = Tenure("memory://")
    metrics = instrumented(app, lock_label=label)
    async with app, app.lock("a/1"):
        pass
    emit(app, *(LockRefused(name=name) for name in ("a/1", f"b/{CANARY}", "c/3")))
    page = await scrape(metrics)
    assert page.value("lock_refusals_total", lock="letters", reason="busy") == 1
    assert page.value("lock_refusals_total", lock="other", reason="busy") == 1
    assert page.value("lock_refusals_total", lock="long" * 25, reason="busy") == 1
    assert CANARY not in page.text


# Calls of the store.


async def test_calls_of_the_store_are_timed_by_name(namespace):
    clock, faults = ManualClock(), Faults()
    store = connect("memory://", namespace=namespace, clock=clock)
    app = Tenure(FaultyStore(store, faults))
    metrics = instrumented(app)
    async with app:
        async with app.lock("invoice:42"):
            assert (await scrape(metrics)).value("store_up") == 1
        faults.lose_reply("find", times=1)
        with pytest.raises(StoreUnavailable):
            await app.locks()
        # Read before the page asks the store itself.
        page = Page(generate_latest(metrics.registry).decode())
        assert page.value("store_up") == 0
        assert page.value("store_errors_total", call="find") == 1
        assert page.value("store_call_seconds_count", call="find") == 1
        await app.locks()
        page = Page(generate_latest(metrics.registry).decode())
        assert page.value("store_up") == 1
        assert page.value("store_call_seconds_count", call="release") == 1
        assert page.value("store_errors_total", call="release") is None


@pytest.mark.parametrize(
    ("error", "up"), [("StoreUnavailable", 0), ("StoreFull", 0), ("StoreError", 1)]
)
async def test_a_store_that_refuses_a_call_has_answered_it(error: str, up: int):
    app = Tenure("memory://")
    metrics = instrumented(app)
    emit(app, StoreCalled(call="claim", seconds=0.125, error=error))
    page = await scrape(metrics)
    assert page.value("store_errors_total", call="claim") == 1
    assert page.value("store_up") == up


async def test_without_a_subscriber_the_store_is_called_directly():
    async with Tenure("memory://") as app:
        assert engine_of(app).services().store is engine_of(app).store
        seen: list[Event] = []
        app.on_event(seen.append)
        await app.queues()
        assert seen == []


async def test_calls_on_the_connection_of_the_host_are_reported(real_world):
    app, seen = Tenure(real_world.unopened()), []
    app.on_event(seen.append)
    async with app, app.lock("a", ttl=1) as hold:
        await wait_until_async(lambda: "renew" in _calls(seen), 20)
        assert not hold.is_lost
    assert {"acquire", "renew", "release", "ping"} <= _calls(seen)


def _calls(seen: list[Event]) -> set[str]:
    return {event.call for event in list(seen) if isinstance(event, StoreCalled)}


async def test_a_cancelled_call_is_no_error():
    clock, faults = ManualClock(), Faults()
    app = Tenure(FaultyStore("memory://", faults, clock=clock))
    seen: list[Event] = []
    app.on_event(seen.append)
    async with app:
        seen.clear()
        faults.delay("find", 10)
        task = asyncio.ensure_future(app.locks())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert seen == []


# The gauges of the whole store.


@pytest.fixture
async def fleet(namespace: str) -> AsyncIterator[list[tuple[Tenure, Any, Faults]]]:
    """Ten replicas on one store, with their metrics and the calls that they make."""
    clock = ManualClock()
    store = connect("memory://", namespace=namespace, clock=clock)
    await store.open()
    async with AsyncExitStack() as stack:
        replicas = []
        for _ in range(10):
            faults = Faults()
            app = Tenure(FaultyStore(store.clone(), faults))
            metrics = instrumented(app)
            replicas.append((await stack.enter_async_context(app), metrics, faults))
        yield replicas
    await store.close()


def clock_of(fleet: Any) -> ManualClock:
    return engine_of(fleet[0][0]).store.clock


def counts(fleet: Any) -> int:
    return sum(faults.calls["counts"] for _, _, faults in fleet)


class LateClock(SystemClock):
    """The clock of a host that is 90 s late."""

    def wall(self) -> int:
        return super().wall() - 90_000_000


async def test_the_offset_of_the_clock_is_shown_while_its_replica_counts(
    postgres_server, namespace
):
    store = connect(postgres_server.app_url, namespace=namespace, clock=LateClock())
    app = Tenure(store)
    metrics = instrumented(app)
    async with app:
        page = await scrape(metrics)
        assert page.value("clock_offset_seconds") == pytest.approx(90, abs=5)
        await metrics.close()
        assert (await scrape(metrics)).value("clock_offset_seconds") is None


async def test_of_ten_scraped_replicas_one_asks_and_one_answers(fleet):
    app = fleet[0][0]

    @app.task(queue="mail")
    async def send() -> None: ...

    await app.enqueue_many(send.request() for _ in range(3))
    await clock_of(fleet).advance(7)
    for _, _, faults in fleet:
        faults.calls.clear()
    pages = [await scrape(metrics) for _, metrics, _ in fleet]
    assert [page.value("queue_jobs", queue="mail", state="waiting") for page in pages] == [
        3,
        *[None] * 9,
    ]
    assert pages[0].value("queue_jobs", queue="mail", state="running") == 0
    assert pages[0].value("queue_oldest_age_seconds", queue="mail") == 7
    # All calls of the store, also of those that the test does not know: the queues are counted
    # once, its clock is read once, and each replica asks for the lease that says who counts.
    assert sum((faults.calls for _, _, faults in fleet), Counter()) == {
        "acquire": 10,
        "counts": 1,
        "ping": 1,
    }
    for _, metrics, _ in fleet:
        await scrape(metrics)
    assert sum(faults.calls.total() for _, _, faults in fleet) == 12


async def test_scrapes_within_five_seconds_ask_the_store_once(fleet):
    _, metrics, faults = fleet[0]
    faults.delay("acquire", 1)  # others come while the first one is answered
    scrapes = asyncio.gather(*(scrape(metrics) for _ in range(20)))
    await clock_of(fleet).advance(1)
    await scrapes
    faults.heal()
    await scrape(metrics)
    assert faults.calls["counts"] == 1
    await clock_of(fleet).advance(3.9)
    await scrape(metrics)
    assert faults.calls["counts"] == 1
    await clock_of(fleet).advance(0.2)
    await scrape(metrics)
    assert faults.calls["counts"] == 2


async def test_another_replica_answers_when_the_first_is_scraped_no_more(fleet):
    app = fleet[0][0]

    @app.task(queue="mail")
    async def send() -> None: ...

    await send.enqueue()
    for _ in range(4):  # it keeps the lease for as long as it is scraped
        assert (await scrape(fleet[0][1])).value("queue_jobs", queue="mail", state="waiting") == 1
        assert (await scrape(fleet[1][1])).value(
            "queue_jobs", queue="mail", state="waiting"
        ) is None
        await clock_of(fleet).advance(15)
    await clock_of(fleet).advance(16)
    assert (await scrape(fleet[1][1])).value("queue_jobs", queue="mail", state="waiting") == 1
    stale = Page(generate_latest(fleet[0][1].registry).decode())
    assert stale.value("queue_jobs", queue="mail", state="waiting") is None
    assert (await scrape(fleet[0][1])).value("queue_jobs", queue="mail", state="waiting") is None


async def test_a_store_that_does_not_answer_leaves_no_gauge_and_breaks_no_page(fleet):
    app, metrics, faults = fleet[0]

    @app.task(queue="mail")
    async def send() -> None: ...

    await send.enqueue()
    assert (await scrape(metrics)).value("queue_jobs", queue="mail", state="waiting") == 1
    faults.lose_request("counts", times=1)
    await clock_of(fleet).advance(6)
    page = await scrape(metrics)
    assert page.value("queue_jobs", queue="mail", state="waiting") is None
    assert page.value("store_up") == 0


async def test_a_store_that_hangs_breaks_no_page(fleet, monkeypatch: pytest.MonkeyPatch):
    _, metrics, faults = fleet[0]
    monkeypatch.setattr(snapshot, "_PATIENCE", 0.01)
    faults.delay("acquire", 100)  # on a clock that stands still
    page = await scrape(metrics)
    assert page.labels("queue_jobs") == set()


async def test_the_queues_beyond_the_limit_are_one(fleet):
    app, metrics, _ = fleet[0]

    @app.task
    async def send() -> None: ...

    await app.enqueue_many(send.using(queue=f"q{number}").request() for number in range(130))
    await send.using(queue="q7").enqueue()
    page = await scrape(metrics)
    assert page.value("queue_jobs", queue="q7", state="waiting") == 2
    assert page.value("queue_jobs", queue="other", state="waiting") == 30
    assert len(page.labels("queue_jobs")) == 101 + 2  # with the states


async def test_a_declared_queue_without_jobs_is_shown_with_none(fleet):
    app, metrics, _ = fleet[0]

    @app.task(queue="mail")
    async def send() -> None: ...

    page = await scrape(metrics)
    assert page.value("queue_jobs", queue="mail", state="waiting") == 0
    assert page.value("queue_oldest_age_seconds", queue="mail") == 0


async def test_a_replica_that_closes_its_metrics_is_followed_at_once(fleet):
    app = fleet[0][0]

    @app.task(queue="mail")
    async def send() -> None: ...

    await send.enqueue()
    assert (await scrape(fleet[0][1])).value("queue_jobs", queue="mail", state="waiting") == 1
    await fleet[0][1].close()
    assert (await scrape(fleet[1][1])).value("queue_jobs", queue="mail", state="waiting") == 1
    assert (await scrape(fleet[0][1])).value("queue_jobs", queue="mail", state="waiting") is None


async def test_a_replica_that_has_closed_its_metrics_does_not_count_again(fleet):
    _, metrics, faults = fleet[0]
    await scrape(metrics)
    await metrics.close()
    faults.calls.clear()
    await clock_of(fleet).advance(60)
    await scrape(metrics)
    assert not faults.calls


# The page.


async def test_the_page_is_an_asgi_app_that_needs_no_other_call():
    app = Tenure("memory://")
    registry = CollectorRegistry()
    page = tenure.prometheus.metrics_app(app, registry)

    @app.task(queue="mail")
    async def send() -> None: ...

    async with app, AsyncClient(transport=ASGITransport(page), base_url="http://test") as client:
        await send.enqueue()
        answer = await client.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain")
    assert Page(answer.text).value("queue_jobs", queue="mail", state="waiting") == 1


async def test_the_page_answers_before_the_app_is_open_and_after_it_was_closed():
    app = Tenure("memory://")
    metrics = instrumented(app)
    assert (await scrape(metrics)).labels("queue_jobs") == set()
    async with app:
        pass
    assert (await scrape(metrics)).labels("queue_jobs") == set()


async def test_a_process_that_has_not_called_the_store_does_not_count_as_cut_off():
    app = Tenure("memory://")
    metrics = instrumented(app)
    assert (await scrape(metrics)).value("store_up") == 1


def test_an_app_is_counted_once():
    app, registry = Tenure("memory://"), CollectorRegistry()
    metrics = tenure.prometheus.instrument(app, registry)
    assert tenure.prometheus.instrument(app, registry) is metrics
    assert tenure.prometheus.instrument(app) is metrics
    with pytest.raises(ConfigError, match="has metrics already"):
        tenure.prometheus.instrument(app, CollectorRegistry())
    with pytest.raises(ConfigError, match="has metrics already"):
        tenure.prometheus.instrument(app, lock_label=str.lower)


async def test_an_app_that_is_open_already_is_warned_of(caplog: pytest.LogCaptureFixture):
    async with Tenure("memory://") as late:
        instrumented(late)
    assert "was instrumented after it was opened" in caplog.text
    caplog.clear()
    early = Tenure("memory://")
    early.on_event(lambda _: None)
    async with early:  # its calls are reported
        instrumented(early)
    assert "instrumented" not in caplog.text


async def test_apps_share_a_registry_and_clones_count_with_their_app():
    registry = CollectorRegistry()
    orders, mail = Tenure("memory://"), Tenure("memory://")
    metrics = tenure.prometheus.instrument(orders, registry)
    tenure.prometheus.instrument(mail, registry)
    emit(orders, LockRefused(name="a"))
    emit(orders.clone(), LockRefused(name="a"))
    emit(mail, LockRefused(name="a"))
    page = await scrape(metrics)
    assert page.value("lock_refusals_total", lock="a", reason="busy") == 3


async def test_of_two_apps_the_one_that_cannot_reach_its_store_counts():
    registry = CollectorRegistry()
    orders, mail = Tenure("memory://"), Tenure("memory://")
    metrics = tenure.prometheus.instrument(orders, registry)
    tenure.prometheus.instrument(mail, registry)
    emit(orders, StoreCalled(call="beat", seconds=5, error="StoreUnavailable"))
    emit(mail, StoreCalled(call="beat", seconds=0.1))
    assert (await scrape(metrics)).value("store_up") == 0
    emit(orders, StoreCalled(call="beat", seconds=0.1))
    assert (await scrape(metrics)).value("store_up") == 1


async def test_queues_of_the_same_name_in_two_apps_are_one_series():
    registry = CollectorRegistry()
    async with Tenure("memory://") as orders, Tenure("memory://") as mail:
        for app, jobs in (orders, 1), (mail, 2):
            metrics = tenure.prometheus.instrument(app, registry)

            @app.task
            async def send() -> None: ...

            await app.enqueue_many([send.request() for _ in range(jobs)])
            await metrics.refresh()
        text = generate_latest(registry).decode()
    assert re.findall(r'^tenure_queue_jobs{.*"waiting"} (.+)', text, re.MULTILINE) == ["3.0"]
    assert len(re.findall(r"^tenure_queue_oldest_age_seconds{", text, re.MULTILINE)) == 1


def test_a_queue_that_is_called_other_is_shown_with_those_beyond_the_limit():
    queues = [QueueCounts(queue=f"q{number}", waiting=2, running=0) for number in range(100)]
    queues += [QueueCounts(queue="other", waiting=9, running=1, oldest=5.0)]
    shown = bounded_queues(queues)
    assert [counts for counts in shown if counts.queue == "other"] == [
        QueueCounts(queue="other", waiting=11, running=1, oldest=5.0)
    ]
    assert len(shown) == 100


@pytest.mark.parametrize(
    ("ages", "oldest"), [((5.0, 9.0), 9.0), ((9.0, 5.0), 9.0), ((None, 5.0), 5.0)]
)
def test_of_queues_of_the_same_name_the_oldest_job_counts(ages, oldest: float):
    queues = [QueueCounts(queue="mail", waiting=1, running=0, oldest=age) for age in ages]
    assert bounded_queues(queues) == [
        QueueCounts(queue="mail", waiting=2, running=0, oldest=oldest)
    ]


# The reference.

REFERENCE = Path(__file__).parents[2] / "docs" / "metrics.md"


def documented() -> dict[str, tuple[str, set[str]]]:
    """Return the type and the labels of each metric of the table."""
    rows = re.findall(
        r"^\| `(tenure_\w+)` \| (\w+) \|([^|]*)\|", REFERENCE.read_text(), re.MULTILINE
    )
    return {name: (kind, set(re.findall(r"\w+", labels))) for name, kind, labels in rows}


def test_every_metric_is_documented_and_every_documented_metric_exists():
    app = Tenure("memory://")
    registry = CollectorRegistry()
    tenure.prometheus.instrument(app, registry)
    made = {}
    for collector in set(registry._collector_to_names):
        if isinstance(collector, QueueGauges):
            made |= {each.name: ("gauge", set(each._labelnames)) for each in collector.collect()}
        else:
            end = "_total" if collector._type == "counter" else ""
            made[f"{collector._name}{end}"] = collector._type, set(collector._labelnames)
    assert made == documented()
