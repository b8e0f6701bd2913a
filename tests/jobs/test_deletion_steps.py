"""What may become of a running job between the steps that delete it."""

from collections.abc import Awaitable, Callable

import pytest

from tenure import Tenure
from tenure.core.jobs.records import JobRecord
from tenure.errors import JobNotFound, JobUnreadable
from tenure.jobs.deletion import Deletion
from tests.rig.endings import settlement

Wait = Callable[[str, float | None], Awaitable[object]]


class Desk:
    """A worker whose jobs end when a test says so."""

    def __init__(self, app: Tenure) -> None:
        self.app = app
        self.jobs = app._engine.services().store.jobs
        self.claims = 0

    async def claim(self) -> JobRecord:
        self.claims += 1
        await self.jobs.beat(["ann"], ttl=1000, meta={})
        [job] = (await self.jobs.claim("ann", self.claims, ["default"], 1)).jobs
        return job

    async def end(self, job: JobRecord) -> None:
        end = settlement(id=job.id, fence=job.fence, outcome="cancelled")
        assert await self.jobs.settle([end]) == ["settled"]

    async def delete(self, job: JobRecord, wait: Wait) -> list[str | None]:
        engine = self.app._engine
        deletion = Deletion(engine.services().store, engine.events, wait, cancel=True, timeout=None)
        return [*await deletion.run([job.id])]


@pytest.fixture
async def desk(app: Tenure) -> Desk:
    return Desk(app)


async def test_a_job_that_is_gone_at_its_end_counts_as_deleted(app: Tenure, desk: Desk):
    """Its retention is over, or another caller has deleted it."""

    @app.task
    async def work() -> None: ...

    await work.enqueue()
    job = await desk.claim()

    async def wait(id_: str, left: float | None) -> None:
        await desk.end(job)
        assert await desk.jobs.delete([id_]) == ["deleted"]
        raise JobNotFound(id_)

    assert await desk.delete(job, wait) == ["deleted"]


async def test_a_job_that_starts_again_meanwhile_is_cancelled_again(app: Tenure, desk: Desk):
    @app.task
    async def work() -> None: ...

    await work.enqueue()
    running = [await desk.claim()]
    first = running[0]

    async def wait(id_: str, left: float | None) -> None:
        await desk.end(running.pop())
        if desk.claims < 3:
            assert await desk.jobs.requeue([id_]) == ["requeued"]
            running.append(await desk.claim())

    assert await desk.delete(first, wait) == ["deleted"]
    assert desk.claims == 3
    assert await desk.jobs.get([first.id]) == [None]


async def test_a_job_that_cannot_be_read_is_deleted_all_the_same(app: Tenure, desk: Desk):
    @app.task
    async def work() -> None: ...

    await work.enqueue()
    job = await desk.claim()

    async def wait(id_: str, left: float | None) -> None:
        await desk.end(job)
        raise JobUnreadable(id_)

    assert await desk.delete(job, wait) == ["deleted"]
