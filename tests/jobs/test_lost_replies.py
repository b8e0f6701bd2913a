"""Lost requests and replies: no duplicate, no orphan, no false loss, on every store."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tenure import Backoff, StoreFull, StoreUnavailable, Tenure, current_job
from tenure.observe import AttemptLost, JobsRecovered, ReplicaLost
from tenure.testing import FaultyStore
from tests.jobs.replicas import of_kind
from tests.rig.waiting import wait_until_async

TOLD_FULL = "It is full. Nothing was stored."
LOST = pytest.mark.parametrize("lost", ["lose_reply", "lose_request"])
WRONG = AttemptLost | JobsRecovered | ReplicaLost


@pytest.fixture
def events(real_app) -> list:
    events: list = []
    real_app.on_event(events.append)
    return events


@pytest.fixture
def runs(real_app) -> list[int]:
    runs: list[int] = []

    @real_app.task(retry=Backoff(max_attempts=3, base=0))
    async def work(n: int = 0, fails: bool = False) -> int:
        runs.append(n)
        if fails and current_job().attempt == 1:
            raise ValueError
        return n

    real_app.work = work
    return runs


@LOST
async def test_a_lost_insert_is_repeated_and_inserts_once(real_app, faults, runs, events, lost):
    getattr(faults, lost)("insert", times=2)
    async with real_app.worker():
        first = await real_app.work.enqueue(1)
        getattr(faults, lost)("insert")
        many = await real_app.enqueue_many(real_app.work.request(n) for n in range(2, 250))
        assert await first.result(10) == 1
        for job in many:
            await job.wait(10)
    assert sorted(runs) == list(range(1, 250))
    assert len(await real_app.jobs(limit=1000)) == 249


@LOST
async def test_a_job_shows_when_it_was_created_by_the_store(real_app, faults, runs, lost):
    task = real_app.work.using(delay="1h")
    first = await task.enqueue(1)
    getattr(faults, lost)("insert", times=2)
    again = await task.enqueue(2)
    many = await real_app.enqueue_many(task.request(number) for number in range(3))
    for job in (first, again, *many):
        times = job.created, job.due
        await job.refresh()
        assert (job.created, job.due) == times


@LOST
async def test_a_repeated_insert_with_a_unique_key_still_counts_as_new(
    real_app, faults, runs, lost
):
    getattr(faults, lost)("insert", times=2)
    job = await real_app.work.using(unique="k").enqueue(1)
    assert job.is_new
    again = await real_app.work.using(unique="k").enqueue(1)
    assert (again.is_new, again.id) == (False, job.id)


class FullAfterAnInsert(FaultyStore):
    """A store that is full after its first insert."""

    async def _pass(self, call: str, send: Callable[[], Awaitable[Any]]) -> Any:
        if call == "insert" and self.faults.calls["insert"]:
            raise StoreFull(TOLD_FULL)
        return await super()._pass(call, send)


async def test_a_store_that_fills_up_after_a_lost_reply_leaves_the_insert_in_doubt(
    real_world, faults
):
    async with Tenure(FullAfterAnInsert(real_world.unopened(), faults)) as app:
        work = app.task(lambda: None, name="work")
        faults.lose_reply("insert")
        with pytest.raises(StoreUnavailable, match=r"may or may not be stored") as caught:
            await work.enqueue()
        assert not isinstance(caught.value, StoreFull)
        assert TOLD_FULL not in str(caught.value)
        assert str(caught.value.__cause__) == TOLD_FULL
        assert len(await app.jobs()) == 1
        with pytest.raises(StoreFull, match=TOLD_FULL):
            await work.enqueue()


async def test_an_insert_without_an_answer_raises_an_error(real_app, faults, runs):
    faults.lose_request("insert", times=100)
    with pytest.raises(StoreUnavailable):
        await real_app.work.enqueue(1)
    assert faults.calls["insert"] == 3
    faults.heal()
    assert await real_app.jobs() == []


@LOST
async def test_a_lost_claim_is_repeated_and_runs_each_job_once(
    real_app, faults, runs, events, lost
):
    jobs = await real_app.enqueue_many(real_app.work.request(n) for n in range(5))
    getattr(faults, lost)("claim", times=2)
    async with real_app.worker(concurrency=2):
        for job in jobs:
            await job.wait(10)
            getattr(faults, lost)("claim")
    assert sorted(runs) == list(range(5))
    assert [job.record.attempt for job in jobs] == [1] * 5
    assert not of_kind(events, WRONG)


@LOST
async def test_a_lost_settlement_is_repeated_and_settles_once(real_app, faults, runs, events, lost):
    getattr(faults, lost)("settle", times=2)
    async with real_app.worker():
        job = await real_app.work.enqueue(1)
        assert await job.result(10) == 1
        getattr(faults, lost)("settle", times=2)
        failing = await real_app.work.enqueue(2, fails=True)
        assert await failing.result(10) == 2
        assert (failing.attempt, failing.failures) == (2, 1)
    assert runs == [1, 2, 2]
    assert not of_kind(events, WRONG)


@LOST
async def test_a_lost_heartbeat_counts_no_loss(real_app, faults, runs, events, lost):
    @real_app.task
    async def long() -> str:
        await asyncio.sleep(2.5)
        return "undisturbed"

    async with real_app.worker() as worker:
        job = await long.enqueue()
        await worker.ready()
        first = worker.replica
        for _ in range(5):
            getattr(faults, lost)("beat")
            at = faults.calls["beat"]
            await wait_until_async(lambda at=at: faults.calls["beat"] >= at + 2, timeout=10)
        assert await job.result(10) == "undisturbed"
        assert worker.replica == first
    assert (job.attempt, job.losses) == (1, 0)
    assert not of_kind(events, WRONG)


@LOST
async def test_a_lost_join_is_repeated_and_makes_one_record(real_app, faults, runs, lost):
    getattr(faults, lost)("join", times=2)
    async with real_app.worker() as worker:
        await asyncio.wait_for(worker.ready(), 10)
        assert [record.id for record in await real_app.replicas()] == [worker.replica]
        assert await (await real_app.work.enqueue(1)).result(10) == 1


@LOST
async def test_a_lost_leave_is_repeated_and_leaves_nothing(real_app, faults, runs, events, lost):
    go_on = asyncio.Event()

    @real_app.task
    async def long() -> None:
        await go_on.wait()

    async with real_app.worker(grace=0):
        job = await long.enqueue()
        await wait_until_async(lambda: has_state(job, "running"))
        getattr(faults, lost)("settle")
        getattr(faults, lost)("orphans")
    assert await real_app.replicas() == []
    await job.refresh()
    assert (job.state, job.failures, job.losses) == ("waiting", 0, 0)
    assert not of_kind(events, WRONG)


async def test_jobs_of_a_claim_without_a_reply_go_back_when_the_worker_leaves(
    app, clock, faults, store, seen
):
    @app.task
    async def work() -> None: ...

    worker = await app.worker(grace=0).__aenter__()
    await clock.advance(1)
    faults.lose_reply("claim", times=1000)
    job = await work.enqueue()
    await clock.advance(1)
    assert (await job.refresh()).state == "running"
    left = asyncio.ensure_future(worker.__aexit__(None, None, None))
    await clock.advance(1)
    await left
    await job.refresh()
    assert (job.state, job.failures, job.losses) == ("waiting", 0, 0)


async def has_state(job, state: str) -> bool:
    return (await job.refresh()).state == state


async def test_a_worker_that_ends_before_its_join_is_answered_leaves_no_record(real_app, faults):
    faults.lose_reply("join", times=1000)
    async with real_app.worker():
        await wait_until_async(lambda: faults.calls["join"] > 1)
    faults.heal()
    assert await real_app.replicas() == []
