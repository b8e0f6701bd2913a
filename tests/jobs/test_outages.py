"""Outages of the store: handlers keep running, the log stays short, work resumes by itself."""

import logging

import pytest

from tenure import Tenure
from tenure.observe import AttemptLost, ReplicaLost, StoreFailing, StoreRestored
from tests.jobs.replicas import of_kind

CALLS = ("insert", "claim", "settle", "beat", "join", "orphans", "note", "get", "replicas")


def away(faults) -> None:
    for call in CALLS:
        faults.lose_request(call, times=1_000_000)


@pytest.mark.parametrize("seconds", [5, 60, 3600])
async def test_handlers_run_through_an_outage(app: Tenure, clock, faults, seen, caplog, seconds):
    caplog.set_level(logging.INFO, "tenure")
    ended = []

    @app.task
    async def work(n: float) -> float:
        await clock.sleep(n)
        ended.append(n)
        return n

    async with app.worker() as worker:
        jobs = [await work.enqueue(n) for n in (1.0, seconds / 2, seconds + 20.0)]
        await clock.advance(0.5)
        replica = worker.replica
        caplog.clear()
        away(faults)
        await clock.advance(seconds)
        assert len(caplog.records) <= 10
        assert ended == [1.0, seconds / 2]
        faults.heal()
        await clock.advance(1.1)
        assert [await job.result(0) for job in jobs[:2]] == [1.0, seconds / 2]
        another = await work.enqueue(0)
        await clock.advance(1)
        assert await another.result(0) == 0
        await clock.advance(25)
        assert await jobs[2].result(0) == seconds + 20.0
        assert worker.replica == replica
        assert {(job.attempt, job.losses) for job in jobs} == {(1, 0)}
    assert not of_kind(seen, ReplicaLost | AttemptLost)
    [failing], [restored] = of_kind(seen, StoreFailing), of_kind(seen, StoreRestored)
    assert restored.call == failing.call


async def test_all_replicas_survive_a_common_outage(make, clock, faults):
    """All replicas have expired when the store is back; none takes jobs from another."""
    apps = [await make(faulty=True) for _ in range(3)]
    events: list = []
    starts = []

    async def work() -> None:
        starts.append(1)
        await clock.sleep(60)

    tasks = []
    for app in apps:
        app.on_event(events.append)
        tasks.append(app.task(name="work")(work))
    async with apps[0].worker(concurrency=2), apps[1].worker(concurrency=2), apps[2].worker():
        jobs = await apps[0].enqueue_many(tasks[0].request() for _ in range(6))
        await clock.advance(15)
        away(faults)
        await clock.advance(30)
        faults.heal()
        await clock.advance(30)
        assert {(await job.refresh()).state for job in jobs} == {"succeeded"}
    assert len(starts) == 6
    assert not of_kind(events, ReplicaLost | AttemptLost)


async def test_no_jobs_are_claimed_while_unsettled_results_pile_up(
    app: Tenure, clock, faults, monkeypatch
):
    monkeypatch.setattr("tenure.runtime.attempts.backlog._UNSETTLED_MAX", 20)
    ran = []

    @app.task
    async def work(n: int) -> None:
        ran.append(n)

    await app.enqueue_many(work.request(n) for n in range(1000))
    faults.lose_request("settle", times=1_000_000)
    async with app.worker(concurrency=10):
        await clock.advance(30)
        piled = len(ran)
        assert piled <= 20 + 2 * 200
        await clock.advance(30)
        assert len(ran) == piled
        faults.heal()
        for _ in range(40):
            await clock.advance(0.1)
        assert len(ran) == 1000
    assert await app.queues() == []


async def test_a_worker_that_starts_while_the_store_is_away_joins_when_it_is_back(
    app: Tenure, clock, faults
):
    @app.task
    async def work() -> int:
        return 1

    job = await work.enqueue()
    away(faults)
    async with app.worker():
        await clock.advance(20)
        faults.heal()
        await clock.advance(2)
        assert await job.result(0) == 1


async def test_a_worker_rejoins_a_store_that_came_back_empty(app: Tenure, store, clock, seen):
    """Like a Redis without persistence: the jobs are gone, the worker still runs."""
    cancelled = []

    @app.task
    async def work(seconds: int) -> int:
        try:
            await clock.sleep(seconds)
        finally:
            cancelled.append(seconds)
        return seconds

    async with app.worker() as worker:
        await work.enqueue(1000)
        await clock.advance(1)
        data = store.data.jobs
        data.jobs.clear()
        data.replicas.clear()
        before = worker.replica
        await clock.advance(5)
        assert cancelled == [1000]
        assert worker.replica not in (None, before)
        job = await work.enqueue(1)
        await clock.advance(6)
        assert await job.result(0) == 1
    assert len(of_kind(seen, ReplicaLost)) == 1


async def test_a_worker_does_not_miss_a_job_whose_end_is_on_its_way(app, clock, faults):
    """Its heartbeats report one job more than run there."""

    @app.task
    async def work() -> str:
        return "done"

    async with app.worker():
        await clock.advance(1)
        faults.lose_request("settle", times=1_000_000)
        job = await work.enqueue()
        await clock.advance(30)  # some beats
        assert faults.calls["find"] == 0
        faults.heal()
        await clock.advance(2)
        assert await job.result(0) == "done"
