"""What viewers can do, on every store, and the line that each action leaves in the audit log."""

import asyncio
import logging
from functools import partial

import pytest

from tenure import Tenure
from tenure.core.jobs.records import BATCH_MAX
from tenure.dashboard import Viewer
from tenure.testing import Faults, ManualClock
from tests.dashboard.desk import desk_on
from tests.rig.wait import wait_until_async

WATCHER = Viewer("wim", may_act=False)


@pytest.fixture(autouse=True)
def _audit_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tenure.dashboard")


def audit_of(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str, str, str]]:
    """Return viewer, action, subject and outcome of each line of the audit log, and forget them."""
    lines = [
        (record.viewer, record.action, record.subject, record.outcome)
        for record in caplog.records
        if record.name == "tenure.dashboard"
    ]
    caplog.clear()
    return lines


async def test_jobs_are_cancelled_requeued_and_deleted(
    app: Tenure, caplog: pytest.LogCaptureFixture
) -> None:
    @app.task
    async def work() -> None: ...

    job = await work.enqueue()
    async with desk_on(app) as desk:
        path = f"api/jobs/{job.id}"
        assert (await desk.get(path))["may"] == ["contents", "cancel", "delete"]
        answer = await desk.post(f"{path}/cancel", reason="sent twice")
        assert answer == {"outcome": "cancelled"}
        shown = await desk.get(path)
        assert (shown["state"], shown["reason"]) == ("cancelled", "sent twice")
        assert await desk.post(f"{path}/requeue") == {"outcome": "requeued"}
        assert (await desk.get(path))["state"] == "waiting"
        refused = await desk.post(f"{path}/requeue", 409)
        assert "has not finished" in refused["detail"]
        await desk.post(f"{path}/cancel")
        assert await desk.post(f"{path}/delete") == {"outcome": "deleted"}
        await desk.get(path, 404)
        for action in ("cancel", "requeue", "delete", "contents"):
            await desk.post(f"{path}/{action}", 404)
        await desk.post("api/jobs/no-id/delete", 404)
    assert audit_of(caplog)[:4] == [
        ("ann", "cancel job", job.id, "cancelled"),
        ("ann", "requeue job", job.id, "requeued"),
        ("ann", "requeue job", job.id, "failed: JobStateError"),
        ("ann", "cancel job", job.id, "cancelled"),
    ]


async def test_queues_are_paused_and_resumed(app: Tenure, caplog: pytest.LogCaptureFixture) -> None:
    async with desk_on(app) as desk:
        await desk.post("api/queues/a%2Fb/pause", seconds=60, reason="moving")
        [queue] = (await desk.get("api/overview"))["queues"]
        assert (queue["name"], queue["is_paused"], queue["pause_reason"]) == ("a/b", True, "moving")
        assert 50 < queue["paused_for"] <= 60
        await desk.post("api/queues/a%2Fb/pause", seconds=None, reason="")
        [queue] = (await desk.get("api/overview"))["queues"]
        assert (queue["is_paused"], queue["paused_for"]) == (True, None)
        await desk.post("api/queues/a%2Fb/resume")
        assert (await desk.get("api/overview"))["queues"] == []
        for wrong in (0, -1, "60", True, 1e18):
            await desk.post("api/queues/a%2Fb/pause", 400, seconds=wrong, reason="")
    assert audit_of(caplog)[:3] == [
        ("ann", "pause queue", "a/b", "paused for 60 s"),
        ("ann", "pause queue", "a/b", "paused"),
        ("ann", "resume queue", "a/b", "resumed"),
    ]


async def test_timers_are_paused_resumed_and_triggered(
    app: Tenure, caplog: pytest.LogCaptureFixture
) -> None:
    @app.timer(cron="0 3 1 1 *")
    async def report() -> None: ...

    async with desk_on(app) as desk, app.worker():
        await wait_until_async(app.replicas)
        await wait_until_async(app.timers)
        await desk.post("api/timers/report/pause", seconds=60, reason="moving")
        timer = await desk.get("api/timers/report")
        assert timer["pause"]["reason"] == "moving"
        assert timer["why"]["code"] == "paused"
        assert "moving" in timer["why"]["text"]
        await desk.post("api/timers/report/resume")
        assert (await desk.get("api/timers/report"))["pause"] is None
        run = await desk.post("api/timers/report/trigger")
        job = await app.job(run["job"])
        await job.wait(20)
        await desk.post("api/timers/pause", seconds=None, reason="release")
        listed = await desk.get("api/timers")
        assert (listed["paused"]["reason"], listed["paused"]["until"]) == ("release", None)
        assert (await desk.get("api/overview"))["ticks"] == []
        await desk.post("api/timers/resume")
        assert (await desk.get("api/timers"))["paused"] is None
        await desk.post("api/timers/other/trigger", 404)
    assert [line[1:] for line in audit_of(caplog)] == [
        ("pause timer", "report", "paused for 60 s"),
        ("resume timer", "report", "resumed"),
        ("trigger timer", "report", f"triggered: job {run['job']}"),
        ("pause all timers", "", "paused"),
        ("resume all timers", "", "resumed"),
        ("trigger timer", "other", "failed: TimerNotFound"),
    ]


async def test_a_lock_is_released_only_under_its_fence(
    app: Tenure, caplog: pytest.LogCaptureFixture
) -> None:
    async with desk_on(app) as desk:
        hold = await app.lock("invoice:42").acquire()
        [holder] = (await desk.get("api/locks"))["locks"][0]["holders"]
        body = {"name": "invoice:42", "holder": holder["holder"], "fence": hold.fence}
        other = await desk.post("api/locks/release", **{**body, "fence": hold.fence - 1})
        assert other == {"released": False}
        for wrong in (0, -1, 2**63, "1", 1.5, True):
            await desk.post("api/locks/release", 400, **{**body, "fence": wrong})
        await desk.post("api/locks/release", 400, name="invoice:42", fence=hold.fence)
        assert (await desk.get("api/locks"))["locks"]
        assert await desk.post("api/locks/release", **body) == {"released": True}
        assert (await desk.get("api/locks"))["locks"] == []
        await hold.release()
    assert audit_of(caplog)[-1] == (
        *("ann", "release lock", "invoice:42"),
        f"fence {hold.fence} released",
    )


ACTIONS = (
    *(f"jobs/ID/{verb}" for verb in ("cancel", "requeue", "delete", "contents")),
    *(
        "jobs/count",
        "jobs/bulk",
        "jobs/chosen",
        "queues/mail/pause",
        "queues/mail/resume",
        "locks/release",
    ),
    *(f"timers/report/{verb}" for verb in ("pause", "resume", "trigger")),
    *("timers/pause", "timers/resume"),
)


@pytest.mark.parametrize("viewer", [WATCHER, None])
async def test_who_may_only_look_changes_nothing(
    still: Tenure, viewer: Viewer | None, caplog: pytest.LogCaptureFixture
) -> None:
    @still.task
    async def work(word: str) -> None: ...

    job = await work.enqueue("secret")
    revision = job.record.revision
    body = {"filter": {"state": "waiting"}, "action": "cancel", "count": 9, "seconds": None}
    async with desk_on(still, viewer) as desk:
        for action in ACTIONS:
            refusal = await desk.post(f"api/{action.replace('ID', job.id)}", 403, **body)
            assert "secret" not in str(refusal)
    assert (await job.refresh()).record.revision == revision
    assert [queue.paused_for for queue in await still.queues()] == [None]
    outcomes = [outcome.partition(":")[0] for *_, outcome in audit_of(caplog)]
    # A stranger could fill the log; and a count is no action.
    assert outcomes == (["refused"] * (len(ACTIONS) - 1) if viewer else [])


async def test_actions_that_are_cut_off_are_logged(
    still: Tenure, faults: Faults, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """A server that stops cancels its requests; some jobs may have been changed by then."""

    @still.task
    async def work() -> None: ...

    jobs = await still.enqueue_many(work.request() for _ in range(BATCH_MAX + 1))
    single = f"api/queues/{jobs[0].queue}/pause", {"seconds": None}
    bulk = "api/jobs/bulk", {"action": "cancel", "filter": {"task": "work"}, "count": len(jobs)}
    async with desk_on(still) as desk:
        for call, (path, body) in (("pause", single), ("cancel", bulk)):
            faults.delay(call, 60)
            request = asyncio.create_task(desk.post(path, **body))
            await wait_until_async(partial(faults.calls.__contains__, call))
            if call == "cancel":  # the second of two batches
                await clock.advance(60)
                await wait_until_async(lambda: faults.calls["cancel"] == 2)
            request.cancel()
            with pytest.raises(asyncio.CancelledError):
                await request
    assert audit_of(caplog) == [
        ("ann", "pause queue", jobs[0].queue, "cut off: CancelledError"),
        ("ann", "cancel jobs", "task work", f"{BATCH_MAX} before an error"),
        ("ann", "bulk", "", "cut off: CancelledError"),
    ]


async def test_the_audit_log_is_one_line_without_reasons(
    still: Tenure, caplog: pytest.LogCaptureFixture
) -> None:
    viewer = Viewer("a\nn\x1bn")
    async with desk_on(still, viewer) as desk:
        await desk.post("api/queues/x%0Ay/pause", seconds=None, reason="canary")
    [record] = caplog.records
    assert record.levelno == logging.INFO
    assert record.getMessage() == r"dashboard: pause queue x\ny by a\nn\x1bn: paused"
    assert "canary" not in str(record.__dict__)
