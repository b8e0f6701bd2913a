"""The store goes away, hangs, is slow or forgets everything: workers go on by themselves."""

import asyncio

import pytest

from tenure.jobs import Job
from tests.process.orders import boot
from tests.process.workshop import Workshop, on_each
from tests.rig.fixtures import Endpoint, ProxyTo
from tests.rig.processes import Child
from tests.rig.proxy import Proxy
from tests.rig.servers import Valkey
from tests.rig.sizes import SIZE

# Shorter than the outage, so that all replicas expire; long enough for all of them to come back
# before one of them may take the others for dead.
TTL = 3.0
# A worker that is not woken looks about every second, so that half a second is typical.
PUSHED_WITHIN = 0.3
LINES_A_MINUTE = 10


class Watched:
    """Workers with running jobs, from just before something happens to the store."""

    def __init__(self, shop: Workshop, workers: list[Child], running: list[Job]) -> None:
        self._shop = shop
        self._workers = workers
        self._running = running
        self._since = boot()
        self._lines = [self._logged(worker) for worker in workers]
        self.usual_latency = 0.0

    @staticmethod
    def _logged(worker: Child) -> int:
        return len(worker.stderr.splitlines())

    async def check(self) -> None:
        """The same processes work, are woken, have kept what they ran, and did not chatter."""
        shop = self._shop
        done = await enqueued(shop)
        await shop.finished(done)
        assert done.state == "succeeded"
        latency = await shop.pick_up_latency(7)
        assert latency < max(PUSHED_WITHIN, 3 * self.usual_latency), shop.site.family
        for job in self._running:
            await job.refresh()
            assert (job.state, job.attempt, job.losses) == ("running", 1, 0)
        assert not shop.lines("stopped", *self._running)
        minutes = max(1.0, (boot() - self._since) / 60)
        for worker, before in zip(self._workers, self._lines, strict=True):
            assert worker.running, worker.story()
            lines = self._logged(worker) - before
            assert lines <= LINES_A_MINUTE * minutes, worker.story()


async def watched(shop: Workshop, *, ttl: float = TTL) -> Watched:
    """Start two workers and let them run two jobs until the gate is opened."""
    workers = await shop.hired(2, replica_ttl=ttl)
    gate = shop.gate()
    running = [
        await shop.tasks.stay.enqueue(str(gate)),
        await shop.tasks.stay_blocking.enqueue(str(gate)),
    ]
    await shop.written("began", *running)
    watched = Watched(shop, workers, running)
    watched.usual_latency = await shop.pick_up_latency(3)
    return watched


async def finish(shop: Workshop) -> None:
    """Open the gate; what ran all the time ends as if nothing had been."""
    (shop.folder / f"gate-{shop.site.family}-{shop.gates}").touch()
    running = [await shop.app.job(line.job) for line in shop.lines("began")]
    await shop.finished(*running)
    assert {(job.state, job.attempt, job.losses) for job in running} == {("succeeded", 1, 0)}


async def enqueued(shop: Workshop) -> Job:
    """Enqueue a job as soon as the store takes it."""
    return await shop.until(lambda: shop.tasks.nap.enqueue(0), "the store takes a job")


async def test_an_outage_cancels_nothing_and_ends_by_itself(shops_with_servers: list[Workshop]):
    async def scenario(shop: Workshop) -> None:
        workers = await watched(shop)
        ends_meanwhile = await shop.tasks.nap.enqueue(SIZE.outage / 2)
        await shop.written("began", ends_meanwhile)
        await asyncio.to_thread(shop.server.kill)
        await asyncio.sleep(SIZE.outage)
        assert shop.lines("ended", ends_meanwhile)
        await asyncio.to_thread(shop.server.start)
        await workers.check()
        await shop.finished(ends_meanwhile)
        await finish(shop)

    await on_each(shops_with_servers, scenario)


@pytest.mark.on("redis")
async def test_workers_go_on_with_a_store_that_has_forgotten_all(server: Valkey, shop: Workshop):
    workers = await shop.hired(2, replica_ttl=1)
    job = await shop.tasks.stay.enqueue(str(shop.gate()))
    [began] = await shop.written("began", job)
    await asyncio.to_thread(server.restart, empty=True)
    # It was taken from its handler, and only the store may say so.
    [stopped] = await shop.written("stopped", job)
    assert (stopped.fence, stopped.detail) == (began.fence, "taken over")
    await shop.joined(*workers)
    later = await enqueued(shop)
    await shop.finished(later)
    assert later.state == "succeeded"
    assert await shop.pick_up_latency(7) < PUSHED_WITHIN
    for worker in workers:
        assert len(worker.stderr.splitlines()) <= LINES_A_MINUTE, worker.story()


async def test_a_slow_and_then_silent_network_loses_nothing(shops: list[Workshop], proxy: ProxyTo):
    async def scenario(shop: Workshop) -> None:
        direct = shop.site.url
        network = proxy(Endpoint(direct))
        shop.site.url = network.url(direct)
        try:
            await slow_then_silent(shop, network)
        finally:
            shop.site.url = direct

    await on_each([shop for shop in shops if shop.site.family != "sqlite"], scenario)


async def slow_then_silent(shop: Workshop, network: Proxy) -> None:
    """Only the workers are behind the network; the test sees the store directly."""
    workers = await watched(shop, ttl=5)
    network.delay(0.3)
    jobs = await shop.app.enqueue_many(shop.tasks.nap.request(0) for _ in range(20))
    await shop.finished(*jobs)
    network.freeze()
    await asyncio.sleep(SIZE.outage)
    network.heal()
    await workers.check()
    await finish(shop)
