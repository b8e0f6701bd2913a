"""Workers that are told to stop: no job is lost, charged or kept waiting."""

import asyncio
import signal

from tenure.jobs import Job
from tests.process.orders import boot
from tests.process.workshop import Workshop, on_each, runs_to_its_end
from tests.rig.processes import Child
from tests.rig.sizes import SIZE

# Far longer than a hand-over takes: what is picked up in a fraction of it was not recovered.
TTL = 30.0
AT_ONCE = 5.0
ROUNDS = 3
LONG_GRACE = 300.0


async def test_jobs_that_a_stopped_worker_cannot_finish_run_elsewhere_at_once(
    shops: list[Workshop],
):
    await on_each(shops, stopped_under_load)


async def stopped_under_load(shop: Workshop) -> None:
    """Stop a worker that has short jobs, which may finish, and long ones, which cannot."""
    gate = shop.gate()
    [leaving] = await shop.hired(replica_ttl=TTL, grace=0.5, concurrency=20)
    requests = [shop.tasks.stay.request(str(gate)) for _ in range(5)]
    long = await shop.app.enqueue_many(requests)
    await shop.written("began", *long)
    await shop.hired(replica_ttl=TTL)
    short = await shop.app.enqueue_many(shop.tasks.nap.request(0.05) for _ in range(SIZE.jobs))
    leaving.terminate()
    stopped = await shop.written("stopped", *long, pid=leaving.pid)
    again = await shop.written("began", *long, attempt=2)
    gate.touch()
    assert await shop.exited(leaving) == 0, leaving.story()
    await shop.finished(*long, *short)
    assert {line.detail for line in stopped} == {"shutting down"}
    waited = [line.boot - stop.boot for line, stop in zip(again, stopped, strict=True)]
    assert min(waited) < AT_ONCE, f"{shop.site.family}: {waited}"
    check_nothing_charged(shop, *long, *short)
    assert [replica.meta["pid"] for replica in await shop.app.replicas()].count(
        str(leaving.pid)
    ) == 0


async def test_rolling_restarts_lose_and_repeat_nothing(shops: list[Workshop]):
    await on_each(shops, rolling)


async def rolling(shop: Workshop) -> None:
    """Replace each worker in turn while jobs flow."""
    workers = await shop.hired(2, replica_ttl=TTL, concurrency=5)
    producer = shop.site.start("job_producer", shop.ledger.path, 1)
    await shop.heard(producer, "ready")
    for _ in range(2 * ROUNDS if SIZE.name == "soak" else 2):
        [fresh] = await shop.hired(replica_ttl=TTL, concurrency=5)
        leaving = workers.pop(0)
        workers.append(fresh)
        await works(shop, leaving)
        leaving.terminate()
        assert await shop.exited(leaving) == 0, leaving.story()
    await works(shop, workers[-1])
    producer.send("end")
    assert await shop.exited(producer) == 0, producer.story()
    jobs = [await shop.app.job(line.job) for line in shop.lines("accepted")]
    await shop.finished(*jobs)
    check_nothing_charged(shop, *jobs)


async def works(shop: Workshop, worker: Child) -> None:
    """Wait until a worker has finished one more job."""
    before = len(shop.lines("ended", pid=worker.pid))
    await shop.until(
        lambda: len(shop.lines("ended", pid=worker.pid)) > before, f"{worker.pid} works on"
    )


def check_nothing_charged(shop: Workshop, *jobs: Job) -> None:
    """All have succeeded, came to their end once, and count neither losses nor failures."""
    charged = [job for job in jobs if job.losses or job.failures or job.state != "succeeded"]
    assert not charged, [job.record for job in charged]
    ended = [line.job for line in shop.lines("ended", *jobs)]
    assert sorted(ended) == sorted(job.id for job in jobs)


async def test_a_second_signal_hurries(shops: list[Workshop]):
    await on_each(shops, hurried)


async def hurried(shop: Workshop) -> None:
    """Signal twice a worker that would wait for long; it hands back what it has and ends."""
    [leaving] = await shop.hired(replica_ttl=TTL, grace=LONG_GRACE)
    gate = shop.gate()
    job = await shop.tasks.stay.enqueue(str(gate))
    await shop.written("began", job)
    leaving.terminate()
    # Two signals of a kind at the same time are one.
    await shop.until(lambda: "SIGTERM: stopping" in leaving.stderr, "the signal has arrived")
    await asyncio.sleep(0.3)  # a claim may have been under way
    later = await shop.tasks.nap.enqueue(0)
    await asyncio.sleep(0.3)  # in which the worker must do nothing
    assert leaving.running
    assert runs_to_its_end(shop, job) == (1, 0)
    assert (await later.refresh()).state == "waiting"
    hurried_at = boot()
    leaving.send_signal(signal.SIGINT)
    assert await shop.exited(leaving) == 0, leaving.story()
    assert boot() - hurried_at < LONG_GRACE / 10
    await job.refresh()
    assert (job.state, job.attempt, job.losses, job.failures) == ("waiting", 1, 0, 0)
    [heir] = await shop.hired()
    gate.touch()
    await shop.finished(job, later)
    assert await job.result() == heir.pid
