"""Watchers of one topic in one process."""

import asyncio
import random
from contextlib import AsyncExitStack

from tenure.core.clock import SystemClock
from tenure.stores.watching import Watchers


async def test_they_are_woken_in_the_order_in_which_they_came():
    watchers, woken = Watchers(SystemClock()), []

    async def watch(number: int) -> None:
        async with watchers.watch(("job", "j")) as bell:
            await bell.wait(30)
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
        waiting = [asyncio.create_task(watch(number)) for number in range(100)]
        await asyncio.sleep(0)
        watchers.ring(("job", "j"))
        await asyncio.gather(*waiting)
    assert woken == list(range(100))
    assert not watchers.topics
