"""Handles of jobs, lists of jobs, counts and pauses."""

import asyncio
import uuid

import pytest

from tenure import Backoff, ConfigError, JobFailed, JobNotFound, JobStateError, Tenure, current_job
from tests.jobs.replicas import claim_and_die
from tests.rig.wait import wait_until_async

NOWHERE = "01a3185c-5000-70a5-92f3-46baa9455e3e"


@pytest.fixture
def work(app: Tenure, clock):
    @app.task
    async def work(seconds: float = 0, fails: bool = False) -> float:
        await clock.sleep(seconds)
        if fails:
            raise ValueError("it was told to")
        return seconds

    return work


async def test_waiting_for_a_result_ends_when_it_is_stored(app, work, clock):
    async with app.worker():
        job = await work.enqueue(100)
        waiting = asyncio.ensure_future(job.result())
        await clock.advance(99)
        assert not waiting.done()
        await clock.advance(1.01)
        assert waiting.done()
        assert await waiting == 100


async def test_without_wake_ups_a_wait_polls_every_two_seconds(app, work, clock, monkeypatch):
    job = await work.enqueue(1)
    waiting = asyncio.ensure_future(job.wait())
    async with app.worker():
        await clock.advance(0.5)
        monkeypatch.setattr("tenure.stores.watchers.Watchers.wake", lambda *_: None)
        await clock.advance(3)
        assert waiting.done()


async def test_a_result_that_does_not_come_in_time_is_a_timeout_error(app, work, clock):
    job = await work.enqueue()
    for wait in (job.result, job.wait):
        waiting = asyncio.ensure_future(wait(timeout="5s"))
        await clock.advance(5)
        with pytest.raises(TimeoutError, match=r"within 5 s\. It waits: no worker is alive\.$"):
            await waiting
    with pytest.raises(TimeoutError):
        await job.result(0)
    with pytest.raises(ConfigError, match="timeout"):
        await job.result(-1)
    assert (await job.refresh()).state == "waiting"


async def test_a_timeout_error_says_when_the_job_is_due(app, work, clock):
    job = await work.using(delay="1h").enqueue()
    async with app.worker():
        waiting = asyncio.ensure_future(job.result(timeout="5s"))
        await clock.advance(5)
        with pytest.raises(
            TimeoutError, match=r"not finished within 5 s\. It is due in 59 min 55 s\.$"
        ):
            await waiting


async def test_a_timeout_error_says_why_the_job_has_not_finished(app, clock):
    @app.task(retry=Backoff(max_attempts=3, base=60, cap=60))
    async def fail():
        raise LookupError("no such user")

    job = await fail.enqueue()
    async with app.worker():
        waiting = asyncio.ensure_future(job.result(timeout="5s"))
        await clock.advance(5)
    message = (
        r"\. It waits for retry 1 of 2 in \d\d s; "
        r"it has failed once, last with LookupError: no such user\.$"
    )
    with pytest.raises(TimeoutError, match=message):
        await waiting


async def test_a_timeout_error_says_that_no_worker_knows_the_task(make, work, clock):
    job = await work.enqueue()
    stranger = await make()
    async with stranger.worker():
        waiting = asyncio.ensure_future(job.result(timeout="5s"))
        await clock.advance(5)
    message = r"\. The last worker did not know its task 'work', and it is offered again in \d"
    with pytest.raises(TimeoutError, match=message):
        await waiting


async def test_many_callers_can_wait_for_one_job(app, work, clock):
    job = await work.enqueue(3)
    waiting = [asyncio.ensure_future((await app.job(job.id)).result()) for _ in range(20)]
    async with app.worker():
        await clock.advance(4)
    assert await asyncio.gather(*waiting) == [3] * 20


async def test_a_removed_job_is_not_found(app, work, clock):
    job = await work.using(retention=60).enqueue()
    waiting = asyncio.ensure_future(job.wait())
    await clock.advance(0)
    async with app.worker():
        await clock.advance(0.1)
    await waiting
    clock.shift(60)
    await app.prune_jobs()
    for ask in (job.refresh, job.wait, job.result, job.cancel, job.requeue):
        with pytest.raises(JobNotFound, match=job.id):
            await ask()


@pytest.mark.parametrize("id_", [NOWHERE, "7", "", NOWHERE.upper(), "' OR 1=1 --", None, 7])
async def test_an_unknown_id_is_not_found(app, id_):
    with pytest.raises(JobNotFound):
        await app.job(id_)


async def test_an_id_can_be_a_uuid_object(app, work):
    job = await work.enqueue()
    assert (await app.job(uuid.UUID(job.id))).id == job.id


async def test_requeue_gives_all_tries_again(app, work, clock):
    job = await work.using(unique="k", retry=4).enqueue(fails=True)
    async with app.worker():
        await clock.advance(600)
        with pytest.raises(JobFailed, match="it was told to"):
            await job.result(0)
        assert (job.attempt, job.failures) == (5, 5)
        await job.requeue()
        assert (job.state, job.failures, job.error, job.reason) == ("waiting", 0, None, "")
        await clock.advance(600)
        await job.refresh()
        assert (job.state, job.attempt, job.failures) == ("failed", 10, 5)


async def test_requeue_of_an_unfinished_job_is_refused(app, work, store):
    job = await work.enqueue()
    with pytest.raises(JobStateError, match="has not finished"):
        await job.requeue()
    await claim_and_die(store)
    with pytest.raises(JobStateError, match="has not finished"):
        await job.requeue()


async def test_requeue_is_refused_while_another_job_has_the_key(app, work, clock):
    job = await work.using(unique="k").enqueue()
    await job.cancel()
    await work.using(unique="k").enqueue(1)
    with pytest.raises(JobStateError, match="another job has its unique key"):
        await job.requeue()
    assert (await job.refresh()).state == "cancelled"


async def test_jobs_are_found_by_state_task_queue_and_tag(app, work, clock):
    @app.task(queue="mail")
    async def mail() -> None: ...

    failing = await work.using(tags=["a", "b"], retry=4).enqueue(fails=True)
    done = await mail.using(tags=["b"]).enqueue()
    waiting = await work.using(delay=10_000, tags=["a"]).enqueue()
    async with app.worker():
        await clock.advance(600)

    async def ids(**filters):
        return {job.id for job in await app.jobs(**filters)}

    assert await ids() == {failing.id, done.id, waiting.id}
    assert await ids(state="failed") == {failing.id}
    assert await ids(state="waiting") == {waiting.id}
    assert await ids(task="mail") == {done.id}
    assert await ids(queue="mail") == {done.id}
    assert await ids(tag="a") == {failing.id, waiting.id}
    assert await ids(tag="b", task="work") == {failing.id}
    assert await ids(tag="b", state="waiting") == set()


@pytest.mark.parametrize(
    "filters",
    [
        {"state": "done"},
        {"limit": 0},
        {"limit": 1001},
        {"task": ""},
        {"tag": 7},
        {"queue": "nul \0"},
    ],
)
async def test_invalid_filters_are_refused(app, filters):
    with pytest.raises(ConfigError):
        await app.jobs(**filters)


async def test_jobs_are_listed_newest_first_in_pages_on_every_store(real_make):
    app = await real_make()

    @app.task
    async def work() -> None: ...

    made = [(await work.enqueue()).id for _ in range(3)]
    made += [job.id for job in await app.enqueue_many(work.request() for _ in range(20))]
    listed: list[str] = []
    cursor = None
    for _ in range(100):
        page = await app.jobs(task="work", limit=5, cursor=cursor)
        assert len(page) <= 5
        listed += [job.id for job in page]
        cursor = page.cursor
        if cursor is None:
            break
    assert listed == sorted(made, reverse=True)


@pytest.mark.parametrize("cursor", ["", "nonsense", "z" * 500, "nul \0", NOWHERE])
async def test_an_invalid_cursor_is_refused(real_make, cursor):
    app = await real_make()

    @app.task
    async def work() -> None: ...

    await work.enqueue()
    try:
        page = await app.jobs(cursor=cursor)
    except ConfigError:
        assert cursor != NOWHERE
    else:
        assert len(page) <= 1


async def test_queues_are_counted_on_every_store(real_make):
    app = await real_make()
    inside, go_on = asyncio.Event(), asyncio.Event()

    @app.task(queue="a")
    async def work() -> None:
        inside.set()
        current_job().progress(0.25, "a quarter")
        await go_on.wait()

    assert await app.queues() == []
    job = await work.enqueue()
    await work.using(queue="b", delay=100).enqueue()
    await app.pause_queue("c", until=1000)
    async with app.worker(queues=["a"]) as worker:
        await asyncio.wait_for(inside.wait(), 10)
        counts = {counts.queue: counts for counts in await app.queues()}
        assert sorted(counts) == ["a", "b", "c"]
        assert (counts["a"].waiting, counts["a"].running) == (0, 1)
        assert (counts["b"].waiting, counts["b"].oldest) == (1, None)
        assert 990 < counts["c"].paused_for <= 1000
        await wait_until_async(lambda: says_something(job))
        assert (job.progress, job.message) == (0.25, "a quarter")
        assert job.replica == worker.replica
        go_on.set()
        await job.wait(10)
    await app.resume_queue("c")
    assert [counts.queue for counts in await app.queues()] == ["b"]


@pytest.mark.parametrize("seconds", [-1, "soon", float("nan"), float("inf")])
async def test_invalid_pauses_are_refused(app, seconds):
    with pytest.raises(ConfigError):
        await app.pause_queue("q", until=seconds)
    assert await app.queues() == []


async def test_text_with_odd_characters_is_stored_on_every_store(real_make):
    """Reasons and messages are free text: any characters are stored."""
    app = await real_make()
    odd = "nul \0 surrogate \udcff snow \N{SNOWMAN}"
    has_written, go_on = asyncio.Event(), asyncio.Event()

    @app.task
    async def work() -> None:
        current_job().progress(0.5, odd)
        has_written.set()
        await go_on.wait()

    waiting = await work.using(delay=100).enqueue()
    assert await waiting.cancel(odd)
    assert "snow \N{SNOWMAN}" in waiting.reason
    async with app.worker():
        job = await work.enqueue()
        await asyncio.wait_for(has_written.wait(), 10)

        async def is_told() -> bool:
            return "snow \N{SNOWMAN}" in (await job.refresh()).message

        await wait_until_async(is_told, 10)
        assert (job.progress, job.failures) == (0.5, 0)
        go_on.set()
        await job.wait(10)
    assert job.state == "succeeded"


async def says_something(job) -> bool:
    return (await job.refresh()).progress is not None
