"""Actions on jobs that a viewer has chosen one by one."""

from typing import Any

import pytest

from tenure import Job, Tenure
from tests.dashboard.desk import desk_on

UNKNOWN_JOB = "01890a5d-ac96-774b-bcce-b302099a8057"


async def jobs_of(app: Tenure, fails: bool, number: int = 3) -> list[Job[Any]]:
    """Return jobs that have ended."""

    @app.task(retry=0, name=f"work-{fails}")
    async def work() -> None:
        if fails:
            raise ValueError("no luck")

    jobs = [await work.enqueue() for _ in range(number)]
    async with app.worker():
        for job in jobs:
            await job.wait(timeout=20)
    return jobs


async def states(jobs: list[Job[Any]]) -> list[str]:
    return [(await job.refresh()).state for job in jobs]


async def test_only_the_chosen_jobs_are_touched(
    app: Tenure, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "tenure.dashboard")
    failed = await jobs_of(app, fails=True)
    [well] = await jobs_of(app, fails=False, number=1)
    async with desk_on(app) as desk:
        ids = [failed[0].id, failed[2].id, UNKNOWN_JOB, failed[0].id]
        answer = await desk.post("api/jobs/chosen", action="requeue", ids=ids)
        assert answer == {"done": 2, "skipped": 1}
        assert await states(failed) == ["waiting", "failed", "waiting"]
        answer = await desk.post(
            "api/jobs/chosen", action="cancel", ids=[job.id for job in (*failed, well)]
        )
        assert answer == {"done": 2, "skipped": 2}
        assert await states([*failed, well]) == ["cancelled", "failed", "cancelled", "succeeded"]
        answer = await desk.post("api/jobs/chosen", action="delete", ids=[failed[1].id, well.id])
        assert answer == {"done": 2, "skipped": 0}
        assert {job.id for job in await app.jobs()} == {failed[0].id, failed[2].id}
    assert well.id in caplog.messages[-1]


async def test_the_log_names_each_of_them(still: Tenure, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "tenure.dashboard")

    @still.task
    async def work() -> None: ...

    ids = [(await work.enqueue()).id for _ in range(200)]
    async with desk_on(still) as desk:
        await desk.post("api/jobs/chosen", action="delete", ids=ids)
    assert {id_ for id_ in ids if id_ in caplog.messages[-1]} == {*ids}
    assert " by ann: delete 200 of 200 chosen jobs: " in caplog.messages[-1]


async def test_running_jobs_are_not_deleted(still: Tenure) -> None:
    @still.task
    async def work() -> None: ...

    job = await work.enqueue()
    store = still._engine.services().store
    await store.jobs.beat(["web-1"], ttl=60, meta={})
    await store.jobs.claim("web-1", 1, ["default"], 1)
    async with desk_on(still) as desk:
        answer = await desk.post("api/jobs/chosen", action="delete", ids=[job.id])
        assert answer == {"done": 0, "skipped": 1}
    assert (await job.refresh()).state == "running"


@pytest.mark.parametrize(
    "body",
    [
        {"action": "burn", "ids": [UNKNOWN_JOB]},
        {"ids": [UNKNOWN_JOB]},
        {"action": "cancel"},
        {"action": "cancel", "ids": []},
        {"action": "cancel", "ids": [UNKNOWN_JOB] * 201},
        {"action": "cancel", "ids": ["x"]},
        {"action": "cancel", "ids": [7]},
        {"action": "cancel", "ids": UNKNOWN_JOB},
    ],
)
async def test_other_choices_are_refused(still: Tenure, body: dict[str, Any]) -> None:
    async with desk_on(still) as desk:
        await desk.post("api/jobs/chosen", 400, **body)
