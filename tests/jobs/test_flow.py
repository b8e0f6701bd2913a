"""Many jobs on several workers, on every store: each runs once while workers come and go."""

import asyncio
from collections import Counter

import pytest

from tenure import Backoff, JobFailed, Tenure, current_job
from tenure.observe import AttemptLost, JobsRecovered, ReplicaLost
from tests.jobs.replicas import of_kind

WRONG = AttemptLost | JobsRecovered | ReplicaLost


class Service:
    """Replicas of one service in one process, and the jobs that they ran."""

    def __init__(self) -> None:
        self.runs: Counter[int] = Counter()
        self.events: list = []

    def declare(self, app: Tenure):
        app.on_event(self.events.append)

        @app.task
        async def work(n: int) -> int:
            await asyncio.sleep(n % 7 / 1000)
            self.runs[n] += 1
            return 2 * n

        return work


async def test_two_workers_run_each_of_many_jobs_once(real_make):
    service = Service()
    apps = [await real_make() for _ in range(2)]
    tasks = [service.declare(app) for app in apps]
    async with apps[0].worker(concurrency=20), apps[1].worker(concurrency=20):
        jobs = await apps[0].enqueue_many(tasks[0].request(n) for n in range(600))
        assert [await job.result(30) for job in jobs] == [2 * n for n in range(600)]
    assert service.runs == Counter(range(600))
    assert {(job.attempt, job.failures, job.losses) for job in jobs} == {(1, 0, 0)}
    assert not of_kind(service.events, WRONG)
    assert await apps[0].queues() == []
    assert await apps[0].replicas() == []


async def test_rolling_restarts_lose_no_job_and_count_no_failure(real_make):
    service = Service()
    apps = [await real_make(grace=0) for _ in range(2)]
    tasks = [service.declare(app) for app in apps]
    jobs = await apps[0].enqueue_many(tasks[0].request(n) for n in range(400))

    async def restart(app: Tenure) -> None:
        while await app.queues():
            async with app.worker(concurrency=10):
                await asyncio.sleep(0.15)

    async with asyncio.timeout(40):
        await asyncio.gather(*(restart(app) for app in apps))
    for job in jobs:
        await job.refresh()
        assert (job.state, job.failures, job.losses) == ("succeeded", 0, 0)
    # Interrupted before it counted, or counted and settled: never both.
    assert service.runs == Counter(range(400))
    assert not of_kind(service.events, WRONG)


async def test_a_job_lives_through_retries_failure_and_requeue(real_make):
    app = await real_make(retention=60)
    seen = []

    @app.task(retry=Backoff(max_attempts=3, base=0))
    async def climb(camp: int) -> str:
        job = current_job()
        seen.append((job.attempt, job.failures, job.checkpoint))
        await job.save({"camp": camp + len(seen)})
        job.progress(0.5, "half way")
        if len(seen) < 5:
            raise ValueError(f"storm {len(seen)}")
        return "on top"

    async with app.worker():
        job = await climb.using(unique="everest", tags=["high"]).enqueue(1)
        with pytest.raises(JobFailed, match="storm 3"):
            await job.result(20)
        assert (job.attempt, job.failures, job.reason) == (3, 3, "error")
        assert [line.outcome for line in job.history] == ["retry", "retry", "failed"]
        assert "storm 3" in job.trace
        await job.requeue()
        assert await job.result(20) == "on top"
        await job.refresh()
    assert seen == [
        (1, 0, None),
        (2, 1, {"camp": 2}),
        (3, 2, {"camp": 3}),
        (4, 0, {"camp": 4}),
        (5, 1, {"camp": 5}),
    ]
    assert (job.attempt, job.failures, job.error) == (5, 1, None)
    assert [listed.id for listed in await app.jobs(tag="high", state="succeeded")] == [job.id]
    assert (await climb.using(unique="everest").enqueue(9)).is_new
