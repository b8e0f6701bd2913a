"""A job that was lost twice gets a process in which nothing else has run."""

import asyncio

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
