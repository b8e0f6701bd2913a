"""Rare failures of a worker: no job is lost, and the worker continues."""

import asyncio
import threading
from contextlib import asynccontextmanager

from tenure import Backoff, Retry, Tenure, current_job
from tenure.app import engine_of
from tenure.errors import ConfigError
from tenure.runtime.replica.janitor import Janitor
from tenure.testing import FaultyStore
from tests.jobs.replicas import lose_times
from tests.jobs.test_outages import away
from tests.rig.wait import wait_until_async


async def test_a_suspect_that_waits_for_its_turn_counts_no_loss(make, store, clock):
    app = await make(grace=25)
    ran = []

    @app.task
    async def long() -> None:
        await clock.sleep(100)

    @app.task(timeout=3)
    async def short() -> None:
        ran.append(current_job().losses)

    job = await short.enqueue()
    await lose_times(store, clock, 2)
    async with app.worker(grace=0):
        await app.pause_queue("default")
        await clock.advance(1)
        await long.using(priority=0).enqueue()
        await app.resume_queue("default")
        for _ in range(20):
            await clock.advance(10)
    assert (await job.refresh()).state == "succeeded"
    assert ran == [2]


async def test_a_suspect_that_hangs_does_not_block_its_worker(make, store, clock):
    app = await make(grace=0)
    go_on = threading.Event()

    @app.task(timeout=2, retry=None)
    def hangs() -> None:
        go_on.wait(20)

    @app.task
    async def other() -> str:
        return "done"

    await hangs.enqueue()
    await lose_times(store, clock, 2)
    try:
        async with app.worker(grace=0):
            await clock.advance(5)
            job = await other.enqueue()
            await clock.advance(60)
            assert await job.result(0) == "done"
            go_on.set()
    finally:
        go_on.set()


async def test_a_replica_survives_a_store_error_that_is_no_outage(app, clock):
    @app.task
    async def work() -> int:
        return 1

    async with app.worker() as worker:
        await clock.advance(5)
        store, replica = engine_of(app).services().host.store, worker.replica
        beat = store.jobs.beat

        async def fail_once(*_, **__):
            store.jobs.beat = beat
            raise ConfigError("the password was changed")

        store.jobs.beat = fail_once
        await clock.advance(60)
        job = await work.enqueue()
        await clock.advance(10)
        assert await job.result(0) == 1
        assert worker.replica == replica


async def test_a_replica_survives_an_unexpected_error(app, clock):
    @app.task
    async def work() -> int:
        return 1

    store = engine_of(app).services().host.store
    watch, failed = store.watch, []

    def fail_once(*topics):
        if topics[0][0] == "replica" and not failed:
            failed.append(1)
            raise RuntimeError("a mistake of ours")
        return watch(*topics)

    store.watch = fail_once
    async with app.worker() as worker:
        await clock.advance(30)
        assert failed
        assert [record.id for record in await app.replicas()] == [worker.replica]
        job = await work.enqueue()
        await clock.advance(1)
        assert await job.result(0) == 1


async def test_a_checkpoint_survives_an_outage(app, clock, faults):
    @app.task
    async def work() -> int:
        await clock.sleep(1)
        await current_job().save(5)
        return current_job().checkpoint

    async with app.worker():
        job = await work.enqueue()
        await clock.advance(0.5)
        away(faults)
        await clock.advance(2)
        faults.heal()
        await clock.advance(10)
        assert await job.result(0) == 5
    assert (job.attempt, job.failures) == (1, 0)


async def test_a_cancelled_leave_still_hands_back_jobs_and_leaves(app, clock):
    @app.task
    async def work() -> None:
        await clock.sleep(1000)

    async def serve() -> None:
        async with app.worker(grace=25):
            await clock.sleep(3600)

    serving = asyncio.ensure_future(serve())
    job = await work.enqueue()
    await clock.advance(1)
    serving.cancel()
    await clock.advance(1)
    serving.cancel()  # like a time limit around the closing
    await clock.advance(10)
    assert serving.cancelled()
    assert (await job.refresh()).state == "waiting"
    assert await app.replicas() == []


async def test_an_error_that_cannot_be_formatted_ends_its_job(app, clock):
    class Odd(Retry):
        def __init__(self) -> None:
            """Do not call the base class."""

        def __str__(self) -> str:
            raise RuntimeError

    @app.task(retry=Backoff(max_attempts=2, base=0.001))
    async def odd() -> None:
        raise Odd

    async with app.worker():
        job = await odd.enqueue()
        await clock.advance(10)
        assert (await job.refresh()).state == "failed"


async def test_a_thread_that_cannot_start_leaves_nothing_that_runs_later(app, clock, monkeypatch):
    ran = []

    @app.task(retry=Backoff(max_attempts=2, base=0.001))
    def work(number: int) -> None:
        ran.append((number, current_job().attempt))

    start = threading.Thread.start

    def refuse(self: threading.Thread) -> None:
        if self.name.startswith("tenure-job"):
            raise RuntimeError("can't start new thread")
        start(self)

    async with app.worker():
        monkeypatch.setattr(threading.Thread, "start", refuse)
        job = await work.enqueue(1)
        await clock.advance(0)
        await wait_until_async(lambda: has_failed_once(job))
        monkeypatch.undo()
        await clock.advance(1)
        await wait_until_async(lambda: is_done(job))
    assert ran == [(1, 2)]


async def has_failed_once(job) -> bool:
    return (await job.refresh()).failures == 1


async def is_done(job) -> bool:
    return (await job.refresh()).is_finished


async def test_no_worker_begins_before_the_lifespan_is_open(store, clock):
    seen = []

    @asynccontextmanager
    async def lifespan(_app):
        await clock.sleep(2)
        yield "open"

    async with Tenure(FaultyStore(store.clone()), lifespan=lifespan, grace=0) as app:

        @app.task
        async def work() -> None:
            seen.append(app.state)

        async def serve() -> None:
            async with app.worker():
                await clock.sleep(5)

        await work.enqueue()
        serving = [asyncio.ensure_future(serve()) for _ in range(2)]
        await clock.advance(20)
        await asyncio.wait(serving)
    assert seen == ["open"]


async def test_a_closing_lifespan_is_opened_again_for_a_new_worker(store, clock):
    calls = []

    @asynccontextmanager
    async def lifespan(_app):
        calls.append("opened")
        yield "open"
        await clock.sleep(2)
        calls.append("closed")

    async with Tenure(FaultyStore(store.clone()), lifespan=lifespan, grace=0) as app:

        @app.task
        async def work() -> str:
            return f"{app.state} {calls}"

        async def serve(seconds: float) -> None:
            async with app.worker():
                await clock.sleep(seconds)

        first = asyncio.ensure_future(serve(1))
        await clock.advance(1.5)  # it is closing now
        second = asyncio.ensure_future(serve(5))
        job = await work.enqueue()
        await clock.advance(4)
        assert await job.result(0) == "open ['opened', 'closed', 'opened']"
        await clock.advance(10)
        await asyncio.wait([first, second])
    assert calls == ["opened", "closed", "opened", "closed"]


async def test_large_results_are_settled_in_calls_of_limited_size(real_make):
    app = await real_make(grace=1)
    go_on = asyncio.Event()

    @app.task
    async def work() -> str:
        await go_on.wait()
        return "x" * 700_000

    async with app.worker(concurrency=60, grace=1):
        jobs = await app.enqueue_many(work.request() for _ in range(60))
        go_on.set()
        await asyncio.gather(*(job.wait(60) for job in jobs))
    assert {job.state for job in jobs} == {"succeeded"}
    assert {job.attempt for job in jobs} == {1}


async def test_heartbeats_continue_after_an_unexpected_error(
    app, store, clock, monkeypatch, caplog
):
    look, looks = Janitor.look, []

    def fail_at_first(self, *args):
        looks.append(True)
        if len(looks) <= 3:
            raise ZeroDivisionError
        look(self, *args)

    async with app.worker():
        await clock.advance(1)
        [before] = await store.jobs.replicas()
        monkeypatch.setattr(Janitor, "look", fail_at_first)
        await clock.advance(300)
        [after] = await store.jobs.replicas()
    assert len(looks) > 3
    assert (after.id, after.dead) == (before.id, False)
    assert after.expires_in > 0
    assert "a heartbeat failed in an unexpected way; the next one follows" in caplog.text
