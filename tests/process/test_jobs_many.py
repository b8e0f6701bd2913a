"""Many finished and delayed jobs do not slow workers down."""

from tenure.app import engine_of
from tenure.core.ids import job_id
from tenure.core.jobs.records import BATCH_MAX, NewJob
from tests.process.orders import boot
from tests.process.workshop import Workshop, on_each
from tests.rig.sizes import SIZE

TTL = 1.0
HOUR = 3600.0


async def test_many_old_jobs_slow_down_neither_claims_nor_recovery(shops: list[Workshop]):
    await on_each(shops, among_many)


async def among_many(shop: Workshop) -> None:
    """Compare a worker's life before and after the store has filled."""
    [worker] = await shop.hired(replica_ttl=TTL)
    before = await shop.pick_up_latency()
    await fill(shop)
    after = await shop.pick_up_latency()
    assert after < max(0.3, 3 * before)

    gate = shop.gate()
    job = await shop.tasks.stay.enqueue(str(gate))
    await shop.written("began", job)
    await shop.hired(replica_ttl=TTL)
    killed = boot()
    worker.kill()
    [again] = await shop.written("began", job, attempt=2)
    assert again.boot - killed < 10 * TTL
    gate.touch()
    await shop.finished(job)
    assert (job.state, job.losses) == ("succeeded", 1)


async def fill(shop: Workshop) -> None:
    """Put jobs into the store that have finished, and some that are due much later."""
    store = engine_of(shop.app).store
    for first in range(0, SIZE.old_jobs, BATCH_MAX):
        finished = [new(store.clock, 0.0) for _ in range(BATCH_MAX)]
        await store.jobs.insert(finished)
        await store.jobs.cancel([job.id for job in finished])
        if first % (10 * BATCH_MAX) == 0:
            await store.jobs.insert([new(store.clock, HOUR) for _ in range(BATCH_MAX)])


def new(clock, delay: float) -> NewJob:
    id_ = job_id(clock.wall() // 1000, 0, clock.token())
    # What is to be cancelled is in another queue, so that no worker takes it before.
    queue = "default" if delay else "nobody"
    return NewJob(id=id_, task="count", payload=b"{}", delay=delay, retention=HOUR, queue=queue)
