"""Log lines about jobs and locks: levels, tracebacks and fields."""

import logging
import traceback

import pytest

from tenure import Reject, Tenure, current_job
from tenure.core.jobs.endings import handed_back
from tenure.observe import AttemptLost, Event, JobFailed
from tenure.observe.log_records import Raised, fields_of, write
from tenure.stores.contract import Store
from tenure.testing import ManualClock
from tests.contract.job_calls import claim, join
from tests.jobs.replicas import of_kind

FIELDS = ("job", "task", "queue", "attempt", "replica")


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG, "tenure")
    return caplog


def about(log: pytest.LogCaptureFixture, job: str) -> list[logging.LogRecord]:
    """Return the records about a job."""
    return [record for record in log.records if getattr(record, "job", None) == job]


def errors(log: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in log.records if record.levelno >= logging.ERROR]


def charge(order: int) -> None:
    raise ConnectionError(f"no card for {order}")


async def test_a_final_failure_is_logged_as_one_error_with_its_traceback(app: Tenure, clock, log):
    @app.task(queue="money", retry=0)
    async def pay(order: int) -> None:
        charge(order)

    async with app.worker(queues=["money"]):
        job = await pay.enqueue(7)
        await clock.advance(1)
    [record] = errors(log)
    kind, error, trace = record.exc_info
    assert (kind, str(error)) == (ConnectionError, "no card for 7")
    # From the handler on: frames of the worker do not help to find the error.
    assert [frame.name for frame in traceback.extract_tb(trace)] == ["pay", "charge"]
    shown = logging.Formatter().format(record)
    assert shown.count("Traceback") == 1
    assert "\n" not in record.getMessage()
    assert all(line.startswith("  | ") for line in shown.split("\n")[1:])
    assert tuple(getattr(record, name) for name in FIELDS[:4]) == (job.id, "pay", "money", 1)
    assert record.replica in (await job.refresh()).history[-1].replica


async def test_a_failure_of_a_stale_attempt_is_not_logged_as_an_error(
    app: Tenure, store, clock, log, seen
):
    """Another worker has the job now: its attempt decides whether the job fails."""

    @app.task(retry=None)
    async def pay(order: int) -> None:
        [taken] = await store.jobs.get([current_job().id])
        await store.jobs.settle([handed_back(taken, delay=60)])
        charge(order)

    async with app.worker():
        job = await pay.enqueue(7)
        await clock.advance(1)
        assert (await job.refresh()).state == "waiting"
    assert errors(log) == []
    assert [lost.job for lost in of_kind(seen, AttemptLost)] == [job.id]


async def test_a_failure_is_logged_once_stored_even_if_the_reply_is_lost(
    app: Tenure, clock, faults, log
):
    @app.task(retry=None)
    async def pay(order: int) -> None:
        faults.lose_reply("settle")
        charge(order)

    async with app.worker():
        job = await pay.enqueue(7)
        await clock.advance(10)
        assert (await job.refresh()).state == "failed"
        assert [record.job for record in errors(log)] == [job.id]


async def test_a_failure_that_never_reached_the_store_is_logged_as_a_warning(
    app: Tenure, clock, faults, log, monkeypatch
):
    monkeypatch.setattr("tenure.runtime.work.worker._SETTLE_SECONDS", 0.05)

    @app.task(retry=None)
    async def pay(order: int) -> None:
        faults.lose_request("settle", 10**6)
        charge(order)

    async with app.worker():
        job = await pay.enqueue(7)
        await clock.advance(1)
    assert errors(log) == []
    [warning] = [line for line in about(log, job.id) if line.exc_info]
    assert warning.levelname == "WARNING"
    assert "the store has not confirmed it" in warning.getMessage()


async def test_a_retry_is_logged_as_one_info_line(app: Tenure, clock, log):
    @app.task(retry=1)
    async def pay(order: int) -> None:
        charge(order)

    async with app.worker():
        job = await pay.enqueue(7)
        await clock.advance(0.2)
        [retry] = [line for line in about(log, job.id) if line.levelno > logging.DEBUG]
        assert (retry.levelname, retry.exc_info, retry.attempt) == ("INFO", None, 1)
        assert "no card for 7" in retry.getMessage()
        assert "retry_in" in retry.getMessage()
        assert "\n" not in logging.Formatter().format(retry)
        await clock.advance(2)
    assert [line.attempt for line in errors(log)] == [2]


async def test_a_success_is_logged_for_debugging_only(app: Tenure, clock, log):
    @app.task
    async def work() -> int:
        return 1

    async with app.worker():
        job = await work.enqueue()
        await clock.advance(1)
    records = about(log, job.id)
    assert {record.levelname for record in records} == {"DEBUG"}
    steps = ("enqueued", "started", "succeeded")
    for record, step in zip(records, steps, strict=True):
        assert f"{job.id} of task 'work': {step}" in record.getMessage()
        assert (record.task, record.queue) == ("work", "default")
    for record in records[1:]:
        assert (record.attempt, record.replica) == (1, (await job.refresh()).history[0].replica)
    assert not [line for line in log.records if line.levelno > logging.INFO]


async def test_a_rejected_job_is_logged_as_an_error_too(app: Tenure, clock, log):
    @app.task
    async def work() -> None:
        raise Reject("never\nERROR forged")

    async with app.worker():
        await work.enqueue()
        await clock.advance(1)
    [record] = errors(log)
    assert record.exc_info[0] is Reject
    lines = logging.Formatter().format(record).split("\n")
    assert all(line.startswith("  | ") for line in lines[1:])


@pytest.mark.parametrize("budget", [0, 1])
async def test_a_job_that_is_lost_for_good_is_logged_as_one_error(
    make, store: Store, clock: ManualClock, log, budget: int
):
    app = await make(loss_budget=budget)
    seen: list[Event] = []
    app.on_event(seen.append)

    @app.task
    async def work() -> None: ...

    job = await work.enqueue()
    for number in range(1 + budget):
        assert not errors(log)
        await join(store, f"ghost-{number}", ttl=1)
        await claim(store, f"ghost-{number}")
        clock.shift(2)
        await app.recover()
    await app.recover()
    [record] = errors(log)
    assert (record.job, record.task, record.queue) == (job.id, "work", "default")
    assert (record.attempt, record.replica) == (1 + budget, f"ghost-{budget}")
    assert "failed for good: it was lost with its worker" in record.getMessage()
    [event] = of_kind(seen, JobFailed)
    assert (event.job, event.task, event.losses) == (job.id, "work", 1 + budget)
    assert event.cause == "lost"


async def test_a_lost_job_that_cannot_be_looked_up_is_still_logged(
    make, store: Store, clock: ManualClock, log, faults
):
    app = await make(faulty=True, loss_budget=0)

    @app.task
    async def work() -> None: ...

    job = await work.enqueue()
    await join(store, "ghost", ttl=1)
    await claim(store, "ghost")
    clock.shift(2)
    faults.lose_request("get")
    await app.recover()
    [record] = errors(log)
    assert (record.job, record.replica) == (job.id, "ghost")


async def test_a_run_that_a_stop_interrupts_is_logged_as_one_error(make, clock: ManualClock, log):
    app = await make(grace=0)
    seen: list[Event] = []
    app.on_event(seen.append)

    @app.timer(every=1)
    async def tick() -> None:
        await clock.sleep(100)

    async with app.worker():
        await clock.advance(1.5)
    [record] = errors(log)
    assert (record.task, record.queue) == ("@tick", "@timers")
    assert "interrupted" in record.getMessage()
    assert [event.cause for event in of_kind(seen, JobFailed)] == ["interrupted"]


async def test_locks_are_logged_for_debugging_only(app: Tenure, log):
    async with app.lock("orders") as hold:
        assert (await app.with_lock("orders", list, ttl=30, wait=0)).skipped
    records = [line for line in log.records if getattr(line, "lock", None) == "orders"]
    assert {line.levelname for line in records} == {"DEBUG"}
    assert [(line.getMessage().split()[2].rstrip(":"), line.fence) for line in records] == [
        ("acquired", hold.fence),
        ("refused", None),
        ("released", hold.fence),
    ]


async def test_no_log_field_shadows_an_attribute_of_log_records(app: Tenure):
    @app.task
    async def work() -> None: ...

    job = await work.enqueue()
    own = vars(logging.makeLogRecord({})).keys() | {"message", "asctime", "taskName"}
    assert tuple(fields_of(job.record)) == FIELDS
    assert not own & {*FIELDS, "lock", "fence", "timer"}


def test_a_filter_that_raises_stops_nothing(log):
    def fail(record: logging.LogRecord) -> bool:
        raise ValueError(record)

    logger = logging.getLogger("tenure")
    logger.addFilter(fail)
    try:
        write(logging.ERROR, "text", {}, Raised(ValueError(), None, "ValueError"))
        write(logging.ERROR, "text", {})
    finally:
        logger.removeFilter(fail)
    assert not log.records


async def test_a_claim_that_was_handed_back_is_not_logged_as_an_attempt(app, store, clock, log):
    @app.task(retry=None)
    async def pay(order: int) -> None:
        charge(order)

    await pay.enqueue(7)
    await join(store, "ghost", ttl=1000)
    claimed = await store.jobs.claim("ghost", 1, ["default"], 1)
    back = handed_back(claimed.jobs[0])
    await store.jobs.settle([back])
    async with app.worker():
        await clock.advance(1)
    assert [line.attempt for line in errors(log)] == [1]


async def test_records_about_a_job_have_its_request_id_and_no_other_header(app: Tenure, clock, log):
    @app.task(retry=0)
    async def work() -> None:
        raise ValueError("bad")

    headers = {"x-request-id": "r-1\nforged", "tenant": "canary"}
    async with app.worker():
        job = await work.using(headers=headers).enqueue()
        plain = await work.enqueue()
        await clock.advance(1)
    [record] = [record for record in errors(log) if record.job == job.id]
    assert record.request_id == "r-1\\nforged"
    assert tuple(fields_of(job.record)) == (*FIELDS, "request_id")
    assert not any(hasattr(record, "request_id") for record in about(log, plain.id))
    assert "canary" not in str([vars(record) for record in log.records])
