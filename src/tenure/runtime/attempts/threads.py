"""Threads for synchronous handlers: our own, so that nobody else's work can fill them up.

They are daemons. A handler that never returns must not keep the process from ending; the pools of
the standard library would wait for it.
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


# A burst of jobs may start hundreds. Starting one anew costs less than a tenth of a millisecond.
_IDLE_SECONDS = 60.0


@dataclass(slots=True)
class _Call:
    function: Callable[[], Any]
    context: Context
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]


class Threads:
    """Runs functions, each in a thread that is free or new. Use it on one event loop."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._idle = 0
        self._started = 0
        self._ended = 0

    def run(self, function: Callable[[], Any]) -> asyncio.Future[Any]:
        """Return what it will return. The caller's context variables go along."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        if self._idle > 0:
            self._idle -= 1
        else:
            # First, because it may be refused; then nothing must be left that runs later.
            name = f"tenure-job-{self._started + 1}"
            threading.Thread(target=self._work, args=[loop], name=name, daemon=True).start()
            self._started += 1
        self._calls.put(_Call(function, copy_context(), loop, future))
        return future

    def close(self) -> None:
        """Let idle threads end; the others end with what they run."""
        for _ in range(self._started - self._ended):
            self._calls.put(None)

    def _work(self, loop: asyncio.AbstractEventLoop) -> None:
        while True:
            try:
                call = self._calls.get(timeout=_IDLE_SECONDS)
            except queue.Empty:
                # Only the loop knows if this thread has been counted on meanwhile.
                try:
                    loop.call_soon_threadsafe(self._end_an_idle_one)
                except RuntimeError:  # it is closed
                    return
                continue
            if call is None:
                return
            result, error = None, None
            try:
                result = call.context.run(call.function)
            except BaseException as raised:  # noqa: BLE001 - it belongs to whoever waits for it
                error = raised
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
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
            return  # whoever waited has given up
        if error is None:
            future.set_result(result)
        elif isinstance(error, StopIteration | GeneratorExit):  # which no future can raise
            instead = RuntimeError(f"{error!r} was raised")
            instead.__cause__ = error
            future.set_exception(instead)
        else:
            future.set_exception(error)
