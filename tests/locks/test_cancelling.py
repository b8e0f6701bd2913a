"""Whatever is cancelled, and whenever, leaves nothing behind."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from tenure import Tenure
from tenure.app import engine_of
from tenure.stores.connect import connect
from tenure.testing import FaultyStore
from tests.contract.worlds import World
from tests.rig.wait import wait_until_async

T = TypeVar("T")

TURNS = 40  # more than any operation takes on the store below


class SlowStore(FaultyStore):
    """Suspends its caller several times before and after each call takes effect."""

    async def _pass(self, call: str, send: Callable[[], Awaitable[T]]) -> T:
        for _ in range(3):
            await asyncio.sleep(0)
        answer = await super()._pass(call, send)
        for _ in range(3):
            await asyncio.sleep(0)
        return answer


async def enter_and_leave(app: Tenure) -> None:
    async with app.lock("x"):
        await asyncio.sleep(0)


async def acquire_and_release(app: Tenure) -> None:
    hold = await app.lock("x").acquire()
    try:
        await hold.renew()
    finally:
        await hold.release()


async def try_once(app: Tenure) -> None:
    if hold := await app.lock("x").try_acquire():
        await hold.release()


async def wait_in_line(app: Tenure) -> None:
    async with app.lock("taken", wait=60):
        pass


async def use_a_semaphore(app: Tenure) -> None:
    async with app.semaphore("s", 2), app.semaphore("s", 2):
        pass


OPERATIONS = [enter_and_leave, acquire_and_release, try_once, wait_in_line, use_a_semaphore]


async def cancel_after(operation: Awaitable[None], turns: int) -> None:
    task = asyncio.ensure_future(operation)
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled():
        task.result()


@pytest.mark.parametrize("operation", OPERATIONS)
async def test_cancelled_at_every_await(clock, operation):
    store = SlowStore(connect("memory://", namespace="test", clock=clock))
    rival = Tenure(store._store.clone())
    async with Tenure(store) as app, rival, rival.lock("taken"):
        for turns in range(TURNS):
            await cancel_after(operation(app), turns)
            await engine_of(app).holds().acquirer.close()  # what is given back in the background
            left = [(lease.key, lease.waiting) for lease in await rival.locks()]
            assert left == [("taken", False)], f"after {turns} turns"


@pytest.mark.parametrize("operation", OPERATIONS)
async def test_cancelled_at_random_moments_on_every_store(real_world: World, operation):
    async with Tenure(real_world.unopened()) as app, Tenure(real_world.unopened()) as rival:
        async with rival.lock("taken"):
            for step in range(30):
                task = asyncio.ensure_future(operation(app))
                await asyncio.sleep(step * 0.0002)
                task.cancel()
                await asyncio.wait([task])

            async def only_the_rival_is_left() -> bool:
                return [lease.key for lease in await rival.locks()] == ["taken"]

            await wait_until_async(only_the_rival_is_left, timeout=2.5)
        # The store object still works, and no caller is locked out.
        async with asyncio.timeout(20):
            await enter_and_leave(app)
            await wait_in_line(app)


async def test_a_cancelled_waiter_does_not_hold_up_those_behind_it(app, rival, clock):
    async with rival.lock("line"):
        first = asyncio.create_task(app.lock("line").acquire())
        await clock.advance(0.1)
        second = asyncio.create_task(app.lock("line").acquire())
        await clock.advance(0.1)
        first.cancel()
        await clock.advance(0)
    await clock.advance(0)
    assert second.done()
    await (await second).release()


async def test_a_cancelled_release_is_finished_in_the_background(app, faults, clock):
    hold = await app.lock("x").acquire()
    faults.delay("release", 1)
    releasing = asyncio.create_task(hold.release())
    await clock.advance(0.5)
    releasing.cancel()
    await clock.advance(2)
    assert releasing.cancelled()
    assert await app.locks() == []
