"""Enqueueing jobs: options, unique keys, many at once."""

import asyncio
from datetime import UTC, datetime, timedelta, timezone, tzinfo

import pytest

from tenure import ConfigError, StoreError, Tenure, Unique, UniqueMismatch
from tenure.app import engine_of
from tenure.core.lease_policy import TTL_MAX


@pytest.fixture
def work(app: Tenure):
    @app.task(queue="mail", priority=4, timeout=30, retention="1h")
    async def work(n: int = 0, **named: int) -> int:
        return n

    return work


async def test_a_job_has_the_options_of_its_task(app, work, clock):
    job = await work.enqueue(1)
    now = datetime.fromtimestamp(clock.wall() / 1e6, tz=UTC)
    for handle in (job, await app.job(job.id)):
        assert (handle.task, handle.queue, handle.priority, handle.tags) == ("work", "mail", 4, ())
        assert (handle.record.timeout, handle.record.retention) == (30, 3600)
        assert (handle.state, handle.attempt, handle.failures, handle.losses) == (
            "waiting",
            0,
            0,
            0,
        )
        assert (handle.created, handle.due, handle.started, handle.finished) == (
            now,
            now,
            None,
            None,
        )
        assert (handle.error, handle.trace, handle.progress, handle.replica) == (None, "", None, "")
        assert handle.history == []
        assert not handle.is_finished
    assert job.is_new
    assert repr(job) == f"<Job {job.id} of 'work', waiting>"


async def test_a_job_may_have_options_of_its_own(app, work, clock):
    special = work.using(
        delay="5m", priority=0, queue="urgent", tags=["a", "b", "a"], timeout=5, retention=90
    )
    job = await app.job((await special.enqueue(1)).id)
    assert (job.queue, job.priority, job.tags) == ("urgent", 0, ("a", "b"))
    assert (job.record.timeout, job.record.retention) == (5, 90)
    assert job.due - job.created == timedelta(minutes=5)
    assert work.options.queue == "mail"  # the task itself is unchanged


async def test_the_default_retention_is_that_of_the_app(make):
    app = await make(retention="2d")

    @app.task
    async def plain() -> None: ...

    assert (await plain.enqueue()).record.retention == 2 * 86400


async def test_a_job_can_be_due_at_an_instant(app, work, clock):
    at = datetime(2027, 6, 1, 12, tzinfo=timezone(timedelta(hours=2)))
    job = await work.using(at=at).enqueue()
    assert job.due == at
    assert (await app.job(job.id)).due == at
    assert (await work.using(at=at).using(delay=1).enqueue()).due < at
    assert (await work.using(delay=1).using(at=at).enqueue()).due == at


class NoZone(tzinfo):
    """A time zone without an offset; a datetime with it counts as naive."""

    def utcoffset(self, when):
        return None


@pytest.mark.parametrize(
    "options",
    [
        {"at": datetime(2027, 1, 1)},  # noqa: DTZ001 - it is a mistake
        {"at": datetime(2027, 1, 1, tzinfo=NoZone())},
        {"at": "tomorrow"},
        {"at": datetime(2027, 1, 1, tzinfo=UTC), "delay": 1},
        {"delay": -1},
        {"delay": float("inf")},
        {"delay": 2 * TTL_MAX},
        {"priority": 10},
        {"priority": -1},
        {"priority": 1.0},
        {"queue": ""},
        {"queue": "@own"},
        {"queue": "nul\0"},
        {"unique": ""},
        {"unique": "x" * 201},
        {"unique": 7},
        {"tags": "word"},
        {"tags": [""]},
        {"tags": [str(n) for n in range(11)]},
        {"timeout": 0},
        {"timeout": -1},
        {"retention": "for ever"},
    ],
)
async def test_invalid_options_are_refused(app, work, options):
    with pytest.raises(ConfigError):
        work.using(**options)
    assert await app.jobs() == []


async def test_a_naive_datetime_is_explained(app, work):
    with pytest.raises(ConfigError, match="has no time zone"):
        work.using(at=datetime(2027, 1, 1))  # noqa: DTZ001 - it is a mistake


async def test_many_jobs_are_inserted_in_slices(app, work, faults):
    jobs = await app.enqueue_many(work.request(n) for n in range(450))
    assert faults.calls["insert"] == 3
    assert len({job.id for job in jobs}) == 450
    assert all(job.is_new for job in jobs)
    assert [count.waiting for count in await app.queues()] == [450]
    assert await app.enqueue_many([]) == []


async def test_large_arguments_make_smaller_slices(app, faults):
    keep = app.task(lambda text: None, name="keep")
    await app.enqueue_many(keep.request("x" * 250_000) for _ in range(20))
    assert faults.calls["insert"] == 2
    assert [count.waiting for count in await app.queues()] == [20]


async def test_concurrent_enqueues_share_round_trips(app, work, faults):
    jobs = await asyncio.gather(*(work.enqueue(n) for n in range(300)))
    assert faults.calls["insert"] <= 3
    assert [job.record.payload for job in jobs] == [f'{{"n":{n}}}'.encode() for n in range(300)]


async def test_a_mismatch_among_many_does_not_stop_the_others(app, work):
    first = await work.using(unique="k").enqueue(1)
    requests = [work.request(5), work.using(unique="k").request(2), work.request(6)]
    with pytest.raises(UniqueMismatch) as caught:
        await app.enqueue_many(requests)
    assert (caught.value.key, caught.value.job) == ("k", first.id)
    assert (await app.queues())[0].waiting == 3
    [five, mismatch, six] = await app.enqueue_many(requests, return_exceptions=True)
    assert isinstance(mismatch, UniqueMismatch)
    assert five.is_new
    assert six.is_new
    assert (await app.queues())[0].waiting == 5


@pytest.mark.parametrize("wrong", [7, None, "work"])
async def test_an_object_that_is_no_request_is_refused(app, work, wrong):
    with pytest.raises(ConfigError, match="enqueue takes"):
        await app.enqueue(wrong)
    with pytest.raises(ConfigError, match="enqueue takes"):
        await app.enqueue_many([work.request(1), wrong])
    assert await app.jobs() == []


async def test_a_request_can_be_enqueued_twice(app, work):
    request = work.request(1)
    first, second = await app.enqueue(request), await app.enqueue(request)
    assert first.id != second.id


async def test_a_unique_key_returns_the_job_that_has_it(app, work, clock):
    only = work.using(unique="welcome:7")
    first = await only.enqueue(7)
    second = await only.enqueue(7)
    assert (first.is_new, second.is_new) == (True, False)
    assert first.id == second.id
    with pytest.raises(UniqueMismatch, match="'welcome:7'"):
        await only.enqueue(8)
    async with app.worker():
        await clock.advance(0.1)
        assert await second.result(0) == 7
    third = await only.enqueue(8)
    assert third.is_new
    assert third.id != first.id


async def test_the_order_of_keyword_arguments_does_not_matter(app, work):
    only = work.using(unique="k")
    first = await only.enqueue(a=1, b=2)
    assert (await only.enqueue(b=2, a=1)).id == first.id
    with pytest.raises(UniqueMismatch):
        await only.enqueue(a=2, b=1)


async def test_a_unique_key_may_be_kept_beyond_the_end_of_its_job(app, work, clock):
    only = work.using(unique=Unique("k", keep="1h"), retention=1)
    first = await only.enqueue(7)
    async with app.worker():
        await clock.advance(0.1)
    assert (await only.enqueue(7)).id == first.id
    clock.shift(1800)
    await app.prune_jobs()
    again = await only.enqueue(7)
    assert (again.id, again.is_new) == (first.id, False)
    assert await again.result(timeout=0) == 7
    clock.shift(1800)
    assert (await only.enqueue(7)).is_new


async def test_tasks_do_not_share_unique_keys(app, work):
    @app.task(name="a:b")
    async def first() -> None: ...

    @app.task(name="a")
    async def second() -> None: ...

    assert (await first.using(unique="c").enqueue()).is_new
    assert (await second.using(unique="b:c").enqueue()).is_new
    assert (await second.using(unique="c").enqueue()).is_new


async def test_enqueueing_needs_an_open_app():
    app = Tenure("memory://")

    @app.task
    async def work() -> None: ...

    with pytest.raises(StoreError, match="not open"):
        await work.enqueue()


async def test_on_every_store_fifty_at_once_with_one_key_make_one_job(real_make):
    apps = [await real_make() for _ in range(2)]

    async def work(n: int) -> int:
        return n

    tasks = [app.task(work) for app in apps]
    only = [task.using(unique="k") for task in tasks]
    jobs = await asyncio.gather(*(only[n % 2].enqueue(1) for n in range(50)))
    assert len({job.id for job in jobs}) == 1
    assert sum(job.is_new for job in jobs) == 1
    with pytest.raises(UniqueMismatch):
        await only[0].enqueue(2)
    async with apps[1].worker():
        assert await jobs[0].result(10) == 1


async def test_on_every_store_jobs_are_stored_unchanged(real_make):
    app = await real_make()

    @app.task
    async def work(text: str) -> str:
        return text[::-1]

    text = "snow \N{SNOWMAN} nul \0 quote ' backslash \\ {}"
    at = datetime(2099, 6, 1, 12, 30, 0, 123456, tzinfo=UTC)
    job = await work.using(
        at=at, priority=7, queue="q \N{SNOWMAN}", tags=["t'1", "ünï"], timeout=1.5, retention=70.5
    ).enqueue(text)
    read = await app.job(job.id)
    assert (read.due, read.priority, read.queue) == (at, 7, "q \N{SNOWMAN}")
    assert set(read.tags) == {"t'1", "ünï"}
    assert (read.record.timeout, read.record.retention) == (1.5, 70.5)
    assert read.record.payload == job.record.payload
    now = await work.enqueue(text)
    async with app.worker():
        assert await now.result(10) == text[::-1]


async def test_existing_jobs_are_looked_up_together(app: Tenure, faults):
    @app.task
    async def work(number: int) -> None: ...

    def requests():
        return (work.using(unique=str(number)).request(number) for number in range(300))

    first = await app.enqueue_many(requests())
    faults.calls.clear()
    again = await app.enqueue_many(requests())
    assert [job.id for job in again] == [job.id for job in first]
    assert not any(job.is_new for job in again)
    assert faults.calls["get"] == 2


async def test_a_cancelled_job_may_be_removed_before_it_is_looked_up(
    app: Tenure, clock, monkeypatch
):
    @app.task(retention=60)
    async def work() -> None: ...

    job = await work.enqueue()
    cancel = engine_of(app).store.jobs.cancel

    async def cancel_and_prune(*args, **kwargs):
        answer = await cancel(*args, **kwargs)
        clock.shift(60)
        assert await app.prune_jobs() == 1
        return answer

    monkeypatch.setattr(engine_of(app).store.jobs, "cancel", cancel_and_prune)
    assert await job.cancel()


async def test_on_every_store_a_job_can_be_due_at_a_distant_instant(real_make):
    app = await real_make()

    @app.task
    async def work() -> str:
        return "long overdue"

    ages_ago = datetime(1, 1, 2, tzinfo=UTC)
    never = datetime(9999, 12, 30, 23, 59, 59, tzinfo=UTC)
    late = await work.using(at=never).enqueue()
    early = await work.using(at=ages_ago).enqueue()
    async with app.worker():
        assert await early.result(10) == "long overdue"
    read = await app.job(late.id)
    assert read.state == "waiting"
    assert abs(read.due - never) < timedelta(seconds=1)
    assert [count.waiting for count in await app.queues()] == [1]
