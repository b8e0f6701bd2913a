"""Workers that drain their queues and stop, and reports of long jobs."""

import asyncio

import pytest

from tenure import Backoff, ConfigError, Tenure
from tenure.observe import JobRunsLong
from tests.jobs.replicas import lose_times


async def drain(app: Tenure) -> dict[str, int]:
    return await asyncio.wait_for(app.run_worker(burst=True), 20)


async def test_a_burst_runs_all_due_jobs_and_stops(real_app):
    @real_app.task
    async def last() -> None: ...

    @real_app.task
    async def first() -> None:
        await last.enqueue()

    @real_app.task(retry=None)
    async def fail() -> None:
        raise ValueError

    @real_app.task(retry=Backoff(max_attempts=2, base=3600))
    async def fail_for_now() -> None:
        raise ValueError

    for task in (first, first, fail, fail_for_now):
        await task.enqueue()
    later = await last.using(delay=3600).enqueue()
    assert await drain(real_app) == {"succeeded": 4, "failed": 1, "retry": 1}
    assert (await later.refresh()).state == "waiting"
    assert await real_app.replicas() == []
    assert await drain(real_app) == {}


async def test_a_burst_waits_for_running_jobs(real_app):
    go = asyncio.Event()
    begun = asyncio.Event()

    @real_app.task
    async def last() -> None: ...

    @real_app.task
    async def wait() -> None:
        begun.set()
        await go.wait()
        await last.enqueue()

    await wait.enqueue()
    async with real_app.worker(burst=True) as worker:
        await begun.wait()
        ended = asyncio.ensure_future(worker.ended())
        # Longer than it takes to claim nothing, twice.
        assert not (await asyncio.wait([ended], timeout=0.5))[0]
        go.set()
        await asyncio.wait_for(ended, 20)
    assert worker.ends == {"succeeded": 2}


async def test_a_burst_runs_a_suspect_that_could_not_be_alone_at_first(app, store, clock):
    ran = []

    @app.task
    async def long() -> None:
        await clock.sleep(35)
        ran.append("long")

    @app.task
    async def suspect() -> None:
        ran.append("suspect")

    job = await suspect.enqueue()
    await lose_times(store, clock, 2)
    await long.using(priority=0).enqueue()
    async with app.worker(burst=True) as worker:
        await clock.advance(20)
        assert (await job.refresh()).state == "running"
        await clock.advance(200)
        assert worker.has_drained
    assert ran == ["long", "suspect"]
    assert (await job.refresh()).state == "succeeded"


async def test_a_burst_does_not_wait_for_a_suspect_that_another_worker_has_run(
    app, make, store, clock
):
    other = await make()
    for each in (app, other):

        @each.task
        async def long() -> None:
            await clock.sleep(100)

        @each.task(retry=Backoff(max_attempts=2, base=86_400, cap=86_400))
        async def suspect() -> None:
            raise ValueError

    job = await suspect.enqueue()
    await lose_times(store, clock, 2)
    await long.using(priority=0).enqueue()
    async with app.worker(burst=True, concurrency=2) as worker:
        await clock.advance(31)
        assert (await job.refresh()).state == "waiting"
        await long.using(priority=0).enqueue()  # so there is no slot for the suspect
        await clock.advance(1)
        async with other.worker():
            await clock.advance(60)
        await job.refresh()
        assert (job.state, job.failures) == ("waiting", 1)
        assert not worker.has_drained
        await clock.advance(60)
        assert worker.has_drained


async def test_timers_do_not_tick_in_a_burst(app, clock):
    ran = []
    go = asyncio.Event()

    @app.timer(every="1s")
    async def tick() -> None:
        ran.append(1)

    @app.task
    async def wait() -> None:
        await go.wait()

    await wait.enqueue()
    async with app.worker(burst=True):
        await clock.advance(10)
        assert ran == []
        go.set()
    with pytest.raises(ConfigError, match="burst=True runs no timers"):
        app.worker(burst=True, timers="only")


@pytest.mark.parametrize("timeout", [None, "5m"])
async def test_a_long_job_without_a_time_out_is_reported_once(make, clock, timeout):
    app = await make(long_job=60)
    seen = []
    app.on_event(seen.append)

    @app.task(timeout=timeout)
    async def endless() -> None:
        await asyncio.Event().wait()

    job = await endless.enqueue()
    async with app.worker():
        await clock.advance(50)
        assert not [event for event in seen if isinstance(event, JobRunsLong)]
        await clock.advance(50)
        events = [event for event in seen if isinstance(event, JobRunsLong)]
        await clock.advance(100)
        assert [event for event in seen if isinstance(event, JobRunsLong)] == events
    if timeout:
        assert events == []
    else:
        [event] = events
        assert (event.task, event.job) == ("endless", job.id)
        assert 60 < event.seconds < 75
        assert f"job {job.id} of task 'endless' has run for" in str(event)
