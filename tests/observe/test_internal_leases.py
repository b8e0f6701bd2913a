"""The leases that Tenure itself takes: lists name the processes that hold them, and say why."""

import asyncio

from tenure.metrics.snapshot import snapshot_of
from tenure.runtime.process_info import about_this_process
from tenure.testing import Faults, ManualClock
from tests.jobs.replicas import Make


async def test_each_of_them_names_its_process_and_its_purpose(
    make: Make, faults: Faults, clock: ManualClock
):
    app = await make(faulty=True, queue_expected="2m")
    async with app.worker():
        await clock.advance(130)
        await snapshot_of(app).refresh()
        faults.delay("release", 5)  # the test lease of a health check is gone in an instant
        looking = asyncio.ensure_future(app.health(timeout=20))
        await clock.advance(1)
        leases = {lease.key: lease.meta for lease in await app.locks()}
        faults.heal()
        await clock.advance(5)
        await looking
    purposes = {
        "tenure:health": "of Tenure: a health check writes",
        "tenure:metrics": "of Tenure: one process counts queues for the metrics",
        "tenure:queues": "of Tenure: one worker reports late queues",
    }
    assert leases == {
        key: {**about_this_process(), "why": purpose} for key, purpose in purposes.items()
    }
