"""Natural batching: an item is sent at once if no call is in flight, else with the next call.

There is no timer: a single caller waits no longer than without batching, and batches grow with the
load.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from tenure.core.jobs.records import BATCH_BYTES, BATCH_MAX
from tenure.runtime.background import start_soon

__all__ = ["Batcher", "next_slice"]

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class Batcher(Generic[Item, Answer]):
    """Joins items of the tasks of one event loop into calls, with one call in flight at a time."""

    def __init__(
        self,
        send: Callable[[list[Item]], Awaitable[Sequence[Answer]]],
        *,
        limit: int = BATCH_MAX,
        weigh: Callable[[Item], int] | None = None,
    ) -> None:
        self._send = send
        self._limit = limit
        self._weigh_entry = None if weigh is None else lambda entry: weigh(entry[0])
        self._waiting: deque[tuple[Item, asyncio.Future[Answer]]] = deque()
        self._sending: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        """How many items wait for the next call."""
        return len(self._waiting)

    def add(self, item: Item) -> asyncio.Future[Answer]:
        """Queue an item. Returns a future of its answer; cancelling it does not cancel the call."""
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        if self._sending is None:
            # It starts in the next turn of the loop, so that all items of this turn share the call.
            self._sending = start_soon(self._send_all())
        return future

    async def drain(self) -> None:
        """Wait until every item has its answer."""
        while self._sending is not None:
            await asyncio.wait([self._sending])

    def close(self) -> None:
        """Drop items without an answer, and cancel their futures."""
        for _, future in self._waiting:
            future.cancel()
        self._waiting.clear()
        if self._sending is not None:
            self._sending.cancel()

    async def _send_all(self) -> None:
        try:
            while self._waiting:
                await self._send_some(next_slice(self._waiting, self._weigh_entry, self._limit))
        finally:
            self._sending = None

    async def _send_some(self, batch: list[tuple[Item, asyncio.Future[Answer]]]) -> None:
        try:
            answers = await self._send([item for item, _ in batch])
        except asyncio.CancelledError:
            for _, future in batch:
                future.cancel()
            raise
        except Exception as error:  # noqa: BLE001 - raised in the callers, through their futures
            for _, future in batch:
                if not future.done():
                    future.set_exception(error)
            return
        for (_, future), answer in zip(batch, answers, strict=True):
            if not future.done():
                future.set_result(answer)


def next_slice(
    waiting: deque[Item], weigh: Callable[[Item], int] | None, limit: int = BATCH_MAX
) -> list[Item]:
    """Remove and return the items of one call, within limits of number and total size."""
    slice_ = [waiting.popleft()]
    weight = 0 if weigh is None else weigh(slice_[0])
    while waiting and len(slice_) < limit:
        if weigh is not None:
            weight += weigh(waiting[0])
            if weight > BATCH_BYTES:
                break
        slice_.append(waiting.popleft())
    return slice_
