"""What cancel, requeue and delete do to jobs that run or have ended, one by one and in bulk."""

import asyncio
import logging
from typing import Any

import pytest

from tenure import Tenure
from tenure.core.ids import JobIds
from tenure.core.jobs.records import BATCH_MAX, JobRecord, NewJob
from tenure.core.schedules.records import TIMERS_QUEUE
from tenure.http.request import owner_tag
from tenure.observe import JobCancelled
from tenure.stores.contract import Store
from tenure.testing import Faults, ManualClock
from tests.dashboard.desk import Desk, desk_on
from tests.rig.endings import settlement
from tests.rig.wait import wait_until_async


@pytest.fixture
async def store(still: Tenure) -> Store:
    return still._engine.services().store


@pytest.fixture
def cancelled(still: Tenure) -> list[str]:
    """The ids of the jobs of which an event said that they were cancelled."""
    ids: list[str] = []
    still.on_event(lambda event: ids.append(event.job) if isinstance(event, JobCancelled) else None)
    return ids


async def insert(store: Store, number: int = 1, **options: Any) -> list[str]:
    """Store jobs; return their ids, oldest first."""
    ids = JobIds(store.clock)
    jobs = [NewJob(**{"id": ids.make(), "task": "t"} | options) for _ in range(number)]
    for first in range(0, number, BATCH_MAX):
        await store.jobs.insert(jobs[first : first + BATCH_MAX])
    return [job.id for job in jobs]


async def claim(store: Store, *queues: str) -> list[JobRecord]:
    """Let a worker claim what is due."""
    await store.jobs.beat(["web-1"], ttl=600, meta={})
    claimed = await store.jobs.claim("web-1", 1, queues or ["default"], BATCH_MAX)
    return claimed.jobs


async def bulk(desk: Desk, action: str, count: int, **chosen: str) -> Any:
    return await desk.post("api/jobs/bulk", action=action, filter=chosen, count=count)


async def test_a_running_job_is_cancelled_before_it_is_deleted(still: Tenure, store: Store) -> None:
    [id_] = await insert(store)
    await claim(store)
    async with desk_on(still) as desk:
        job = f"api/jobs/{id_}"
        assert (await desk.get(job))["may"] == ["contents", "cancel"]
        refused = await desk.post(f"{job}/delete", 409)
        assert "Cancel this job first" in refused["detail"]
        assert await desk.post(f"{job}/cancel") == {"outcome": "requested"}
        assert (await desk.get(job))["may"] == ["contents"]
        assert await bulk(desk, "delete", 9, queue="default") == {"done": 0, "skipped": 0}
        assert (await desk.get(job))["state"] == "running"


async def test_a_cancellation_has_its_event(
    still: Tenure, store: Store, cancelled: list[str]
) -> None:
    first, *others = await insert(store, 3)
    async with desk_on(still) as desk:
        await desk.post(f"api/jobs/{first}/cancel")
        assert cancelled == [first]
        assert (await bulk(desk, "cancel", 2, queue="default"))["done"] == 2
    assert sorted(cancelled) == [first, *others]


async def test_a_request_to_stop_counts_as_done(still: Tenure, store: Store) -> None:
    await insert(store, 2)
    await claim(store)
    await insert(store)
    async with desk_on(still) as desk:
        assert await bulk(desk, "cancel", 3, queue="default") == {"done": 3, "skipped": 0}


async def test_a_requeue_is_for_what_has_failed(still: Tenure, store: Store) -> None:
    """Unless the filter names another state."""
    await insert(store, 3)
    lost, done, unwanted = await claim(store)
    ends = {"failed": lost, "succeeded": done, "cancelled": unwanted}
    await store.jobs.settle(
        [settlement(id=job.id, fence=job.fence, outcome=end) for end, job in ends.items()]
    )
    async with desk_on(still) as desk:
        count = {"action": "requeue", "filter": {"queue": "default"}}
        assert (await desk.post("api/jobs/count", **count))["count"] == 1
        assert (await bulk(desk, "requeue", 1, queue="default"))["done"] == 1
    [job] = await store.jobs.get([lost.id])
    assert job is not None
    assert job.state == "waiting"


async def test_jobs_start_again_in_their_old_order(
    still: Tenure, store: Store, faults: Faults, clock: ManualClock
) -> None:
    """There may be seconds between two batches, and the first one starts first."""
    ids = await insert(store, BATCH_MAX + 1)
    async with desk_on(still) as desk:
        await bulk(desk, "cancel", len(ids), queue="default")
        faults.delay("requeue", 1)
        sent = asyncio.create_task(
            bulk(desk, "requeue", len(ids), queue="default", state="cancelled")
        )
        for number in (1, 2):
            await wait_until_async(lambda number=number: faults.calls["requeue"] == number)
            await clock.advance(1)
        assert (await sent)["done"] == len(ids)
    assert [job.id for job in await claim(store)] == ids[:BATCH_MAX]


async def test_runs_of_timers_are_left_alone(still: Tenure, store: Store) -> None:
    """They belong to their timers, and are chosen by their queue or task, or when asked for."""
    await insert(store, 2, queue=TIMERS_QUEUE, task="@tick", tags=("x",))
    await insert(store, tags=("x",))
    async with desk_on(still) as desk:
        for chosen in ({"state": "waiting"}, {"tag": "x"}, {"state": "waiting", "tag": "x"}):
            count = await desk.post("api/jobs/count", filter=chosen, action="cancel")
            assert count["count"] == 1
        count = await desk.post("api/jobs/count", filter={"tag": "x", "timers": True})
        assert count["count"] == 3


async def test_the_audit_log_names_no_owner(
    still: Tenure, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "tenure.dashboard")
    tag = owner_tag("/reports", "ada")
    await insert(store, tags=(tag,))
    async with desk_on(still, routers=["/reports"]) as desk:
        assert (await bulk(desk, "delete", 1, owner="ada"))["done"] == 1
    [line] = caplog.messages
    assert line.endswith("delete 1 of 1 jobs with owner (one)")
    assert "ada" not in str(caplog.records[0].__dict__)
    assert tag not in str(caplog.records[0].__dict__)
