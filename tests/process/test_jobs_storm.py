"""Everybody dies at random while jobs flow; the ledger accounts for every accepted one."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from functools import partial

import pytest

from tests.process.workshop import Workshop
from tests.rig.processes import Child
from tests.rig.servers import Postgres, Valkey
from tests.rig.sizes import SIZE
from tests.rig.waiting import wait_until_async

WORKERS = 3
PRODUCERS = 2
# Each death costs the jobs of one worker, so that few of them die twice.
SETTINGS = {"replica_ttl": 1, "loss_budget": 50, "concurrency": 4}
PAUSE_BETWEEN_KILLS = (0.3, 0.9)
_NUMBERS_EACH = 10_000_000


class Storm:
    """Workers and producers of which one dies now and then, and is replaced."""

    def __init__(self, shop: Workshop) -> None:
        self._shop = shop
        self._started = 0
        self._chance = random.Random(4)
        self.workers = [self._worker() for _ in range(WORKERS)]
        self.producers = [self._producer() for _ in range(PRODUCERS)]
        self.kills = 0

    def _worker(self) -> Child:
        return self._shop.hire(**SETTINGS)

    def _producer(self) -> Child:
        self._started += 1
        first = self._started * _NUMBERS_EACH
        return self._shop.site.start("job_producer", self._shop.ledger.path, first)

    async def rage(self) -> None:
        """Kill and replace one after the other, until cancelled."""
        while True:
            await asyncio.sleep(self._chance.uniform(*PAUSE_BETWEEN_KILLS))
            self._restart_failed()
            if self._chance.random() < 0.7:
                await self._replace_one(self.workers, self._worker)
            else:
                await self._replace_one(self.producers, self._producer)

    async def _replace_one(self, some: list[Child], make: Callable[[], Child]) -> None:
        victim = some.pop(self._chance.randrange(len(some)))
        await asyncio.to_thread(victim.kill)
        some.append(make())
        self.kills += 1

    def _restart_failed(self) -> None:
        """Start again who came while the store was away, as a supervisor does."""
        for some, make in ((self.workers, self._worker), (self.producers, self._producer)):
            for child in [one for one in some if not one.running]:
                assert "StoreUnavailable" in child.stderr, child.story()
                some[some.index(child)] = make()

    async def calm_down(self) -> None:
        """End the producers; the workers stay."""

        def all_produce() -> bool:
            self._restart_failed()
            return all(one.events for one in self.producers)

        await self._shop.until(all_produce, "all producers are ready")
        for producer in self.producers:
            producer.send("end")
        for producer in self.producers:
            assert await self._shop.exited(producer) == 0, producer.story()
        self.producers.clear()
        self._restart_failed()
        await self._shop.joined(*self.workers)


@pytest.mark.on("sqlite")
async def test_every_accepted_job_is_accounted_for_while_processes_die(shop: Workshop):
    await weather(shop, restarts=0)


@pytest.mark.on("redis", "postgres")
async def test_every_accepted_job_is_accounted_for_while_all_die(
    server: Valkey | Postgres, shop: Workshop
):
    await weather(shop, restarts=2)


async def weather(shop: Workshop, restarts: int) -> None:
    """Let all go through a storm, and account for everything."""
    storm = Storm(shop)
    await shop.until(lambda: shop.lines("ended"), "the first job has ended")
    raging = asyncio.ensure_future(storm.rage())
    for number in range(1 + restarts):
        share = SIZE.jobs * (number + 1) // (1 + restarts)
        await accepted(shop, share)
        if number < restarts:
            assert shop.server is not None
            await asyncio.to_thread(shop.server.kill if number % 2 else shop.server.stop)
            await asyncio.to_thread(shop.server.start)
    await wait_until_async(
        lambda: raging.done() or storm.kills >= SIZE.faults // 2, 10 * SIZE.faults, "all died"
    )
    if raging.done():
        raging.result()  # somebody died who should not
    raging.cancel()
    await storm.calm_down()
    await account(shop)


async def accepted(shop: Workshop, number: int) -> None:
    """Wait until so many jobs were accepted; however long it takes, it must go on."""
    before = -1
    while (now := len(shop.lines("accepted"))) < number:
        assert now > before, "nothing is accepted any more"
        before = now
        await shop.until(partial(accepts_more_than, shop, before), "more are accepted")


def accepts_more_than(shop: Workshop, number: int) -> bool:
    return len(shop.lines("accepted")) > number


async def account(shop: Workshop) -> None:
    """Compare the ledger with the store, job by job."""
    known = {line.job: line.number for line in shop.lines("accepted")}
    jobs = [await shop.app.job(id_) for id_ in known]
    await shop.finished(*jobs)
    not_done = [job.record for job in jobs if job.state != "succeeded"]
    assert not not_done
    for job in jobs:
        assert await job.result() == known[job.id]
        outcomes = Counter(one.outcome for one in job.history)
        assert outcomes["succeeded"] == 1, job.history
        assert job.failures == 0
    done = {line.job for line in shop.lines("ended")}
    assert done >= known.keys(), "succeeded without an effect"
    await check_nothing_invented(shop)


async def check_nothing_invented(shop: Workshop) -> None:
    """What is in the store, and what has run, was offered, and no offer became two jobs."""
    offered = {line.number for line in shop.lines("offered")}
    stored: list[int] = []
    cursor = None
    while True:
        page = await shop.app.jobs(task="count", limit=1000, cursor=cursor)
        await shop.finished(*page)
        stored += [await job.result() for job in page]
        if (cursor := page.cursor) is None:
            break
    assert len(stored) == len(set(stored))
    assert set(stored) <= offered
    assert {line.number for line in shop.lines("ended")} <= set(stored)
    assert await shop.app.counts() == []
