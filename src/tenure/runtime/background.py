"""Background tasks: work that must finish although the task that started it is gone."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

__all__ = ["Background", "start_soon"]

T = TypeVar("T")

log = logging.getLogger("tenure")


def start_soon(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Start a task whose first step runs in the next turn of the loop, not now.

    The user may have set `asyncio.eager_task_factory`, which runs the first step at once: work that
    never suspends would end before the caller has the task.
    """
    loop = asyncio.get_running_loop()
    with suppress(NotImplementedError):  # a loop without task factories, such as a simulated one
        if loop.get_task_factory() is not None:
            return asyncio.Task(work, loop=loop)
    return loop.create_task(work)


class Background:
    """Tasks without an awaiting caller. Their errors are logged; `drain` waits for them."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        try:
            task = asyncio.get_running_loop().create_task(work)
        except RuntimeError:
            # The loop has ended, and the garbage collector closes a coroutine. The store cannot be
            # reached any more, and `ensure_future` would make a loop that never runs.
            work.close()
            return
        self._tasks.add(task)
        task.add_done_callback(self._done)

    async def drain(self, timeout: float) -> None:
        """Wait for everything spawned so far; cancel what takes longer than `timeout`."""
        if not self._tasks:
            return
        _, late = await asyncio.wait(self._tasks, timeout=timeout)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("background work failed", exc_info=error)
