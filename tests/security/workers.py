"""Workers of these tests: one app, one task that takes anything, and jobs past all checks."""

from collections.abc import Sequence
from typing import Any

from tenure import Backoff, Tenure
from tenure.app import engine_of
from tenure.core.clock import SystemClock
from tenure.core.ids import JobIds
from tenure.core.jobs.records import JobRecord, NewJob
from tenure.core.jobs.states import FINISHED
from tests.contract.worlds import World
from tests.rig.sizes import SIZE
from tests.rig.wait import wait_until_async

_ids = JobIds(SystemClock())


def app_on(world: World, **settings: Any) -> Tenure:
    """Return an app whose task `taking` returns what it gets, without a second try."""
    app = Tenure(world.unopened(), replica_ttl=2, **settings)

    @app.task(name="taking", retry=Backoff(max_attempts=1))
    async def taking(value: Any, number: int = 0) -> Any:
        del number
        return value

    return app


async def put(app: Tenure, payloads: Sequence[bytes], task: str = "taking") -> list[str]:
    """Store jobs past all checks, as a direct write to the store does; return their ids."""
    return await put_all(app, [NewJob(id="", task=task, payload=payload) for payload in payloads])


async def put_all(app: Tenure, jobs: Sequence[NewJob]) -> list[str]:
    """Store any jobs, under new ids."""
    news = [_with_id(job) for job in jobs]
    for first in range(0, len(news), 100):
        await engine_of(app).services().store.jobs.insert(news[first : first + 100])
    return [job.id for job in news]


def _with_id(job: NewJob) -> NewJob:
    kept = {name: getattr(job, name) for name in job.__struct_fields__}
    return NewJob(**{**kept, "retention": 3600.0, "id": _ids.make()})


async def records(app: Tenure, ids: Sequence[str]) -> list[JobRecord | None]:
    store = engine_of(app).services().store
    return [
        job for at in range(0, len(ids), 100) for job in await store.jobs.get(ids[at : at + 100])
    ]


async def ended(app: Tenure, ids: Sequence[str]) -> list[JobRecord]:
    """Wait until all have finished; return them."""
    jobs: list[JobRecord] = []

    async def all_ended() -> bool:
        jobs[:] = [job for job in await records(app, ids) if job is not None]
        return len(jobs) == len(ids) and all(job.state in FINISHED for job in jobs)

    await wait_until_async(all_ended, SIZE.patience, "every job has ended")
    return jobs
