"""A semaphore: at most `limit` holders across all replicas.

Nine downloads, of which three run at once, however many processes start this file.
"""

import asyncio

from tenure import Tenure

app = Tenure()
running = 0
most = 0


async def download(number: int) -> None:
    global running, most  # noqa: PLW0603 - simple counters for an example
    async with app.semaphore("downloads", limit=3, ttl=30):
        running += 1
        most = max(most, running)
        print(f"download {number} runs, {running} at once")
        await asyncio.sleep(0.1)
        running -= 1


async def main() -> None:
    async with app:
        await asyncio.gather(*(download(number) for number in range(1, 10)))
    print(f"never more than {most} at once")


asyncio.run(main())
