"""Threads for synchronous handlers, separate from the pools that other code may fill up.

They are daemon threads: a handler that never returns must not keep the process from ending. The
pools of the standard library would wait for it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
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
    future: asyncio.Future[Any]


class _Worker:
    """A thread, as the loop sees it: what it is to do next, and the lock at which it waits.

    A queue for all threads would be shorter, but `queue.SimpleQueue.get` may wait for ever if
    another thread takes the item just when its time is up (Python 3.11).
    """

    __slots__ = ("_is_given", "_next")

    def __init__(self) -> None:
        self._next: _Call | None = None
        self._is_given = threading.Lock()
        self._is_given.acquire()

    def give(self, call: _Call | None) -> None:
        """Let the thread do a call, or end without one. Once for each time that it is idle."""
        self._next = call
        self._is_given.release()

    def wait(self, seconds: float) -> bool:
        """Wait for what is to be done, in the thread. False if there is nothing in that time."""
        return self._is_given.acquire(timeout=seconds)

    def take(self) -> _Call | None:
        call, self._next = self._next, None
        return call


class Threads:
    """Runs each function in an idle or new thread. Use it on one event loop."""

    def __init__(self) -> None:
        self._idle: list[_Worker] = []
        self._started = 0
        self._is_closed = False

    def run(self, function: Callable[[], Any]) -> asyncio.Future[Any]:
        """Run a function with the caller's context variables. Returns a future of its result."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        # The last one that became idle: the others may end after a while.
        worker = self._idle.pop() if self._idle else self._start(loop)
        worker.give(_Call(function, copy_context(), future))
        return future

    def _start(self, loop: asyncio.AbstractEventLoop) -> _Worker:
        worker, name = _Worker(), f"tenure-job-{self._started + 1}"
        threading.Thread(target=self._work, args=[worker, loop], name=name, daemon=True).start()
        self._started += 1
        return worker

    def close(self) -> None:
        """End idle threads now, and the others when their functions return."""
        self._is_closed = True
        while self._idle:
            self._idle.pop().give(None)

    def _work(self, worker: _Worker, loop: asyncio.AbstractEventLoop) -> None:
        while True:
            if not worker.wait(_IDLE_SECONDS):
                # Only the loop knows whether it has given this thread new work meanwhile.
                try:
                    loop.call_soon_threadsafe(self._end_if_idle, worker)
                except RuntimeError:  # the loop is closed
                    return
                continue
            call = worker.take()
            if call is None:
                return
            result, error = None, None
            try:
                result = call.context.run(call.function)
            except BaseException as raised:  # noqa: BLE001 - raised in the caller, through the future
                error = raised
            try:
                loop.call_soon_threadsafe(self._returned, worker, call.future, result, error)
            except RuntimeError:  # the loop is closed, so no caller waits
                return
            del call, result, error

    def _end_if_idle(self, worker: _Worker) -> None:
        if worker in self._idle:
            self._idle.remove(worker)
            worker.give(None)

    def _returned(
        self,
        worker: _Worker,
        future: asyncio.Future[Any],
        result: Any,
        error: BaseException | None,
    ) -> None:
        if self._is_closed:
            worker.give(None)
        else:
            self._idle.append(worker)
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
