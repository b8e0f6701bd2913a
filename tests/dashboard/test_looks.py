"""Shared looks at the store: who waits for one, how long it is kept, and how many are."""

import asyncio

import pytest

from tenure.dashboard.snapshot import Looks
from tenure.errors import StoreUnavailable
from tenure.testing import ManualClock


class Question:
    """A question to a store, which is answered when a test says so."""

    def __init__(self) -> None:
        self.times = 0
        self.answer = asyncio.Event()

    async def __call__(self) -> int:
        self.times += 1
        await self.answer.wait()
        return self.times


async def test_a_request_that_is_cancelled_does_not_cancel_the_look_of_others(
    clock: ManualClock,
) -> None:
    looks, question = Looks(clock), Question()
    first, second = (asyncio.create_task(looks.share("key", question)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    question.answer.set()
    assert await second == 1
    assert question.times == 1


async def test_errors_are_shared_for_a_second_too(clock: ManualClock) -> None:
    """A store in trouble gets no more calls than a healthy one."""
    times = 0

    async def fail() -> None:
        nonlocal times
        times += 1
        raise StoreUnavailable("away")

    looks = Looks(clock)
    for keep in (1.0, 5.0, 5.0):
        with pytest.raises(StoreUnavailable):
            await looks.share("key", fail, keep)
    assert times == 1
    clock.shift(1)
    with pytest.raises(StoreUnavailable):  # and no longer, even if an answer is kept for longer
        await looks.share("key", fail, 5.0)
    assert times == 2


async def test_old_looks_are_dropped(clock: ManualClock) -> None:
    """Each filter and each job that somebody looks at is a look of its own."""
    looks, question = Looks(clock), Question()
    question.answer.set()
    for key in range(200):
        await looks.share(key, question)
    assert len(looks._looks) == 64
    await looks.share(199, question)
    assert question.times == 200
    await looks.share(0, question)
    assert question.times == 201
