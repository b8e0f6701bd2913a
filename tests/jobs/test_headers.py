"""Headers of jobs: they travel with a job through all its attempts, and are no arguments."""

import asyncio

import pytest

from tenure import ConfigError, Tenure, current_job
from tenure.app import engine_of
from tests.jobs.replicas import claim_and_die, finished
from tests.rig.wait import wait_until_async

SENT = {"x-request-id": "r-1", "tenant": "\u00e4\n\U0001f600 \"'\\"}
# Close to the limits: 20 headers of 4,000 bytes, which JSON makes larger.
FULL = {f"h{number}": "x" * 195 for number in range(20)} | {"h0": "\U0001f600" * 60}


async def test_the_handler_and_the_caller_see_the_headers_of_a_job(app: Tenure, clock):
    @app.task
    async def work(n: int) -> dict[str, str]:
        return {**current_job().headers}

    async with app.worker():
        job = await finished(await work.using(headers=SENT).enqueue(1), clock)
        plain = await finished(await work.enqueue(1), clock)
    assert await job.result(0) == job.headers == (await app.job(job.id)).headers == SENT
    assert await plain.result(0) == plain.headers == {}
    assert b"r-1" not in job.record.payload


async def test_headers_cannot_be_changed_through_a_job(app: Tenure):
    @app.task
    async def work() -> None: ...

    sent = {**SENT}
    task = work.using(headers=sent)
    sent["late"] = "1"
    for job in (await task.enqueue(), await work.enqueue()):
        with pytest.raises(TypeError):
            job.headers["a"] = "b"
    assert (await task.enqueue()).headers == SENT
    assert (await work.enqueue()).headers == {}


async def test_a_request_id_in_a_field_of_the_log_is_one_line(app: Tenure, clock, caplog):
    @app.task
    async def work() -> None: ...

    caplog.set_level("DEBUG")
    async with app.worker():
        headers = {"x-request-id": "r-1\nERROR all jobs are lost"}
        await finished(await work.using(headers=headers).enqueue(), clock)
    shown = {vars(each)["request_id"] for each in caplog.records if "request_id" in vars(each)}
    assert shown == {"r-1\\nERROR all jobs are lost"}


async def test_headers_of_a_call_replace_those_of_the_task(app: Tenure):
    @app.task
    async def work() -> None: ...

    task = work.using(headers={"a": "1", "b": "2"})
    assert (await task.using(headers={"a": "3"}).enqueue()).headers == {"a": "3"}
    assert (await task.using(headers={}).enqueue()).headers == {}
    assert (await task.using(priority=1).enqueue()).headers == {"a": "1", "b": "2"}


async def test_headers_go_with_each_job_of_many(app: Tenure):
    @app.task
    async def work(n: int) -> None: ...

    requests = [work.using(headers={"n": str(n)}).request(n) for n in range(3)]
    jobs = await app.enqueue_many([*requests, work.request(3)])
    assert [job.headers for job in jobs] == [{"n": "0"}, {"n": "1"}, {"n": "2"}, {}]


async def test_a_plain_handler_sees_the_headers_in_its_thread(app: Tenure, clock):
    @app.task
    def work() -> dict[str, str]:
        return {**current_job().headers}

    async with app.worker():
        job = await finished(await work.using(headers=SENT).enqueue(), clock)
    assert await job.result(0) == SENT


@pytest.mark.parametrize("wrong", [{"X": "1"}, {"x": 1}, {"x": "\0"}, [], "x"])
def test_headers_that_no_store_can_keep_are_refused_before_anything_is_stored(app: Tenure, wrong):
    @app.task
    async def work() -> None: ...

    with pytest.raises(ConfigError, match="header"):
        work.using(headers=wrong)


async def test_a_job_that_finds_another_under_its_unique_key_leaves_its_headers(app: Tenure):
    @app.task
    async def work() -> None: ...

    task = work.using(unique="k")
    first = await task.using(headers={"n": "1"}).enqueue()
    second = await task.using(headers={"n": "2"}).enqueue()
    assert (second.id, second.headers) == (first.id, {"n": "1"})


async def test_a_job_that_a_handler_enqueues_has_no_headers_of_its_parent(app: Tenure, clock):
    @app.task
    async def child() -> None: ...

    @app.task
    async def parent() -> str:
        return (await child.enqueue()).id

    async with app.worker():
        job = await finished(await parent.using(headers=SENT).enqueue(), clock)
    assert (await app.job(await job.result(0))).headers == {}


async def test_jobs_of_a_schedule_have_the_headers_of_its_task(app: Tenure, clock):
    seen: list[dict[str, str]] = []

    @app.task
    async def work() -> None:
        seen.append({**current_job().headers})

    timer = app.schedule(work.using(headers=SENT), every="10s")
    async with app.worker():
        await clock.advance(11)
        assert seen == [SENT]
        await finished(await timer.trigger(), clock)
    assert seen == [SENT, SENT]


@pytest.mark.parametrize("sent", [SENT, FULL], ids=["few", "full"])
async def test_headers_survive_losses_handing_back_retries_and_requeues(real_make, sent):
    app: Tenure = await real_make(replica_ttl=1, grace=0)
    seen: list[dict[str, str]] = []
    is_interrupted = True

    @app.task(retry=1)
    async def work() -> None:
        seen.append({**current_job().headers})
        if is_interrupted:
            await asyncio.Event().wait()
        if len(seen) == 2:
            raise ValueError("again")

    other = await real_make()
    job = await work.using(headers=sent).enqueue()
    await claim_and_die(engine_of(other).store, ttl=0.05)
    await wait_until_async(lambda: _is_recovered(app, job))
    assert (job.losses, job.headers) == (1, sent)
    async with app.worker():
        await wait_until_async(lambda: _is_true(seen))
    is_interrupted = False
    assert ((await job.refresh()).state, job.headers) == ("waiting", sent)
    async with app.worker():
        await job.wait(20)
        assert (job.state, job.failures, job.headers) == ("succeeded", 1, sent)
        await job.requeue()
        await job.wait(20)
    assert seen == [sent] * 4
    assert (await app.job(job.id)).headers == sent


async def _is_recovered(app: Tenure, job) -> bool:
    await app.recover()
    return (await job.refresh()).losses == 1


async def _is_true(seen: list[dict[str, str]]) -> bool:
    return bool(seen)
