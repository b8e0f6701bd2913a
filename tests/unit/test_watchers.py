"""Watchers of one topic in one process."""

import asyncio
import random
from contextlib import AsyncExitStack

from tenure.core.clock import SystemClock
from tenure.stores.watchers import Watchers


async def test_watchers_are_woken_in_the_order_of_arrival():
    watchers, woken = Watchers(SystemClock()), []

    async def wait(number: int) -> None:
        async with watchers.watch(("job", "j")) as watch:
            await watch.wait(30)
            woken.append(number)

    async with AsyncExitStack() as stack:
        # Others that come and go: where objects lie says nothing about when they came.
        others = [AsyncExitStack() for _ in range(200)]
        for other in others:
            await other.enter_async_context(watchers.watch(("job", "i")))
            stack.push_async_callback(other.aclose)
        random.Random(1).shuffle(others)
        for other in others[:100]:
            await other.aclose()
        waiting = [asyncio.create_task(wait(number)) for number in range(100)]
        await asyncio.sleep(0)
        watchers.wake(("job", "j"))
        await asyncio.gather(*waiting)
    assert woken == list(range(100))
    assert not watchers.topics
