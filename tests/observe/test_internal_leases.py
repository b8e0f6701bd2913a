"""The leases that Tenure itself takes: `tenure locks ls` names the processes that hold them."""

import asyncio

from tenure.metrics.snapshot import snapshot_of
from tenure.runtime.process_info import about_this_process
from tenure.testing import Faults, ManualClock
from tests.jobs.replicas import Make


async def test_each_of_them_names_the_host_and_process_of_its_holder(
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
    assert leases == dict.fromkeys(
        ("tenure:health", "tenure:metrics", "tenure:queues"), about_this_process()
    )
