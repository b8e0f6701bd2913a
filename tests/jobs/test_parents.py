"""Parents: a job that a handler has enqueued keeps the id of the handler's job."""

import asyncio

import pytest

from tenure import ConfigError, Tenure, blocking, current_job
from tests.jobs import cpu_tasks
from tests.jobs.test_process_executor import working

TAGS = [f"tag {number}" for number in range(10)]


async def test_a_job_knows_its_parent_and_is_found_by_it(real_app: Tenure):
    seen = []

    @real_app.task
    async def child(number: int) -> None:
        seen.append((number, current_job().parent, current_job().tags))

    @real_app.task
    async def parent() -> list[str]:
        first = await child.using(tags=TAGS).enqueue(1)
        requests = [child.request(number) for number in (2, 3)]
        return [first.id, *(job.id for job in await real_app.enqueue_many(requests))]

    async with real_app.worker():
        job = await parent.enqueue()
        ids = await job.result(20)
        jobs = [await (await real_app.job(id_)).wait(20) for id_ in ids]
    assert (job.parent, job.tags) == (None, ())
    assert [child.parent for child in jobs] == [job.id] * 3
    assert [child.tags for child in jobs] == [tuple(TAGS), (), ()]
    assert sorted(seen) == [(1, job.id, tuple(TAGS)), (2, job.id, ()), (3, job.id, ())]
    assert [child.id for child in await real_app.jobs(parent=job.id)] == ids[::-1]
    assert [child.id for child in await real_app.jobs(parent=job.id, limit=1)] == ids[2:]
    assert [child.id for child in await real_app.jobs(parent=job.id, task=parent.name)] == []
    assert await real_app.jobs(parent=ids[0]) == []
    await real_app.delete_job(ids[0])
    assert [child.id for child in await real_app.jobs(parent=job.id)] == ids[:0:-1]


async def test_a_plain_handler_gives_its_id_as_well(real_app: Tenure):
    """In a thread, over the worker's connection, or through the blocking facade."""

    @real_app.task
    async def child() -> None: ...

    @real_app.task
    def over_the_worker() -> str:
        return asyncio.run(child.enqueue()).id

    sync = blocking.Tenure(real_app.clone())

    @real_app.task
    def facade() -> list[str]:
        many = sync.enqueue_many([child.request()])
        return [sync.enqueue(child.request()).id, *(job.id for job in many)]

    with sync:
        async with real_app.worker():
            for task in (over_the_worker, facade):
                job = await task.enqueue()
                await job.wait(20)
                assert job.state == "succeeded", job.error
                children = await real_app.jobs(parent=job.id)
                assert len(children) == (1 if task is over_the_worker else 2)
                assert {child.parent for child in children} == {job.id}


async def test_a_handler_in_a_child_process_gives_its_id_as_well():
    async with working() as app:
        job = await (await app.enqueue(cpu_tasks.enqueue_two.request("a"))).wait(30)
        ids = await job.result(1)
        assert [child.id for child in await app.jobs(parent=job.id)] == ids[::-1]


async def test_runs_of_timers_and_schedules_have_none_and_may_be_one(app: Tenure, clock):
    @app.task
    async def child() -> None: ...

    @app.timer(every="1h", name="hourly")
    async def hourly() -> None:
        await child.enqueue()

    app.schedule(child, every="1h", name="scheduled")
    async with app.worker():
        await clock.advance(3700)
    [run] = (await app.jobs(task="@hourly"))[:1]
    assert run.parent is None
    enqueued = [job for job in await app.jobs(task=child.name) if job.parent]
    assert [job.parent for job in enqueued][:1] == [run.id]
    scheduled = [job for job in await app.jobs(task=child.name) if job.record.schedule]
    assert scheduled
    assert all(job.parent is None for job in scheduled)


async def test_a_job_of_another_store_is_no_parent(app: Tenure, make, clock, namespace):
    """Its id says nothing there."""
    async with Tenure(f"memory://{namespace}", namespace="other") as other:

        @other.task
        async def child() -> None: ...

        @app.task
        async def parent() -> str:
            return (await child.enqueue()).id

        async with app.worker():
            job = await parent.enqueue()
            await clock.advance(1)
            id_ = await job.result(0)
        assert (await other.job(id_)).parent is None


async def test_a_job_with_a_unique_key_keeps_its_first_parent(app: Tenure, clock):
    @app.task
    async def child() -> None:
        await clock.sleep(1000)

    @app.task
    async def parent() -> str:
        return (await child.using(unique="one").enqueue()).id

    async with app.worker():
        first, second = await parent.enqueue(), await parent.enqueue()
        await clock.advance(1)
        assert await first.result(0) == await second.result(0)
        job = await app.job(await first.result(0))
        assert job.parent in (first.id, second.id)


async def test_a_requeued_job_keeps_its_parent(app: Tenure, clock):
    @app.task
    async def child() -> None: ...

    @app.task
    async def parent() -> str:
        return (await child.enqueue()).id

    async with app.worker():
        job = await parent.enqueue()
        await clock.advance(1)
        once = await app.job(await job.result(0))
        await once.requeue()
        await clock.advance(1)
        await once.refresh()
    assert (once.state, once.attempt, once.parent) == ("succeeded", 2, job.id)


async def test_wrong_parents_are_refused(app: Tenure):
    with pytest.raises(ConfigError, match="either tag= or parent="):
        await app.jobs(tag="a", parent="01890a5d-ac96-774b-bcce-000000000000")
    with pytest.raises(ConfigError, match="id of a job"):
        await app.jobs(parent="job 7")

    @app.task
    async def work() -> None: ...

    with pytest.raises(ConfigError, match="reserved"):
        work.using(tags=["@parent:01890a5d-ac96-774b-bcce-000000000000"])
