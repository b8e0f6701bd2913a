"""A worker that was asked to stop starts no more jobs, whatever it was about to do."""

from contextlib import asynccontextmanager


async def test_a_worker_that_is_stopped_while_it_begins_to_listen_claims_nothing(
    app, clock, monkeypatch
):
    @app.task
    async def work() -> None: ...

    listen = app._store.watch
    jobs = []

    @asynccontextmanager
    async def watch(*topics):
        async with listen(*topics) as bell:
            if not jobs:
                worker.stop()
                jobs.append(await work.enqueue())
            yield bell

    monkeypatch.setattr(app._store, "watch", watch)
    async with app.worker() as worker:
        await clock.advance(1)
        [job] = jobs
        assert (await job.refresh()).attempt == 0
