"""Jobs for threads: the same promises as on a loop, on every store."""

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

import tenure
from tenure import (
    JobCancelled,
    JobFailed,
    JobNotFound,
    JobStateError,
    Reject,
    StoreError,
    UniqueMismatch,
    blocking,
    current_job,
)
from tenure.app import engine_of
from tests.rig.wait import wait_until

NOWHERE = "01890a5d-ac96-774b-bcce-000000000000"


@dataclass
class Receipt:
    user: int
    at: datetime


class Shop:
    """An app with a few tasks, and its blocking facade."""

    def __init__(self, url: str, namespace: str) -> None:
        self.app = tenure.Tenure(url, namespace=namespace, replica_ttl=1)
        self.go_on = threading.Event()

        @self.app.task
        async def send(user: int) -> Receipt:
            return Receipt(user, datetime(2026, 1, 2, tzinfo=UTC))

        @self.app.task(queue="slow", retention=0)
        def hold(minutes: int = 1) -> int:
            current_job().progress(0.5, "half")
            while not self.go_on.wait(0.02):
                current_job().check()
            return minutes

        @self.app.task(retry=None)
        async def refuse(why: str) -> None:
            raise Reject(why)

        self.send, self.hold, self.refuse = send, hold, refuse


@pytest.fixture
def shop(world_url: str, namespace: str) -> Iterator[Shop]:
    shop = Shop(world_url, namespace)
    yield shop
    shop.go_on.set()


@pytest.fixture
def sync(shop: Shop) -> Iterator[blocking.Tenure]:
    with blocking.Tenure(shop.app) as sync:
        yield sync


@contextmanager
def working(shop: Shop) -> Iterator[None]:
    """Run a worker in another thread, as if it were another process."""
    ready, loops = threading.Event(), []

    async def work() -> None:
        app, over = shop.app.clone(), asyncio.Event()
        async with app, app.worker(grace=5) as worker:
            loops.append((asyncio.get_running_loop(), over))
            await worker.ready()
            ready.set()
            await over.wait()

    thread = threading.Thread(target=lambda: asyncio.run(work()), daemon=True)
    thread.start()
    assert ready.wait(20)
    try:
        yield
    finally:
        [(loop, over)] = loops
        shop.go_on.set()
        loop.call_soon_threadsafe(over.set)
        thread.join(20)
        assert not thread.is_alive()


def test_a_result_has_the_type_that_the_task_returns(shop, sync):
    with working(shop):
        job = sync.enqueue(shop.send.request(7))
        assert job.is_new
        assert job.result(timeout=20) == Receipt(7, datetime(2026, 1, 2, tzinfo=UTC))
    assert job.state == "succeeded"
    assert job.is_finished
    assert (job.attempt, job.failures, job.losses) == (1, 0, 0)
    assert [entry.outcome for entry in job.history] == ["succeeded"]
    assert sync.job(job.id).result() == job.result()


def test_a_blocking_job_has_every_attribute_of_an_async_job(shop, sync):
    task = shop.send.using(queue="mail", priority=2, tags=["a", "b"], delay="1h")
    job = sync.enqueue(task.request(7)).refresh()
    names = {name for name in dir(tenure.Job) if not name.startswith("_")} | {"is_new"}
    assert names <= set(dir(job))
    inner = job._job
    for name in names - {"wait", "why", "result", "refresh", "cancel", "requeue"}:
        assert getattr(job, name) == getattr(inner, name)
    assert (job.task, job.queue, job.priority, job.tags) == ("send", "mail", 2, ("a", "b"))
    assert job.due - job.created > timedelta(minutes=59)
    assert repr(job) == f"<Job {job.id} of 'send', waiting>"


def test_the_facade_has_every_method_of_an_app():
    on_a_loop_only = {
        "around_attempt",
        "clone",
        "is_open",
        "run_timers",
        "run_worker",
        "schedule",
        "settings",
        "state",
        "task",
        "task_names",
        "timer",
        "worker",
    }
    public = {name for name in dir(tenure.Tenure) if not name.startswith("_")}
    assert public - on_a_loop_only <= set(dir(blocking.Tenure))


def test_a_timeout_ends_the_wait_and_not_the_job(shop, sync):
    job = sync.enqueue(shop.send.request(7))
    began = time.monotonic()
    with pytest.raises(TimeoutError, match="It waits: no worker is alive"):
        job.result(timeout=0.1)
    with pytest.raises(TimeoutError):
        job.wait("100ms")
    assert time.monotonic() - began < 5
    with working(shop):
        assert job.wait(20) is job
    assert job.state == "succeeded"


def test_a_failure_is_raised_and_can_be_requeued(shop, sync):
    with working(shop):
        job = sync.enqueue(shop.refuse.request("no such user"))
        with pytest.raises(JobFailed, match="no such user") as failed:
            job.result(timeout=20)
        assert failed.value.job == job.id
        assert "no such user" in job.error
        job.requeue()
        assert job.wait(20).attempt == 2
    with pytest.raises(JobFailed):
        job.result()


def test_an_unfinished_job_cannot_be_requeued(shop, sync):
    job = sync.enqueue(shop.send.request(7))
    with pytest.raises(JobStateError):
        job.requeue()


def test_a_waiting_job_can_be_cancelled(shop, sync):
    job = sync.enqueue(shop.send.request(7))
    assert job.cancel("not needed")
    assert (job.state, job.reason) == ("cancelled", "not needed")
    assert not job.cancel()
    with pytest.raises(JobCancelled, match="not needed"):
        job.result()


def test_a_running_job_shows_its_progress_and_can_be_cancelled(shop, sync):
    with working(shop):
        job = sync.enqueue(shop.hold.request())
        wait_until(lambda: job.refresh().progress == 0.5, 20, "it runs")
        assert (job.state, job.message) == ("running", "half")
        assert job.replica in {record.id for record in sync.replicas()}
        assert job.cancel("enough")
        assert job.wait(20).state == "cancelled"


def test_enqueue_many_returns_jobs_in_order(shop, sync):
    jobs = sync.enqueue_many(shop.send.request(number) for number in range(250))
    assert len({job.id for job in jobs}) == 250
    assert [sync.job(job.id).record.payload for job in jobs[:3]] == [
        b'{"user":0}',
        b'{"user":1}',
        b'{"user":2}',
    ]
    [counted] = sync.queues()
    assert (counted.queue, counted.waiting, counted.running) == ("default", 250, 0)


def test_a_unique_key_returns_the_same_job(shop, sync):
    once = shop.send.using(unique="user 7")
    first = sync.enqueue(once.request(7))
    again = sync.enqueue(once.request(7))
    assert (again.id, again.is_new) == (first.id, False)
    with pytest.raises(UniqueMismatch):
        sync.enqueue(once.request(8))
    same, other = sync.enqueue_many([once.request(7), once.request(8)], return_exceptions=True)
    assert isinstance(same, blocking.Job)
    assert same.id == first.id
    assert isinstance(other, UniqueMismatch)
    with pytest.raises(UniqueMismatch):
        sync.enqueue_many([once.request(8)])


def test_jobs_are_listed_in_pages(shop, sync):
    jobs = sync.enqueue_many(
        [shop.send.using(tags=["odd"] if number % 2 else []).request(number) for number in range(9)]
    )
    sync.enqueue(shop.hold.request())
    listed: list[str] = []
    page = sync.jobs(task="send", limit=4)
    assert isinstance(page[0], blocking.Job)
    while True:
        listed += [job.id for job in page]
        if page.cursor is None:
            break
        page = sync.jobs(task="send", limit=4, cursor=page.cursor)
    assert sorted(listed) == sorted(job.id for job in jobs)
    assert len(sync.jobs(tag="odd")) == 4
    assert len(sync.jobs(queue="slow", state="waiting")) == 1


def test_a_paused_queue_starts_nothing(shop, sync):
    with working(shop):
        sync.pause_queue("default")
        [counts] = sync.queues()
        assert (counts.queue, counts.paused_for) == ("default", float("inf"))
        job = sync.enqueue(shop.send.request(7))
        with pytest.raises(TimeoutError):
            job.wait(0.3)
        sync.resume_queue("default")
        assert job.wait(20).state == "succeeded"


@pytest.mark.usefixtures("forgotten_at_once")
def test_pruning_removes_jobs_after_their_retention(shop, sync):
    with working(shop):
        shop.go_on.set()
        job = sync.enqueue(shop.hold.request()).wait(20)
    assert sync.prune_jobs() == 1
    with pytest.raises(JobNotFound):
        job.refresh()


def test_a_job_can_be_deleted(shop, sync):
    job = sync.enqueue(shop.hold.request())
    sync.delete_job(job.id)
    with pytest.raises(JobNotFound):
        job.refresh()
    with working(shop):
        job = sync.enqueue(shop.hold.request())
        wait_until(lambda: job.refresh().state == "running")
        with pytest.raises(JobStateError, match="cancel it"):
            sync.delete_job(job.id)
        sync.delete_job(job.id, cancel=True, timeout=20)
    with pytest.raises(JobNotFound):
        job.refresh()
    for gone in (job.id, "nonsense"):
        with pytest.raises(JobNotFound):
            sync.delete_job(gone)


def test_recovering_takes_the_jobs_of_a_dead_replica(shop, sync):
    job = sync.enqueue(shop.send.request(7))
    store = engine_of(sync._app).store

    async def die() -> None:
        await store.jobs.beat(["dead"], ttl=0.1, meta={})
        claimed = await store.jobs.claim("dead", 1, ["default"], 1)
        assert [job.id for job in claimed.jobs] == [job.id]

    sync._portal().call(die())
    recovered = wait_until(sync.recover, 20, "its time is over")
    assert [(job.id, job.replica, job.state) for job in recovered] == [(job.id, "dead", "waiting")]
    assert (job.refresh().losses, sync.replicas()) == (1, [])


def test_many_threads_share_one_app(shop, sync):
    results: list[int] = []

    def ask(number: int) -> None:
        results.append(sync.enqueue(shop.send.request(number)).result(20).user)

    with working(shop):
        threads = [threading.Thread(target=ask, args=[number]) for number in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    assert sorted(results) == list(range(20))


def test_an_app_on_the_same_url_sees_the_same_jobs(shop, sync, world_url, namespace):
    with working(shop):
        job = sync.enqueue(shop.send.request(7)).wait(20)
    with blocking.Tenure(world_url, namespace=namespace) as stranger:
        # It has no task of that name, so the result is the plain JSON value.
        assert stranger.job(job.id).result() == {"user": 7, "at": "2026-01-02T00:00:00Z"}


def test_an_unknown_job_is_not_found(sync):
    for unknown in (NOWHERE, "nonsense"):
        with pytest.raises(JobNotFound):
            sync.job(unknown)


def test_a_closed_app_raises_an_error(shop):
    with blocking.Tenure(shop.app) as sync:
        job = sync.enqueue(shop.send.request(7))
    with pytest.raises(StoreError, match="is closed"):
        job.refresh()
    with pytest.raises(StoreError, match="not open"):
        sync.enqueue(shop.send.request(8))


def test_a_thread_that_waits_for_a_job_is_freed_when_the_app_is_closed(shop):
    errors: list[str] = []
    with blocking.Tenure(shop.app) as sync:
        job = sync.enqueue(shop.send.request(7))

        def wait() -> None:
            try:
                job.result()
            except StoreError as error:
                errors.append(str(error))

        thread = threading.Thread(target=wait, daemon=True)
        thread.start()
        time.sleep(0.1)
    thread.join(20)
    assert errors
