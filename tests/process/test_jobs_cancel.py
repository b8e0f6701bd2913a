"""A cancel reaches a job in another process, and never at the same time as its end."""

import asyncio
import random

from tests.process.orders import boot
from tests.process.workshop import Workshop, on_each
from tests.rig.sizes import SIZE

# Beats are this far apart at most, and a lost wake-up costs no more than that.
TTL = 20.0
BEAT = 0.3 * TTL
ROUNDS = 8  # tries on a machine that may be busy with other tests


async def test_a_running_job_is_cancelled_soon(shops: list[Workshop]):
    await on_each(shops, cancelled_soon)


async def cancelled_soon(shop: Workshop) -> None:
    """Cancel jobs that would run for ever, each time beside one that is left alone."""
    within = 2.0 if shop.app.traits.push else BEAT + 1.0
    await shop.hired(replica_ttl=TTL)
    left_alone = await shop.tasks.stay.enqueue(str(gate := shop.gate()))
    took: list[float] = []
    while not took or (min(took) > within and len(took) < ROUNDS):
        job = await shop.tasks.nap.enqueue(3600)
        await shop.written("began", job, left_alone)
        requested = boot()
        assert await job.cancel("enough")
        await shop.finished(job)
        assert (job.state, job.reason, job.attempt) == ("cancelled", "enough", 1)
        [stopped] = shop.lines("stopped", job)
        assert stopped.detail == "cancelled"
        took.append(stopped.boot - requested)
    assert min(took) <= within, f"{shop.site.family}: {took}"
    gate.touch()
    await shop.finished(left_alone)
    assert left_alone.state == "succeeded"


async def test_a_cancel_that_races_with_the_end_of_a_job_has_one_winner(shops: list[Workshop]):
    await on_each(shops, racing)


async def racing(shop: Workshop) -> None:
    """Cancel jobs at about the time at which they end."""
    await shop.hired(2, replica_ttl=TTL)
    requests = [shop.tasks.nap.request(0.1) for _ in range(2 * SIZE.rounds)]
    jobs = await shop.app.enqueue_many(requests)

    async def cancel(job) -> bool:
        await asyncio.sleep(random.uniform(0.0, 0.3))
        return await job.cancel()

    answers = await asyncio.gather(*map(cancel, jobs))
    await shop.finished(*jobs)
    for job, in_time in zip(jobs, answers, strict=True):
        ended = len(shop.lines("ended", job))
        assert (job.state, ended) in (("succeeded", 1), ("cancelled", 0))
        assert in_time or job.state == "succeeded"
        before = job.record
        assert await job.cancel() is False
        assert job.record == before
