"""The jobs that a worker claims, starts, keeps for a moment and hands back."""

import asyncio
from contextvars import ContextVar

import pytest

from tenure import ConfigError, StoreError, Tenure, current_job
from tenure.core.worker_info import Serving, read_serving
from tenure.observe import TaskUnknown
from tenure.runtime.timers.ticker import Ticker
from tenure.runtime.work.worker import Worker
from tests.jobs.replicas import of_kind, until_idle
from tests.rig.waiting import wait_until_async


class Gate:
    """Handlers wait here until the test lets them through."""

    def __init__(self) -> None:
        self.arrived: list[object] = []
        self.open = asyncio.Event()

    async def pass_through(self, name: object = None) -> None:
        self.arrived.append(name)
        await self.open.wait()


@pytest.fixture
def gate() -> Gate:
    return Gate()


async def test_a_job_runs_and_returns_its_result(app: Tenure, clock):
    @app.task
    async def double(n: int) -> int:
        return 2 * n

    async with app.worker():
        job = await double.enqueue(21)
        await clock.advance(0.01)
        assert await job.result(timeout=1) == 42
    assert (job.state, job.attempt, job.failures, job.losses) == ("succeeded", 1, 0, 0)
    assert await app.replicas() == []


async def test_a_worker_claims_no_more_than_it_can_start(app: Tenure, clock, gate):
    @app.task
    async def hold(n: int) -> None:
        await gate.pass_through(n)

    await app.enqueue_many(hold.request(n) for n in range(10))
    async with app.worker(concurrency=3):
        await clock.advance(5)
        assert len(gate.arrived) == 3
        [count] = await app.queues()
        assert (count.running, count.waiting) == (3, 7)
        gate.open.set()
        await clock.advance(5)
    assert sorted(gate.arrived) == list(range(10))
    assert await app.queues() == []


async def test_quick_jobs_are_claimed_ahead_in_large_batches(app: Tenure, clock, faults):
    ran = []

    @app.task
    async def quick(n: int) -> None:
        ran.append(n)

    await app.enqueue_many(quick.request(n) for n in range(400))
    async with app.worker(concurrency=1):
        await until_idle(app, clock)
    assert len(ran) == 400
    assert faults.calls["claim"] < 40


async def make_it_quick(app: Tenure, clock) -> None:
    """Run jobs that take no time, so that the worker claims ahead."""

    @app.task
    async def quick() -> None: ...

    await app.enqueue_many(quick.request() for _ in range(20))
    await until_idle(app, clock)


async def test_jobs_that_cannot_start_within_a_second_go_back_uncounted(app: Tenure, clock, gate):
    @app.task
    async def hold(n: int) -> None:
        await gate.pass_through(n)

    async with app.worker(concurrency=1):
        await make_it_quick(app, clock)
        jobs = await app.enqueue_many(hold.request(n) for n in range(4))
        await clock.advance(0.1)
        assert (await app.queues())[0].running == 4
        await clock.advance(1.5)
        [count] = await app.queues()
        assert (count.running, count.waiting) == (1, 3)
        for job in jobs[1:]:
            await job.refresh()
            assert (job.state, job.failures, job.losses) == ("waiting", 0, 0)
        gate.open.set()
        await clock.advance(10)
    assert sorted(gate.arrived) == [0, 1, 2, 3]


async def test_context_variables_of_one_job_are_not_seen_by_the_next(app: Tenure, clock):
    tenant: ContextVar[str] = ContextVar("tenant", default="nobody")
    tenants = []

    @app.task
    async def serve(name: str) -> None:
        tenants.append(tenant.get())
        tenant.set(name)

    tenant.set("the app's own")
    async with app.worker(concurrency=1):
        await app.enqueue_many(serve.request(str(n)) for n in range(30))
        await until_idle(app, clock)
    assert tenants == ["the app's own"] * 30


async def test_priorities_come_first_then_the_order_of_queues(app: Tenure, clock):
    ran = []

    @app.task
    async def note(name: str) -> None:
        ran.append(name)

    await note.using(queue="low").enqueue("low queue")
    await note.using(queue="high").enqueue("high queue, late")
    await note.using(queue="high", priority=0).enqueue("high queue, first")
    await note.using(queue="other").enqueue("nobody's")
    async with app.worker(queues=["high", "low"], concurrency=1):
        await clock.advance(1)
    assert ran == ["high queue, first", "high queue, late", "low queue"]


async def test_by_default_a_worker_serves_the_queues_of_its_tasks(app: Tenure, clock):
    ran = []

    @app.task(queue="mail")
    async def mail() -> None:
        ran.append("mail")

    @app.task
    async def plain() -> None:
        ran.append("plain")

    await mail.enqueue()
    await plain.enqueue()
    async with app.worker():
        await clock.advance(1)
    assert sorted(ran) == ["mail", "plain"]


async def test_a_delayed_job_starts_when_it_is_due_and_not_earlier(app: Tenure, clock):
    @app.task
    async def work() -> None: ...

    async with app.worker():
        jobs = [await work.using(delay=delay).enqueue() for delay in (3, 60)]
        await clock.advance(2.9)
        assert (await jobs[0].refresh()).state == "waiting"
        await clock.advance(0.2)
        assert (await jobs[0].refresh()).state == "succeeded"
        await clock.advance(56.8)
        assert (await jobs[1].refresh()).state == "waiting"
        await clock.advance(0.2)
        assert (await jobs[1].refresh()).state == "succeeded"


async def test_an_unknown_task_is_handed_back_with_growing_delays_and_reported(
    app: Tenure, make, clock, seen
):
    other = await make()

    @other.task
    async def newer() -> str:
        return "done"

    job = await newer.enqueue()
    async with app.worker():
        await clock.advance(30)
        [first, *later] = of_kind(seen, TaskUnknown)
        assert (first.task, first.job, first.attempt) == ("newer", job.id, 1)
        assert 2 <= len(later) <= 8
        await job.refresh()
        assert (job.state, job.failures, job.losses) == ("waiting", 0, 0)
        await clock.advance(600)
        rarely = len(of_kind(seen, TaskUnknown))
        assert rarely <= 15
    async with other.worker():
        await clock.advance(301)
        assert await job.result() == "done"


async def test_a_task_declared_while_a_worker_runs_is_known(app: Tenure, clock):
    async with app.worker(queues=["default"]):
        await clock.advance(1)

        @app.task
        async def late() -> int:
            return 1

        job = await late.enqueue()
        await clock.advance(1)
        assert await job.result() == 1


async def test_a_paused_queue_starts_nothing_until_it_is_resumed(app: Tenure, clock):
    @app.task
    async def work() -> None: ...

    await app.pause_queue("default")
    async with app.worker():
        job = await work.enqueue()
        await clock.advance(20)
        assert (await job.refresh()).state == "waiting"
        await app.resume_queue("default")
        await clock.advance(0.01)
        assert (await job.refresh()).state == "succeeded"
        await app.pause_queue("default", until=7)
        job = await work.enqueue()
        await clock.advance(6.9)
        assert (await job.refresh()).state == "waiting"
        await clock.advance(5.2)
        assert (await job.refresh()).state == "succeeded"


async def test_two_workers_of_one_app_share_the_work(app: Tenure, clock, gate):
    @app.task
    async def hold(n: int) -> None:
        await gate.pass_through(current_job().queue)

    await app.enqueue_many(hold.request(n) for n in range(4))
    async with app.worker(concurrency=2) as first, app.worker(concurrency=2) as second:
        await clock.advance(1)
        assert len(gate.arrived) == 4
        assert first.replica != second.replica
        assert {record.held for record in await app.replicas()} == {2}
        gate.open.set()
        await clock.advance(1)


async def test_ready_returns_when_the_worker_has_joined(app: Tenure, clock, faults):
    faults.lose_request("join", times=3)
    async with app.worker() as worker:
        ready = asyncio.ensure_future(worker.ready())
        await clock.advance(0)
        assert worker.replica is None
        assert not ready.done()
        await clock.advance(2)
        await ready
        [record] = await app.replicas()
        assert record.id == worker.replica
        assert record.meta["pid"].isdecimal()


async def test_the_record_of_a_worker_names_its_queues_and_timers(app: Tenure, clock):
    @app.task(queue="mail")
    async def mail() -> None: ...

    @app.timer(every="1h")
    async def sweep() -> None: ...

    async with app.worker(concurrency=7, timer_concurrency=3):
        await clock.advance(0)
        [record] = await app.replicas()
    assert read_serving(record.meta) == Serving(
        queues=("mail",), slots=7, timers=("sweep",), timer_slots=3
    )


@pytest.mark.parametrize("concurrency", [0, -1, 10_001])
async def test_an_invalid_concurrency_is_refused(app: Tenure, concurrency):
    with pytest.raises(ConfigError, match="concurrency must be from 1"):
        app.worker(concurrency=concurrency)


@pytest.mark.parametrize("queues", ["mail", [], [""], [7]])
async def test_invalid_queues_are_refused(app: Tenure, queues):
    with pytest.raises(ConfigError, match="queue"):
        app.worker(queues=queues)


async def test_a_worker_needs_an_open_app():
    closed = Tenure("memory://")
    with pytest.raises(StoreError, match="not open"):
        async with closed.worker():
            pytest.fail("it has no store to work on")


@pytest.mark.parametrize("part", ["_claim_until_stopped", "_work.ticker.run"])
async def test_an_unexpected_error_ends_the_worker_and_is_raised(app, clock, monkeypatch, part):
    async def fail(_: object) -> None:
        raise ZeroDivisionError

    owner = {"_claim_until_stopped": Worker, "_work.ticker.run": Ticker}[part]
    monkeypatch.setattr(owner, part.rpartition(".")[2], fail)
    before = asyncio.all_tasks()
    ended = asyncio.Event()

    async def work() -> None:
        async with app.worker():
            await ended.wait()

    working = asyncio.create_task(work())
    await clock.advance(60)
    ended.set()
    await clock.advance(60)
    with pytest.raises(ZeroDivisionError):
        await asyncio.wait_for(working, 10)
    # No task is left that waits for a stop.
    await wait_until_async(lambda: asyncio.all_tasks() <= before)
