"""A job that was lost twice gets a process of its own, beside the others."""

import asyncio
import os
import signal

from tests.process.test_supervisor import supervised, workers_of
from tests.process.workshop import Workshop, on_each


async def test_a_suspicious_job_gets_a_fresh_process(shops: list[Workshop]):
    async def scenario(shop: Workshop) -> None:
        async def feed() -> None:
            """Have good jobs wait for every new process, so that none of them stays clean."""
            number = 0
            while True:
                number += 1
                await shop.tasks.count.enqueue(number)
                await asyncio.sleep(0.05)

        supervised(shop, loss_budget=2)
        await workers_of(shop, 1)
        feeding = asyncio.ensure_future(feed())
        try:
            bad = await shop.tasks.poison.enqueue()
            await shop.finished(bad)
        finally:
            feeding.cancel()
        assert (bad.state, bad.reason, bad.losses) == ("failed", "lost", 3)
        *_, last = shop.lines("began", bad)
        assert {line.job for line in shop.lines("began", pid=last.pid)} == {bad.id}

    await on_each(shops, scenario)


async def test_other_jobs_run_beside_a_long_job_that_was_lost_twice(shops: list[Workshop]):
    """Two machines of it were taken away, and it is innocent."""

    async def scenario(shop: Workshop) -> None:
        supervised(shop, loss_budget=5)
        await workers_of(shop, 1)
        gate = shop.gate()
        long = await shop.tasks.stay.enqueue(str(gate))
        for attempt in (1, 2):
            [line] = await shop.written("began", long, attempt=attempt)
            os.kill(line.pid, signal.SIGKILL)
        [line] = await shop.written("began", long, attempt=3)
        quick = await shop.tasks.nap.enqueue(0)
        await shop.finished(quick)
        assert (await long.refresh()).state == "running"
        assert await quick.result() != line.pid
        gate.touch()
        await shop.finished(long)
        assert (long.state, long.losses, long.attempt) == ("succeeded", 2, 3)

    await on_each(shops, scenario)
