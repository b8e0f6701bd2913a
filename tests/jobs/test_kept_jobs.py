"""A finished job is kept long enough for every repeat of its insert to find it."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tenure import Retention, StoreUnavailable, Tenure, Unique, blocking
from tenure.core.jobs.records import Inserted
from tenure.testing import FaultyStore, ManualClock
from tests.contract.worlds import World
from tests.rig.sizes import SIZE
from tests.rig.waiting import wait_until_async


class LateReplies(FaultyStore):
    """Loses the first reply to an insert, after its jobs have run and jobs were pruned."""

    lost = 0

    async def _pass(self, call: str, send: Callable[[], Awaitable[Any]]) -> Any:
        answers = await super()._pass(call, send)
        if call == "insert" and not self.lost:
            self.lost += 1
            await wait_until_async(lambda: self._are_over(answers), SIZE.patience)
            await self._store.prune(idle=3600)
            msg = "the reply was lost"
            raise StoreUnavailable(msg)
        return answers

    async def _are_over(self, jobs: Sequence[Inserted]) -> bool:
        records = await self._store.jobs.get([job.id for job in jobs])
        return all(record is None or record.state == "succeeded" for record in records)


@pytest.fixture
async def late_app(real_world: World) -> AsyncIterator[Tenure]:
    async with Tenure(LateReplies(real_world.unopened()), retention=0) as app:
        yield app


@pytest.mark.parametrize("many", [False, True], ids=["one", "many"])
async def test_a_repeated_insert_after_the_end_runs_nothing_again(late_app: Tenure, many: bool):
    runs: list[int] = []

    @late_app.task(retention=0)
    async def work(number: int) -> None:
        runs.append(number)

    async with late_app.worker():
        if many:
            jobs = await late_app.enqueue_many(work.request(number) for number in range(5))
        else:
            jobs = [await work.enqueue(0)]
        for job in jobs:
            await job.wait(SIZE.patience)
        # Behind all that came before it in the queue.
        await (await work.enqueue(99)).wait(SIZE.patience)
    assert runs == [*range(len(jobs)), 99]
    assert late_app._store.lost == 1


async def test_a_finished_job_is_kept_for_a_minute_at_least(make, clock: ManualClock):
    app = await make(retention=0)

    @app.task
    async def plain() -> None: ...

    @app.task(retention="10s")
    async def brief() -> None: ...

    async with app.worker():
        jobs = await app.enqueue_many(
            [plain.request(), brief.request(), plain.using(retention=1).request()]
        )
        await clock.advance(1)
        assert [job.record.retention for job in jobs] == [60, 60, 60]
    clock.shift(58)
    assert await app.prune_jobs() == 0
    clock.shift(2)
    assert await app.prune_jobs() == 3


async def test_runs_of_timers_and_schedules_are_kept_for_a_minute_too(make, clock: ManualClock):
    app = await make(retention=0)

    @app.timer(every=1, retention=0)
    async def tick() -> None: ...

    @app.task(retention=0)
    async def work() -> None: ...

    app.schedule(work, every=1)
    async with app.worker():
        await clock.advance(2.5)
        records = [job.record for job in await app.jobs(timers=True)]
    assert {record.task for record in records} >= {"@tick", work.name}
    assert {record.retention for record in records} == {60}
    assert {record.retention_failed for record in records} == {60}


async def test_jobs_of_a_user_transaction_are_kept_for_a_minute_too(tmp_path: Path):
    file = tmp_path / "tenure.db"
    async with Tenure(f"sqlite:///{file}", retention=0) as app:

        @app.task(retention=0)
        async def work() -> None: ...

        with closing(sqlite3.connect(file)) as own:
            own.execute("BEGIN IMMEDIATE")
            job = await work.within(own).enqueue()
            own.commit()
        assert (await job.refresh()).record.retention == 60


def test_jobs_of_blocking_callers_are_kept_for_a_minute_too(world_url: str, namespace: str):
    app = Tenure(world_url, namespace=namespace, retention=0)

    @app.task
    async def work() -> None: ...

    with blocking.Tenure(app) as sync:
        job = sync.enqueue(work.request())
        assert job.cancel()
        assert job.refresh().record.retention == 60
        assert sync.prune_jobs() == 0


@pytest.mark.parametrize("ends", ["failed", "succeeded", "cancelled"])
async def test_a_job_is_kept_as_long_as_its_unique_key(world: World, clock: ManualClock, ends: str):
    bank = ["is down" if ends == "failed" else "is up"]
    async with Tenure(world.unopened(), retention="10m") as app:

        @app.task(retry=0)
        async def charge(order: int) -> str:
            if bank == ["is down"]:
                raise OSError(*bank)
            return f"charged {order}"

        only = charge.using(unique=Unique("charge:7", keep="1d"))
        first = await only.enqueue(7)
        if ends == "cancelled":
            await first.cancel()
        await app.run_worker(burst=True)
        bank[:] = ["is up"]
        clock.shift(86_400 - 1)
        assert await app.prune_jobs() == 0
        again = await only.enqueue(7)
        assert (again.id, again.is_new, again.state) == (first.id, False, ends)
        if ends != "succeeded":
            await again.requeue()
            await app.run_worker(burst=True)
        assert await again.result(timeout=0) == "charged 7"
        clock.shift(86_400)
        assert await app.prune_jobs() == 1
        assert (await only.enqueue(7)).is_new


@pytest.mark.parametrize(
    ("keep", "kept"), [(0, (3600, 7200)), ("90m", (5400, 7200)), ("1d", (86_400, 86_400))]
)
async def test_a_unique_key_shortens_no_retention(make, clock: ManualClock, keep, kept):
    app = await make()
    retention = Retention(succeeded="1h", failed="2h")
    work = app.task(lambda: None, name="work", retention=retention).using(
        unique=Unique("k", keep=keep)
    )
    [job] = await app.enqueue_many([work.request()])
    for seen in (job, await app.job(job.id)):
        assert (seen.record.retention, seen.record.retention_failed) == kept


async def test_a_job_of_a_user_transaction_is_kept_as_long_as_its_key(tmp_path: Path):
    file = tmp_path / "tenure.db"
    async with Tenure(f"sqlite:///{file}") as app:
        work = app.task(lambda: None, name="work", retention="1h")
        with closing(sqlite3.connect(file)) as own:
            own.execute("BEGIN IMMEDIATE")
            job = await work.using(unique=Unique("k", keep="30d")).within(own).enqueue()
            own.commit()
        assert (await job.refresh()).record.retention == 30 * 86_400


async def test_an_insert_is_not_repeated_after_a_long_pause(make, clock: ManualClock, faults):
    """By then its job may have run and may have been removed."""
    app = await make(faulty=True)

    @app.task
    async def work() -> None: ...

    faults.lose_reply("insert")
    faults.delay("insert", 20)
    enqueuing = asyncio.ensure_future(work.enqueue())
    await clock.advance(25)
    with pytest.raises(StoreUnavailable):
        await enqueuing
    assert faults.calls["insert"] == 1

    faults.lose_reply("insert")
    faults.delay("insert", 5)
    enqueuing = asyncio.ensure_future(work.enqueue())
    await clock.advance(15)
    assert (await enqueuing).is_new
    assert faults.calls["insert"] == 3


async def test_a_process_that_sleeps_between_two_tries_repeats_no_insert(
    make, clock: ManualClock, faults, monkeypatch: pytest.MonkeyPatch
):
    app = await make(faulty=True)

    @app.task
    async def work() -> None: ...

    async def sleep(seconds: float) -> None:
        clock.shift(120 + seconds)

    monkeypatch.setattr(clock, "sleep", sleep)
    faults.lose_reply("insert")
    with pytest.raises(StoreUnavailable):
        await work.enqueue()
    assert faults.calls["insert"] == 1
