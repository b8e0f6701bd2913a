import asyncio
from typing import Any

import pytest

from tenure.runtime.batcher import Batcher


class Wire:
    """Where batches go: each is answered when the test says so."""

    def __init__(self, *, held: bool = False) -> None:
        self.batches: list[list[int]] = []
        self.go = asyncio.Event()
        if not held:
            self.go.set()

    async def send(self, batch: list[int]) -> list[int]:
        self.batches.append(batch)
        await self.go.wait()
        return [2 * number for number in batch]


async def turn(times: int = 5) -> None:
    for _ in range(times):
        await asyncio.sleep(0)


async def test_one_alone_is_sent_at_once():
    wire = Wire()
    assert await Batcher(wire.send).add(1) == 2
    assert wire.batches == [[1]]


async def test_callers_that_are_ready_now_share_a_batch():
    wire = Wire()
    batcher = Batcher(wire.send)
    answers = await asyncio.gather(*(batcher.add(n) for n in range(5)))
    assert answers == [0, 2, 4, 6, 8]
    assert wire.batches == [[0, 1, 2, 3, 4]]


async def test_one_call_is_on_the_way_and_the_rest_joins_the_next():
    wire = Wire(held=True)
    batcher = Batcher(wire.send)
    futures = [batcher.add(0)]
    await turn()
    futures += [batcher.add(n) for n in range(1, 4)]
    await turn()
    assert wire.batches == [[0]]
    assert len(batcher) == 3
    wire.go.set()
    assert await asyncio.gather(*futures) == [0, 2, 4, 6]
    assert wire.batches == [[0], [1, 2, 3]]
    assert len(batcher) == 0


async def test_a_batch_has_its_limit():
    wire = Wire()
    batcher = Batcher(wire.send, limit=2)
    assert await asyncio.gather(*(batcher.add(n) for n in range(5))) == [0, 2, 4, 6, 8]
    assert wire.batches == [[0, 1], [2, 3], [4]]


async def test_an_error_goes_to_its_own_batch_only():
    async def send(batch: list[int]) -> list[int]:
        if 0 in batch:
            raise ValueError("no")
        return batch

    batcher = Batcher(send, limit=2)
    futures = [batcher.add(n) for n in range(4)]
    first, second, *others = await asyncio.gather(*futures, return_exceptions=True)
    assert isinstance(first, ValueError)
    assert second is first
    assert others == [2, 3]


async def test_a_cancelled_caller_does_not_disturb_the_others():
    wire = Wire(held=True)
    batcher = Batcher(wire.send)
    first, second = batcher.add(1), batcher.add(2)
    await turn()
    first.cancel()
    wire.go.set()
    assert await second == 4


async def test_drain_waits_for_everything():
    wire = Wire(held=True)
    batcher = Batcher(wire.send)
    first = batcher.add(1)
    draining = asyncio.ensure_future(batcher.drain())
    await turn()
    later = batcher.add(2)
    assert not draining.done()
    wire.go.set()
    await draining
    assert (first.result(), later.result()) == (2, 4)
    await batcher.drain()


async def test_close_gives_up_what_has_no_answer():
    wire = Wire(held=True)
    batcher = Batcher(wire.send)
    sent = batcher.add(1)
    await turn()
    waiting = batcher.add(2)
    batcher.close()
    assert len(batcher) == 0
    for future in (sent, waiting):
        with pytest.raises(asyncio.CancelledError):
            await future
    wire.go.set()
    await turn()
    assert wire.batches == [[1]]
    assert await batcher.add(3) == 6  # later callers are served as before


async def test_batches_work_with_eager_tasks():
    """As with `asyncio.eager_task_factory` of Python 3.12, and a store that never suspends."""

    def at_once(loop: asyncio.AbstractEventLoop, work: Any, **_: Any) -> asyncio.Future[Any]:
        task = loop.create_future()
        try:
            work.send(None)
        except StopIteration as end:
            task.set_result(end.value)
        return task

    async def send(batch: list[int]) -> list[int]:
        batches.append(batch)
        return batch

    batches: list[list[int]] = []
    batcher = Batcher(send)
    loop = asyncio.get_running_loop()
    loop.set_task_factory(at_once)
    try:
        futures = [batcher.add(1), batcher.add(2)]
        await turn()
        futures.append(batcher.add(3))
        await turn()
    finally:
        loop.set_task_factory(None)
    assert [future.result() for future in futures] == [1, 2, 3]
    assert batches == [[1, 2], [3]]
