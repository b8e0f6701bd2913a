"""The page of a job: its attempts, its children, and what may be done to it."""

from typing import Any

from tenure import Tenure
from tenure.core.ids import JobIds
from tenure.core.jobs.endings import history_of
from tenure.core.jobs.parents import parent_tag
from tenure.core.jobs.records import JobRecord, NewJob
from tenure.core.leases import Lease
from tenure.core.schedules.records import TIMERS_QUEUE
from tenure.dashboard.locks import _document
from tenure.testing import ManualClock
from tests.dashboard.desk import desk_on
from tests.rig.endings import settlement


async def claim(app: Tenure, queue: str = "default", number: int = 1) -> JobRecord:
    jobs = app._engine.services().store.jobs
    await jobs.beat(["web-1"], ttl=600, meta={})
    [job] = (await jobs.claim("web-1", number, [queue], 1)).jobs
    return job


async def settle(app: Tenure, job: JobRecord, outcome: str, now: int, **details: Any) -> None:
    history = history_of(job, outcome, now, "")
    end = settlement(id=job.id, fence=job.fence, outcome=outcome, history=history, **details)
    assert await app._engine.services().store.jobs.settle([end]) == ["settled"]


async def test_an_attempt_waits_from_the_end_of_the_one_before(
    still: Tenure, clock: ManualClock
) -> None:
    @still.task
    async def work() -> None: ...

    job = await work.enqueue()
    await clock.advance(3)
    first = await claim(still)
    await clock.advance(10)
    await settle(still, first, "retry", clock.wall(), delay=5)
    await clock.advance(7)
    await claim(still, number=2)
    await clock.advance(2)
    async with desk_on(still) as desk:
        attempts = (await desk.get(f"api/jobs/{job.id}"))["attempts"]
    assert [(attempt["wait"], attempt["run"]) for attempt in attempts] == [(3, 10), (7, None)]
    assert [attempt["attempt"] for attempt in attempts] == [1, 2]


async def test_some_of_very_many_children_are_shown(still: Tenure) -> None:
    @still.task
    async def work() -> None: ...

    store = still._engine.services().store
    ids = JobIds(store.clock)
    parents = [await work.enqueue() for _ in range(2)]
    for parent, number in zip(parents, (50, 51), strict=True):
        tags = (parent_tag(parent.id),)
        await store.jobs.insert(
            [NewJob(id=ids.make(), task="child", tags=tags) for _ in range(number)]
        )
    async with desk_on(still) as desk:
        few, many = [await desk.get(f"api/jobs/{parent.id}") for parent in parents]
    assert (len(few["children"]), few["has_more_children"]) == (50, False)
    assert (len(many["children"]), many["has_more_children"]) == (50, True)


async def test_a_run_of_a_timer_is_not_requeued(still: Tenure, clock: ManualClock) -> None:
    """Its timer is triggered: a run that is put back would be beside the next tick."""
    store = still._engine.services().store
    id_ = JobIds(store.clock).make()
    await store.jobs.insert([NewJob(id=id_, task="@tick", queue=TIMERS_QUEUE, schedule="tick")])
    await settle(still, await claim(still, TIMERS_QUEUE), "failed", clock.wall())
    async with desk_on(still) as desk:
        assert (await desk.get(f"api/jobs/{id_}"))["may"] == ["contents", "delete"]


def test_the_smallest_limit_of_the_holders_rules() -> None:
    leases = [
        Lease(key="gpu", holder=f"h{limit}", fence=limit, limit=limit, waiting=waiting)
        for limit, waiting in ((3, False), (2, False), (1, True))
    ]
    assert _document("gpu", leases)["limit"] == 2
    assert _document("gpu", leases[2:])["limit"] == 1
