"""Jobs that merely take long, whatever they do to their worker meanwhile, run once."""

from tests.process.workshop import Workshop, on_each, runs_to_its_end

TTL = 1.0


async def test_a_job_of_ten_ttls_runs_once(shops: list[Workshop]):
    await on_each(shops, long_jobs)


async def long_jobs(shop: Workshop) -> None:
    """Let one worker run long jobs beside another that would take them over."""
    [busy] = await shop.hired(replica_ttl=TTL)
    jobs = [
        await shop.tasks.nap.enqueue(10 * TTL),
        await shop.tasks.block.enqueue(10 * TTL),
    ]
    await shop.written("began", *jobs)
    jobs.append(await shop.tasks.choke.enqueue(4 * TTL))
    await shop.written("began", *jobs, pid=busy.pid)
    await shop.hired(replica_ttl=TTL)
    await shop.finished(*jobs)
    for job in jobs:
        assert (job.state, job.attempt, job.losses) == ("succeeded", 1, 0), job.task
        assert runs_to_its_end(shop, job) == (1, 1), job.task
        assert await job.result() == busy.pid
    blocked = await shop.heard(busy, "LoopBlocked")
    assert "_choke" in blocked["stack"]
