"""`task.within`: jobs that exist if and only if the user's transaction was committed."""

import asyncio
from contextlib import suppress

import pytest

from tenure import JobNotFound, UniqueMismatch
from tests.jobs.transactions.kinds import (
    ONE_OF_EACH,
    ONE_OF_EACH_DRIVER,
    POSTGRES,
    Undo,
    declare_double,
    effects,
)


async def test_a_job_is_visible_after_the_commit_and_wakes_a_sleeping_worker(app, own):
    double = declare_double(app)
    async with app.worker():
        await asyncio.sleep(0.1)  # for the worker to fall asleep
        async with own.transaction():
            await own.add(1)
            job = await double.within(own.connection).enqueue(21)
            assert job.is_new
            await asyncio.sleep(0.05)
            with pytest.raises(JobNotFound):
                await app.job(job.id)
        # It polls every five seconds by itself.
        assert await job.result(timeout=2) == 42
    assert await effects(own) == [1]


async def test_a_job_that_was_rolled_back_never_existed(app, own):
    double = declare_double(app)
    with pytest.raises(Undo):
        async with own.transaction():
            await own.add(1)
            job = await double.within(own.connection).enqueue(21)
            raise Undo
    assert await effects(own) == []
    assert await app.queues() == []
    with pytest.raises(JobNotFound, match="was rolled back"):
        await job.refresh()


@ONE_OF_EACH
async def test_options_and_connection_can_be_bound_in_any_order(app, own):
    double = declare_double(app)
    async with own.transaction():
        first = await double.using(queue="a", tags=["x"]).within(own.connection).enqueue(1)
        second = await double.within(own.connection).using(queue="b", delay=60).enqueue(2)
    assert (await first.refresh()).tags == ("x",)
    assert [(await job.refresh()).queue for job in (first, second)] == ["a", "b"]
    assert second.due > second.created


@POSTGRES
async def test_no_setting_is_changed_in_a_user_transaction(app, own):
    async def settings() -> dict[str, str]:
        return dict(await own.connection.fetch("SELECT name, setting FROM pg_settings"))

    async with own.transaction():
        before = await settings()
        await declare_double(app).using(unique="k").within(own.connection).enqueue(1)
        after = await settings()
    assert {name: after[name] for name in before} == before  # it may have loaded more settings


@ONE_OF_EACH_DRIVER
async def test_unique_keys_work_as_usual(app, own):
    double = declare_double(app).using(unique="k")
    before = await double.enqueue(1)
    async with own.transaction():
        again = await double.within(own.connection).enqueue(1)
        with pytest.raises(UniqueMismatch):
            await double.within(own.connection).enqueue(2)
        other = double.using(unique="other").within(own.connection)
        first, second = await other.enqueue(3), await other.enqueue(3)
    assert (again.id, again.is_new, again.state) == (before.id, False, "waiting")
    assert (first.is_new, second.is_new, second.id) == (True, False, first.id)
    assert {job.id for job in await app.jobs()} == {before.id, first.id}


@ONE_OF_EACH_DRIVER
async def test_many_jobs_are_inserted_with_one_commit(app, own):
    double = declare_double(app)
    requests = [double.using(tags=["t"] if n % 7 else []).request(n) for n in range(250)]
    with suppress(Undo):
        async with own.transaction():
            await app.enqueue_many(requests, within=own.connection)
            raise Undo
    assert await app.queues() == []
    async with own.transaction():
        jobs = await app.enqueue_many(requests, within=own.connection)
    assert len({job.id for job in jobs}) == 250
    assert [(counts.queue, counts.waiting) for counts in await app.queues()] == [("default", 250)]


@ONE_OF_EACH
async def test_a_mismatch_among_many_is_returned_in_the_list(app, own):
    double = declare_double(app)
    await double.using(unique="k").enqueue(1)
    requests = [double.request(1), double.using(unique="k").request(2)]
    async with own.transaction():
        [job, error] = await app.enqueue_many(
            requests, within=own.connection, return_exceptions=True
        )
    assert (await job.refresh()).state == "waiting"
    assert isinstance(error, UniqueMismatch)


@ONE_OF_EACH
async def test_hooks_see_the_jobs_of_a_user_transaction(app, own):
    double = declare_double(app)

    @app.on_enqueue
    def mark(job) -> None:
        job.headers["by"] = "hook"

    async with own.transaction():
        job = await double.within(own.connection).enqueue(1)
        [other] = await app.enqueue_many([double.request(2)], within=own.connection)
    for stored in (await app.job(job.id), await app.job(other.id)):
        assert stored.headers == {"by": "hook"}
