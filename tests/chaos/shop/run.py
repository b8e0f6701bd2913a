"""The shop on a real Redis: nothing lost, nothing doubled, no tenant starved, memory bounded.

A producer and three `tenure worker` serve customers. The mail server is down for a fifth of the
time, Redis restarts once, workers are killed, and one tenant enqueues thousands of jobs beside
three of another. In the full size that is an outage of one minute in five, and a kill per minute.
"""

import asyncio
import os
import random
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from redis.asyncio import Redis

from tenure import Tenure
from tenure.errors import StoreUnavailable
from tests.chaos.diary import read_diaries
from tests.chaos.places import Place
from tests.chaos.shop.judge import ShopBooks
from tests.chaos.shop.mail_server import MailServer
from tests.chaos.tally import Tally
from tests.process.orders import boot
from tests.rig.processes import Child
from tests.rig.sizes import SIZE, Storm
from tests.rig.spawn import alive
from tests.rig.wait import wait_until_async

_WORKERS = 3
_FIFTHS = 5
_SMALL = 3
_DRAIN = 300.0
"""A mail that failed for a minute is tried again within two more."""
_SAMPLE_EVERY = 2.0


async def run_shop(
    place: Place, tally: Tally, size: Storm, seed: int, *, faults: bool = True
) -> None:
    """Run the shop for `size.shop_seconds`, and judge what came of it."""
    tally.demand("kills", size.shop_kills)
    tally.demand("restarts", 1)
    tally.demand("mail outages", 1)
    tally.demand("accepted", size.shop_flood)
    tally.demand("mails retried", 1)
    tally.demand("backlog beside it", 1)
    tally.demand("ticks", int(size.shop_seconds / 4))
    async with opened_shop(place, tally, seed) as shop:
        hour = asyncio.create_task(shop.live(size, faults=faults))
        samples = asyncio.create_task(shop.sample())
        try:
            await hour
            await shop.drain()
        finally:
            for task in (hour, samples):
                task.cancel()
            await asyncio.gather(hour, samples, return_exceptions=True)
        await shop.judge()


@asynccontextmanager
async def opened_shop(place: Place, tally: Tally, seed: int) -> AsyncIterator["Shop"]:
    """Start everything, and end it."""
    mails = MailServer()
    await mails.switch_on()
    app = Tenure(place.url, namespace=place.namespace)
    shop = Shop(place, tally, app, mails, random.Random(seed))
    try:
        async with app:
            await shop.start()
            yield shop
    finally:
        await mails.switch_off()
        shop.close()


class Shop:
    """All that there is of it, and what happens to it."""

    def __init__(
        self,
        place: Place,
        tally: Tally,
        app: Tenure,
        mails: MailServer,
        dice: random.Random,
    ) -> None:
        self._place = place
        self._tally = tally
        self._app = app
        self._children: list[Child] = []
        self._mails = mails
        self._dice = dice
        self._ledgers = place.folder / "ledgers"
        self._ledgers.mkdir()
        self._workers: list[Child] = []
        self._memory: list[int] = []
        """The largest worker at each sample, in MB."""
        self._redis: list[int] = []
        """What Redis has used at each sample, in bytes."""

    async def start(self) -> None:
        """Start the workers and the producer, and wait until they serve."""
        self._workers = [self._hire() for _ in range(_WORKERS)]
        self._producer = self._child("tests.chaos.shop.producer")
        await wait_until_async(self._have_joined, 3 * SIZE.patience, "the workers have joined")
        await asyncio.to_thread(self._producer.expect, "open", 3 * SIZE.patience)

    def _hire(self) -> Child:
        return self._child("tenure", "worker", "tests.chaos.shop.service:app")

    def _child(self, module: str, *arguments: str) -> Child:
        environment = {
            "TENURE_URL": self._place.url,
            "TENURE_NAMESPACE": self._place.namespace,
            "SHOP_LEDGERS": str(self._ledgers),
            "SHOP_MAIL_PORT": str(self._mails.port),
        }
        child = Child("-m", module, *arguments, env=environment)
        self._children.append(child)
        return child

    def close(self) -> None:
        """End all processes, and keep what they have logged."""
        for number, child in enumerate(self._children):
            child.close()
            (self._place.folder / f"process-{number}.log").write_text(child.stderr)

    async def _have_joined(self) -> bool:
        return len(await self._pids()) >= _WORKERS

    async def _pids(self) -> list[int]:
        """Return the processes that run jobs."""
        replicas = await self._app.replicas()
        return [
            int(replica.meta["pid"])
            for replica in replicas
            if replica.expires_in > 0 and not replica.dead
        ]

    async def _living_pids(self) -> list[int]:
        try:
            return [pid for pid in await self._pids() if alive(pid)]
        except StoreUnavailable:  # Redis restarts just now
            return []

    # What happens.

    async def live(self, size: Storm, *, faults: bool) -> None:
        """Let everything happen, each at its time."""
        fifth = size.shop_seconds / _FIFTHS
        parts = [self._flood(1.5 * fifth, size.shop_flood, min(1.0, fifth / 4))]
        if faults:
            pause = size.shop_seconds / size.shop_kills
            parts += [self._kill((part + 0.5) * pause, part) for part in range(size.shop_kills)]
            parts += [self._mail_outage(fifth, fifth), self._restart(3.2 * fifth, min(2.0, fifth))]
        await asyncio.gather(asyncio.sleep(size.shop_seconds), *parts)

    async def _flood(self, at: float, number: int, pause: float) -> None:
        await asyncio.sleep(at)
        self._tally.progress(f"a tenant enqueues {number:,} jobs")
        self._producer.send(f"flood {number}")
        backlogs: list[int] = []
        for _ in range(_SMALL):
            backlogs.append(
                await wait_until_async(self._backlog, SIZE.patience, "a tenant has a backlog")
            )
            self._producer.send("small")
            await asyncio.sleep(pause)
        self._tally.add("backlog beside it", min(backlogs))

    async def _backlog(self) -> int:
        counts = await self._app.queues()
        return sum(count.waiting for count in counts if count.queue == "tenant-big")

    async def _kill(self, at: float, part: int) -> None:
        """Kill the process that runs jobs, or in turn all of a worker, which is replaced."""
        await asyncio.sleep(at)
        if part % 2:
            worker = self._workers.pop(self._dice.randrange(len(self._workers)))
            await asyncio.to_thread(worker.kill)
            self._workers.append(self._hire())
        else:
            pids = await wait_until_async(self._living_pids, 3 * SIZE.patience, "a worker lives")
            os.kill(self._dice.choice(pids), signal.SIGKILL)
        self._tally.add("kills")
        self._tally.progress("a worker was killed")

    async def _mail_outage(self, at: float, seconds: float) -> None:
        await asyncio.sleep(at)
        await self._mails.switch_off()
        self._tally.progress(f"the mail server is down for {seconds:.0f} s")
        await asyncio.sleep(seconds)
        await self._mails.switch_on()
        self._tally.add("mail outages")

    async def _restart(self, at: float, seconds: float) -> None:
        await asyncio.sleep(at)
        assert self._place.server is not None
        await asyncio.to_thread(self._place.server.stop)
        await asyncio.sleep(seconds)
        await asyncio.to_thread(self._place.server.start)
        self._tally.add("restarts")
        self._tally.progress("Redis has restarted")

    async def sample(self) -> None:
        """Write down how much memory everything has, until cancelled."""
        async with Redis.from_url(self._place.url) as redis:
            while True:
                # Redis may be away, and a worker gone since it was listed.
                with suppress(Exception):
                    self._redis.append((await redis.info("memory"))["used_memory"])
                    self._memory.append(max(map(_resident, await self._pids())))
                await asyncio.sleep(_SAMPLE_EVERY)

    # How it ends.

    async def drain(self) -> None:
        """Wait until all that was accepted has finished."""
        self._producer.send("stop")
        await asyncio.to_thread(self._producer.wait, 3 * SIZE.patience)
        began = boot()

        async def is_drained() -> bool:
            return not any(count.waiting or count.running for count in await self._app.queues())

        await wait_until_async(is_drained, _DRAIN, "all jobs have finished")
        self._tally.progress(f"all jobs have finished {boot() - began:.0f} s after the last one")

    async def judge(self) -> None:
        """Stop the workers, and compare the ledgers with the store and the mail server."""
        living = {f"process-{pid}" for pid in await self._pids()}
        for worker in self._workers:
            worker.terminate()
        for worker in self._workers:
            if code := await asyncio.to_thread(worker.wait, 3 * SIZE.patience):
                self._tally.violate(f"a worker has ended with {code}")
        await ShopBooks(
            entries=read_diaries(self._ledgers),
            mails=self._mails.mails,
            living=living,
            memory=self._memory,
            redis=self._redis,
        ).judge(self._app, self._tally)


def _resident(pid: int) -> int:
    """Return how many MB of memory a process has."""
    status = Path(f"/proc/{pid}/status").read_text()
    [line] = [line for line in status.splitlines() if line.startswith("VmRSS:")]
    return int(line.split()[1]) >> 10
