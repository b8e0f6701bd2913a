"""Random faults in virtual time: calls get lost, workers come and go, jobs are cancelled.

As long as no replica is cut off for a ttl, no job may be lost or run twice: every job ends exactly
once, without a counted loss. A replica that is cut off for longer is taken for dead, and still
every job ends once.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from typing import Any

import pytest

from tenure import Job, StoreUnavailable, Tenure, current_job
from tenure.observe import AttemptLost, JobsRecovered, ReplicaLost
from tenure.stores.connect import connect
from tenure.testing import Faults, FaultyStore, ManualClock
from tests.jobs.replicas import of_kind

CALLS = ("insert", "claim", "settle", "beat", "join", "orphans", "note", "get", "cancel")
APPS = 3
JOBS = 80


class Weather:
    """One seeded run."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.is_over = False
        self.clock = ManualClock(seed=seed)
        self.faults = [Faults() for _ in range(APPS)]
        self.ended: Counter[str] = Counter()
        self.begun: Counter[str] = Counter()
        self.events: list = []
        self.jobs: list = []
        self.cancelled: set[str] = set()

    def declare(self, app: Tenure):
        app.on_event(self.events.append)

        @app.task
        async def work(seconds: float) -> float:
            job = current_job()
            self.begun[job.id] += 1
            job.progress(0.5)
            await self.clock.sleep(seconds)
            self.ended[job.id] += 1
            return seconds

        return work

    async def blow(self) -> None:
        """Lose some calls of one replica for less than a ttl."""
        faults = self.dice.choice(self.faults)
        lose = self.dice.choice([faults.lose_request, faults.lose_reply])
        lose(self.dice.choice(CALLS), times=self.dice.randint(1, 4))
        await self.clock.sleep(self.dice.uniform(0.05, 0.8))

    async def ask_for_jobs(self, apps: list[Tenure], tasks: list) -> None:
        while len(self.jobs) < JOBS:
            task = self.dice.choice(tasks)
            length = self.dice.choice([0.0, 0.0, 0.01, 0.5, 3.0, 15.0])
            task = task.using(delay=self.dice.choice([0, 0, 2]))
            with suppress(StoreUnavailable):
                self.jobs.append(await task.enqueue(length))
            if self.jobs and self.dice.random() < 0.15:
                job = self.dice.choice(self.jobs)
                self.cancelled.add(job.id)
                with suppress(StoreUnavailable):
                    await job.cancel("by the weather")
            await self.clock.sleep(self.dice.uniform(0, 0.6))

    async def work_in_shifts(self, app: Tenure) -> None:
        while True:
            grace = self.dice.choice([0, 1, 10])
            worker = app.worker(concurrency=self.dice.choice([1, 3, 20]), grace=grace)
            async with worker:
                await self.clock.sleep(1000 if self.is_over else self.dice.uniform(1, 20))

    async def cut_off(self) -> None:
        """Cut one replica off for up to three ttls."""
        faults = self.dice.choice(self.faults)
        for call in CALLS:
            faults.lose_request(call, times=1_000_000)
        await self.clock.sleep(self.dice.uniform(5, 30))
        faults.heal()
        await self.clock.sleep(self.dice.uniform(1, 20))

    async def run(self, blow: Callable[[], Awaitable[None]], **settings: object) -> list[Job[Any]]:
        """Inject faults until all jobs are enqueued; return all jobs when they have ended."""
        store = connect("memory://", namespace="storm", clock=self.clock)
        async with AsyncExitStack() as stack:
            apps = [
                await stack.enter_async_context(
                    Tenure(FaultyStore(store.clone(), faults), **settings)
                )
                for faults in self.faults
            ]
            tasks = [self.declare(app) for app in apps]
            working = [asyncio.ensure_future(self.work_in_shifts(app)) for app in apps]
            asking = asyncio.ensure_future(self.ask_for_jobs(apps, tasks))
            while not asking.done():
                blowing = asyncio.ensure_future(blow())
                while not blowing.done():
                    await self.clock.advance(0.5)
            await asking
            self.is_over = True
            for faults in self.faults:
                faults.heal()
            for _ in range(60):
                await self.clock.advance(20)
                if not await apps[0].queues():
                    break
            everything = [job async for job in every(apps[0])]
            for shift in working:
                shift.cancel()
            await self.clock.advance(30)
            await asyncio.wait(working)
        assert {job.id for job in self.jobs} <= {job.id for job in everything}
        return everything


@pytest.mark.parametrize("seed", range(12))
async def test_every_job_ends_exactly_once(seed: int):
    weather = Weather(seed)
    # An insert that was given up may have happened; such a job runs too.
    for job in await weather.run(weather.blow):
        assert job.state in ("succeeded", "cancelled"), job
        assert (job.failures, job.losses) == (0, 0)
        assert job.state == "succeeded" or job.id in weather.cancelled
        assert weather.ended[job.id] <= 1
        assert weather.ended[job.id] == 1 or job.state == "cancelled"
        assert weather.begun[job.id] <= job.attempt
    assert not of_kind(weather.events, ReplicaLost | JobsRecovered)
    # A hand-back that arrived is reported as lost if, before its repeat, another attempt has
    # ended: nothing has happened to the job.
    assert {lost.outcome for lost in of_kind(weather.events, AttemptLost)} <= {"handed back"}


async def test_every_job_ends_once_although_living_replicas_are_taken_for_dead():
    taken_over = seed = 0
    # Recovery waits for a while in each new worker, so a seed may have none.
    while seed < 5 or (taken_over == 0 and seed < 30):
        weather = Weather(seed)
        for job in await weather.run(weather.cut_off, loss_budget=100):
            assert job.state in ("succeeded", "cancelled"), job
            assert job.failures == 0
            begun = [line for line in job.history if line.outcome not in ("lost", "handed back")]
            ends = [line.outcome for line in begun]
            assert ends == ["succeeded"] or job.id in weather.cancelled
            assert weather.ended[job.id] >= 1 or job.state == "cancelled"
            assert weather.begun[job.id] <= job.attempt
        taken_over += len(of_kind(weather.events, JobsRecovered))
        seed += 1
    assert taken_over > 0


async def every(app: Tenure):
    cursor = None
    while True:
        page = await app.jobs(limit=500, cursor=cursor)
        for job in page:
            yield job
        if (cursor := page.cursor) is None:
            return
