"""How long finished jobs are kept: by outcome, set by the app, its tasks and single jobs."""

from datetime import timedelta

import pytest

from tenure import ConfigError, Retention, Tenure
from tenure.testing import ManualClock

DAY = 86_400


def declare(app: Tenure, **options):
    @app.task(retry=0, **options)
    async def work(how: str) -> None:
        if how == "fail":
            raise ValueError(how)

    return work


async def test_by_default_a_failure_is_kept_for_a_week_and_the_rest_for_a_day(
    app: Tenure, clock: ManualClock
):
    work = declare(app)
    cancelled = await work.using(delay="1h").enqueue("never")
    await cancelled.cancel()
    async with app.worker():
        succeeded, failed = await work.enqueue("do"), await work.enqueue("fail")
        await clock.advance(1)
    clock.shift(DAY - 2)
    assert await app.prune_jobs() == 0
    clock.shift(2)
    assert await app.prune_jobs() == 2
    assert [job.id for job in await app.jobs()] == [failed.id]
    assert (await failed.refresh()).state == "failed"
    clock.shift(6 * DAY)
    assert await app.prune_jobs() == 1
    assert succeeded.id != failed.id


async def kept(app: Tenure, clock: ManualClock, work) -> tuple[float, float]:
    """Return how long a succeeded and a failed job of a task are kept."""
    async with app.worker():
        jobs = [await work.enqueue("do"), await work.enqueue("fail")]
        await clock.advance(1)
    succeeded, failed = [(await job.refresh()).record for job in jobs]
    assert (succeeded.state, failed.state) == ("succeeded", "failed")
    return succeeded.kept_for, failed.kept_for


@pytest.mark.parametrize(
    ("of_app", "of_task", "expected"),
    [
        (None, None, (DAY, 7 * DAY)),
        ("2h", None, (7200, 7200)),
        (None, timedelta(hours=1), (3600, 3600)),
        (Retention(failed="30d"), None, (DAY, 30 * DAY)),
        ("2h", Retention(failed="30d"), (7200, 30 * DAY)),
        (Retention(failed="30d"), Retention(succeeded="1h"), (3600, 30 * DAY)),
        (Retention(failed="30d"), "1h", (3600, 3600)),
        (Retention(), Retention(), (DAY, 7 * DAY)),
        ("1s", Retention(failed=0), (60, 60)),
    ],
)
async def test_the_retention_that_a_task_leaves_out_is_that_of_the_app(
    make, clock: ManualClock, of_app, of_task, expected
):
    app = await make(retention=of_app)
    assert await kept(app, clock, declare(app, retention=of_task)) == expected


async def test_a_single_job_may_be_kept_for_longer(app: Tenure, clock: ManualClock):
    work = declare(app, retention="1h")
    longer = work.using(retention=Retention(succeeded="2d"))
    assert await kept(app, clock, longer) == (2 * DAY, 7 * DAY)


@pytest.mark.parametrize("wrong", [-1, "soon", True, float("inf"), "20000d", object()])
def test_an_invalid_retention_is_refused(app: Tenure, wrong):
    for declare_wrong in (
        lambda: declare(app, retention=wrong),
        lambda: Tenure("memory://", retention=wrong),
        lambda: Retention(succeeded=wrong),
        lambda: Retention(failed=wrong),
        lambda: app.timer(every="1m", retention=wrong)(no_op),
    ):
        with pytest.raises(ConfigError, match="retention must be"):
            declare_wrong()


async def no_op() -> None: ...


async def test_runs_of_timers_are_listed_only_on_request(app: Tenure, clock: ManualClock):
    app.timer(every=1, name="tick")(no_op)
    work = declare(app)
    jobs = [await work.enqueue("do") for _ in range(3)]
    async with app.worker():
        await clock.advance(30.5)
    ids = [job.id for job in reversed(jobs)]
    assert [job.id for job in await app.jobs()] == ids
    first = await app.jobs(limit=2)
    assert [job.id for job in first] == ids[:2]
    assert first.cursor is not None
    assert [job.id for job in await app.jobs(limit=2, cursor=first.cursor)] == ids[2:]
    assert len(await app.jobs(timers=True)) == 33
    assert len(await app.jobs(task="@tick")) == 30
    assert len(await app.jobs(queue="@timers")) == 30
    assert len(await app.jobs(state="succeeded", tag=None)) == 3


async def test_a_flood_of_runs_ends_a_page_early(
    app: Tenure, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("tenure.jobs.service._LOOK", 4)
    monkeypatch.setattr("tenure.jobs.service._LOOKS", 2)
    app.timer(every=1, name="tick")(no_op)
    work = declare(app)
    job = await work.enqueue("do")
    async with app.worker():
        await clock.advance(9.5)
    page = await app.jobs()
    assert (page, page.cursor is None) == ([], False)
    page = await app.jobs(cursor=page.cursor)
    assert ([job.id for job in page], page.cursor) == ([job.id], None)
