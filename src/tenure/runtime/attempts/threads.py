"""Threads for synchronous handlers, separate from the pools that other code may fill up.

They are daemon threads: a handler that never returns must not keep the process from ending. The
pools of the standard library would wait for it.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context, copy_context
from dataclasses import dataclass
from typing import Any

__all__ = ["Threads"]


# A burst of jobs may start hundreds of threads. Starting one costs less than 0.1 ms, so only a few
# stay idle.
_IDLE_SECONDS = 60.0


@dataclass(slots=True)
class _Call:
    function: Callable[[], Any]
    context: Context
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]


class Threads:
    """Runs each function in an idle or new thread. Use it on one event loop."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._idle = 0
        self._started = 0
        self._ended = 0

    def run(self, function: Callable[[], Any]) -> asyncio.Future[Any]:
        """Run a function with the caller's context variables. Returns a future of its result."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        if self._idle > 0:
            self._idle -= 1
        else:
            # First, because the system may refuse a thread. Nothing must be queued then.
            name = f"tenure-job-{self._started + 1}"
            threading.Thread(target=self._work, args=[loop], name=name, daemon=True).start()
            self._started += 1
        self._calls.put(_Call(function, copy_context(), loop, future))
        return future

    def close(self) -> None:
        """End idle threads now, and the others when their functions return."""
        for _ in range(self._started - self._ended):
            self._calls.put(None)

    def _work(self, loop: asyncio.AbstractEventLoop) -> None:
        while True:
            try:
                call = self._calls.get(timeout=_IDLE_SECONDS)
            except queue.Empty:
                # Only the loop knows whether it has given this thread new work meanwhile.
                try:
                    loop.call_soon_threadsafe(self._end_an_idle_one)
                except RuntimeError:  # the loop is closed
                    return
                continue
            if call is None:
                return
            result, error = None, None
            try:
                result = call.context.run(call.function)
            except BaseException as raised:  # noqa: BLE001 - raised in the caller, through the future
                error = raised
            with suppress(RuntimeError):  # the loop is closed, so no caller waits
                call.loop.call_soon_threadsafe(self._returned, call.future, result, error)
            del call, result, error

    def _end_an_idle_one(self) -> None:
        if self._idle > 0:
            self._idle -= 1
            self._ended += 1
            self._calls.put(None)

    def _returned(
        self, future: asyncio.Future[Any], result: Any, error: BaseException | None
    ) -> None:
        self._idle += 1
        if future.done():
            return  # the caller has given up
        if error is None:
            future.set_result(result)
        elif isinstance(error, StopIteration | GeneratorExit):  # no future can raise StopIteration
            instead = RuntimeError(f"{error!r} was raised")
            instead.__cause__ = error
            future.set_exception(instead)
        else:
            future.set_exception(error)
