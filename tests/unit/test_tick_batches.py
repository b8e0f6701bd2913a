"""How many ticks of a burst go to the store together."""

import asyncio

from tenure.runtime.timers.tick_batches import TickBatches


class Burst:
    """Ticks that are due at once. The store answers all that are inside when the test says so."""

    def __init__(self, batches: TickBatches, ticks: int) -> None:
        self._batches = batches
        self._answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.inside = 0
        self.tasks = [asyncio.create_task(self._tick()) for _ in range(ticks)]

    async def _tick(self) -> None:
        async with self._batches:
            self.inside += 1
            await asyncio.shield(self._answered)
            self.inside -= 1

    async def answer(self) -> int:
        """Answer a batch. Returns how many ticks are in it."""
        await turns()
        size, answered = self.inside, self._answered
        self._answered = asyncio.get_running_loop().create_future()
        answered.set_result(None)
        return size

    async def sizes(self) -> list[int]:
        """Answer until all ticks are decided. Returns the sizes of the batches."""
        sizes = []
        while not all(task.done() for task in self.tasks):
            sizes.append(await self.answer())
            await turns()
        return sizes


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_the_first_batch_leaves_before_the_rest_is_decided():
    assert await Burst(TickBatches(), 500).sizes() == [20, 80, 200, 200]


async def test_a_batch_never_exceeds_what_a_call_takes():
    assert await Burst(TickBatches(), 800).sizes() == [20, 80, 200, 200, 200, 100]


async def test_each_burst_begins_with_a_small_batch():
    batches = TickBatches()
    await Burst(batches, 500).sizes()
    assert await Burst(batches, 500).sizes() == [20, 80, 200, 200]


async def test_few_ticks_share_one_batch():
    assert await Burst(TickBatches(), 20).sizes() == [20]


async def test_ticks_that_are_cancelled_leave_their_places():
    batches = TickBatches()
    burst = Burst(batches, 120)
    await turns()
    for task in burst.tasks:
        task.cancel()
    await asyncio.gather(*burst.tasks, return_exceptions=True)
    assert await Burst(batches, 500).sizes() == [20, 80, 200, 200]
