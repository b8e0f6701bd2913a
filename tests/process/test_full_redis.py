"""A full Redis server: callers get errors, workers finish the backlog, locks are kept."""

import asyncio

import pytest
import redis

from tenure import StoreFull
from tenure.jobs import Job
from tests.process.workshop import Workshop
from tests.rig.servers import Valkey
from tests.rig.sizes import SIZE

TTL = 2.0
BALLAST = "x" * 60_000

pytestmark = pytest.mark.on("redis")


async def fill(shop: Workshop) -> list[Job[int]]:
    """Enqueue until the store takes no more; return what it has taken."""
    jobs: list[Job[int]] = []
    with pytest.raises(StoreFull, match="takes no new jobs"):
        while len(jobs) < 1000:
            jobs.append(await shop.tasks.carry.enqueue(BALLAST))
    assert len(jobs) > 100
    return jobs


async def test_a_full_server_keeps_its_locks_and_its_backlog_is_worked_off(
    server: Valkey, shop: Workshop
):
    operator = redis.Redis.from_url(server.url)
    operator.config_set("maxmemory", "24mb")
    [holder] = await asyncio.to_thread(shop.site.start_holders, TTL, "lock")
    holder.send("acquire")
    await shop.heard(holder, "held")

    jobs = await fill(shop)
    workers = await shop.hired(2, replica_ttl=TTL)
    await shop.finished(*jobs)
    assert {(job.state, job.attempt, job.losses) for job in jobs} == {("succeeded", 1, 0)}
    assert len(shop.lines("began")) == len(shop.lines("ended")) == len(jobs)

    # It stays full, because finished jobs are kept for their retention. A worker dies meanwhile.
    with pytest.raises(StoreFull):
        await shop.tasks.nap.enqueue(0)
    [lost, left] = workers
    await asyncio.to_thread(lost.kill)

    async def is_recovered() -> bool:
        return [replica.meta["pid"] for replica in await shop.app.replicas()] == [str(left.pid)]

    await shop.until(is_recovered, "the dead worker is forgotten")
    assert not [event for event in holder.events if event["kind"] == "lost"]
    for worker in workers:
        assert "the store has failed" not in worker.stderr, worker.story()

    operator.config_set("maxmemory", "48mb")
    later = await shop.tasks.carry.enqueue(BALLAST)
    await shop.finished(later)
    holder.send("release")
    await shop.heard(holder, "released")


async def test_an_app_that_only_enqueues_is_refused_at_once(server: Valkey, shop: Workshop):
    operator = redis.Redis.from_url(server.url)
    operator.config_set("maxmemory", 1)
    operator.config_resetstat()
    with pytest.raises(StoreFull, match=r"Nothing was stored.*Raise maxmemory"):
        await asyncio.wait_for(shop.tasks.nap.enqueue(0), SIZE.patience)
    calls = operator.info("commandstats")
    assert calls["cmdstat_evalsha"]["calls"] <= 2  # it may have to load the script first
