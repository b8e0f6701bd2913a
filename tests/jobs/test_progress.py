"""What an attempt reports while it runs: progress, and checkpoints that survive it."""

import asyncio

import pytest

from tenure import (
    Backoff,
    StoreError,
    TooLarge,
    current_job,
)
from tenure.stores.memory.jobs import Jobs
from tests.jobs.replicas import claim_and_die, finished
from tests.rig.endings import settlement

ONCE = Backoff(max_attempts=1)


async def test_progress_is_shown_and_stays_after_the_end(app, clock):
    reached = asyncio.Event()

    @app.task
    async def work() -> None:
        for page in range(5):
            current_job().progress(page / 10, f"page {page}")
        await reached.wait()

    async with app.worker():
        job = await work.enqueue()
        await clock.advance(0.1)
        await job.refresh()
        assert (job.progress, job.message) == (0.4, "page 4")
        reached.set()
        await finished(job, clock)


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "plain"])
async def test_much_progress_takes_no_memory(app, clock, is_async):
    """A handler that never awaits blocks the loop, and a thread is faster than it."""
    loop, lengths = asyncio.get_running_loop(), []

    def work() -> None:
        for step in range(20_000):
            current_job().progress(step / 20_000)
            lengths.append(len(loop._ready))

    async def work_on_the_loop() -> None:
        work()

    task = app.task(work_on_the_loop if is_async else work)
    async with app.worker():
        job = await task.enqueue()
        await finished(job, clock)
        assert job.progress == 19_999 / 20_000
    assert max(lengths) < 100


async def test_frequent_progress_is_sent_at_intervals(app, clock, monkeypatch):
    sent = []
    note = Jobs.note

    async def noted(self, notes):
        sent.extend(notes)
        return await note(self, notes)

    monkeypatch.setattr(Jobs, "note", noted)

    @app.task
    async def work() -> None:
        for step in range(1000):
            current_job().progress(step / 1000)
        await clock.sleep(1)
        current_job().progress(1)
        await clock.sleep(1)

    async with app.worker():
        job = await work.enqueue()
        await clock.advance(0.5)
        assert (await job.refresh()).progress == 0.999
        await clock.advance(2)
        assert (await job.refresh()).progress == 1
    assert len(sent) <= 3


async def test_progress_can_be_reported_from_a_thread(app, clock):
    @app.task
    def work() -> None:
        current_job().progress(0.5, "half")
        current_job().save("first half")

    async with app.worker():
        job = await finished(await work.enqueue(), clock)
    assert (job.progress, job.message) == (0.5, "half")


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_the_last_progress_is_shown_with_the_end(app, clock, kind, fails):
    def speak() -> None:
        for page in range(1, 6):
            current_job().progress(page / 5, f"page {page}")
        if fails:
            raise RuntimeError

    async def speak_async() -> None:
        speak()

    work = app.task(retry=ONCE)(speak_async if kind == "async" else speak)
    async with app.worker():
        job = await finished(await work.enqueue(), clock)
    assert job.state == ("failed" if fails else "succeeded")
    assert (job.progress, job.message) == (1.0, "page 5")


async def test_a_job_cancelled_while_its_last_progress_is_stored_has_succeeded(app, clock, faults):
    """Its work is done; another attempt would do it twice."""
    faults.delay("note", 1000)

    @app.task
    async def work() -> str:
        current_job().progress(1.0, "done")
        return "done"

    async with app.worker():
        job = await work.enqueue()
        while faults.calls["note"] == 0:
            await clock.advance(0.01)
        assert await job.cancel() is not None
        await finished(job, clock)
        faults.heal()
    assert (job.state, job.attempt) == ("succeeded", 1)


@pytest.mark.parametrize("part", [-0.1, 1.1, float("nan")])
async def test_invalid_progress_is_refused(app, clock, part):
    @app.task(retry=None)
    async def work() -> None:
        current_job().progress(part)

    async with app.worker():
        job = await finished(await work.enqueue(), clock)
    assert "progress goes from 0 to 1" in job.error


async def test_progress_that_cannot_be_sent_disturbs_no_job(app, clock, faults):
    @app.task
    async def work() -> None:
        current_job().progress(0.5)
        await clock.sleep(1)

    async with app.worker():
        faults.lose_request("note")
        job = await work.enqueue()
        await clock.advance(2)
        assert (await job.refresh()).state == "succeeded"


async def test_a_checkpoint_is_there_after_a_retry_and_after_a_loss(app, store, clock):
    checkpoints = []

    @app.task(retry=Backoff(max_attempts=2, base=0))
    async def walk() -> None:
        job = current_job()
        checkpoints.append(job.checkpoint)
        await job.save({"page": len(checkpoints)})
        assert job.checkpoint == {"page": len(checkpoints)}
        if len(checkpoints) == 1:
            raise ValueError

    job = await walk.enqueue()
    async with app.worker():
        await clock.advance(1)
    assert checkpoints == [None, {"page": 1}]
    await finished(job, clock)
    await job.requeue()
    await claim_and_die(store)
    clock.shift(10)
    await app.recover()
    async with app.worker():
        await finished(job, clock)
    assert checkpoints[2] == {"page": 2}
    assert job.losses == 1


async def test_a_checkpoint_saved_in_a_thread_is_stored_when_save_returns(app, store, clock):
    stored = []

    @app.task
    def walk() -> None:
        current_job().save([1, 2])
        stored.append(current_job().checkpoint)

    async with app.worker():
        job = await finished(await walk.enqueue(), clock)
    assert job.state == "succeeded", job.error
    [record] = await store.jobs.get([job.id])
    assert record.checkpoint == b"[1,2]"
    assert stored == [[1, 2]]


async def test_checkpoints_that_cannot_be_stored_raise_an_error(make, clock):
    app = await make(result_limit=2000)

    @app.task
    async def walk() -> list[str]:
        problems = []
        for value in ("x" * 2000, object()):
            try:
                await current_job().save(value)
            except (TooLarge, TypeError) as error:
                problems.append(str(error))
        return problems

    async with app.worker():
        job = await finished(await walk.enqueue(), clock)
    [large, formless] = await job.result()
    assert "this checkpoint: 2,002 bytes" in large
    assert "no JSON form" in formless


async def test_saving_in_an_attempt_that_is_over_is_refused_and_stops_it(app, store, clock, seen):
    outcome = []

    @app.task
    async def walk() -> None:
        await clock.sleep(5)
        try:
            await current_job().save(1)
        except (StoreError, asyncio.CancelledError) as error:
            outcome.append(type(error))
            raise

    async with app.worker():
        job = await walk.enqueue()
        await clock.advance(1)
        [taken] = await store.jobs.get([job.id])
        back = settlement(id=job.id, fence=taken.fence, outcome="handed back", delay=30)
        await store.jobs.settle([back])
        await clock.advance(5)
        assert len(outcome) == 1
        await clock.advance(30)
        await clock.advance(6)
        assert (await job.refresh()).state == "succeeded"
        assert (job.failures, job.losses) == (0, 0)
