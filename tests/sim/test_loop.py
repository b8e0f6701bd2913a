"""The loop of the simulation: order, time, pauses and deaths."""

import asyncio
import random
from itertools import count

import pytest

from tests.sim.loop import Lane, Stuck, VirtualLoop


def make_loop(seed: int = 0) -> VirtualLoop:
    return VirtualLoop(random.Random(seed).random)


def spawn(loop: VirtualLoop, lane: Lane, work) -> None:
    lane.context.run(loop.create_task, work)


def test_time_leaps_and_nobody_sleeps():
    loop = make_loop()

    async def main() -> float:
        await asyncio.sleep(1_000_000)
        return loop.time()

    assert loop.run(main(), max_steps=100) == 1_000_000


def interleaved(seed: int) -> list[str]:
    loop, seen = make_loop(seed), []

    async def work(name: str) -> None:
        for number in range(5):
            seen.append(f"{name}{number}")
            await asyncio.sleep(0)

    async def main() -> None:
        for name in "ab":
            spawn(loop, Lane(name), work(name))
        await asyncio.sleep(1)

    loop.run(main(), max_steps=1000)
    return seen


def test_dice_decide_between_lanes_and_asyncio_within_one():
    orders = {tuple(interleaved(seed)) for seed in range(20)}
    assert len(orders) > 5
    for order in orders:
        assert [line for line in order if line[0] == "a"] == [f"a{n}" for n in range(5)]
    assert interleaved(3) == interleaved(3)


def test_callbacks_of_one_lane_keep_their_order():
    loop, seen = make_loop(), []

    async def main() -> None:
        for number in range(50):
            loop.call_soon(seen.append, number)
        await asyncio.sleep(1)

    loop.run(main(), max_steps=1000)
    assert seen == list(range(50))


def test_a_paused_lane_goes_on_where_it_was():
    loop, lane, seen = make_loop(), Lane("one"), []

    async def tick() -> None:
        while True:
            seen.append(loop.time())
            await asyncio.sleep(1)

    async def main() -> None:
        spawn(loop, lane, tick())
        await asyncio.sleep(1.5)
        loop.pause(lane)
        await asyncio.sleep(10)
        loop.resume(lane)
        await asyncio.sleep(1.2)

    loop.run(main(), max_steps=1000)
    assert seen == [0, 1, 11.5, 12.5]


def test_nothing_of_a_dead_lane_runs_any_more():
    loop, lane, seen = make_loop(), Lane("one"), []

    async def live() -> None:
        try:
            await asyncio.sleep(5)
        finally:
            seen.append("cleaned up")

    async def main() -> None:
        spawn(loop, lane, live())
        await asyncio.sleep(1)
        loop.kill(lane)
        for task in lane.tasks:
            task.cancel()
        await asyncio.sleep(10)

    loop.run(main(), max_steps=1000)
    assert not seen
    for task in lane.tasks:
        task._log_destroy_pending = False


def test_a_run_that_waits_for_nothing_is_stuck():
    loop = make_loop()
    with pytest.raises(Stuck, match="nothing is left"):
        loop.run(asyncio.Event().wait(), max_steps=100)


def test_a_run_without_an_end_is_stuck():
    async def spin() -> None:
        for _ in count():
            await asyncio.sleep(0)

    with pytest.raises(Stuck, match="no end after 1000 steps"):
        make_loop().run(spin(), max_steps=1000)
