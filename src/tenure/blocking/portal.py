"""The way from a thread into an event loop that runs in a thread of its own."""

from __future__ import annotations

import asyncio
import os
import queue
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

from tenure.errors import StoreError
from tenure.holds import owner
from tenure.locks import to_its_end

__all__ = ["Portal"]

T = TypeVar("T")


class Portal:
    """An event loop in a daemon thread, and the way into it from other threads."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._runner = asyncio.Runner()
        self._loop = self._runner.get_loop()
        self._thread = threading.Thread(target=self._run, name="tenure-blocking", daemon=True)
        self._thread.start()

    @property
    def is_inherited(self) -> bool:
        """Whether this is a copy in a forked child, where its thread does not exist."""
        return self._pid != os.getpid()

    @property
    def is_over(self) -> bool:
        """Whether nothing can be called any more."""
        return self.is_inherited or self._loop.is_closed()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` on the loop and wait for it; an interrupt of the waiting cancels it."""
        future = self._begin(work)
        try:
            return self._result(future)
        except BaseException:
            future.cancel()
            raise

    def call_with_body(
        self, body: Callable[[], Any], work: Callable[[Callable[[], Any]], Coroutine[Any, Any, T]]
    ) -> T:
        """Run `work(body)` on the loop, with `body` itself running in the calling thread."""
        errands: queue.SimpleQueue[Future[Any] | None] = queue.SimpleQueue()

        async def in_caller() -> Any:
            errand: Future[Any] = Future()
            errands.put(errand)
            return await to_its_end(asyncio.wrap_future(errand))

        future = self._begin(work(in_caller))
        future.add_done_callback(lambda _: errands.put(None))
        try:
            while (errand := errands.get()) is not None:
                _do(errand, body)
            return self._result(future)
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """End the loop. Whoever still waits for something of it gets a StoreError."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        try:
            if self.is_inherited:
                msg = "this app was opened by the parent process. Open one after the fork."
                raise StoreError(msg)
            if self._loop.is_closed():
                msg = "the app is closed."
                raise StoreError(msg)
            if threading.current_thread() is self._thread:
                msg = "the event loop of tenure.blocking cannot wait for itself."
                raise StoreError(msg)
            # The task takes over the context of this call, and with it who must not deadlock.
            token = owner.set(threading.current_thread())
            try:
                return asyncio.run_coroutine_threadsafe(work, self._loop)
            finally:
                owner.reset(token)
        except BaseException:
            work.close()
            raise

    def _result(self, future: Future[T]) -> T:
        try:
            return future.result()
        except CancelledError:
            msg = "the app was closed meanwhile."
            raise StoreError(msg) from None

    def _run(self) -> None:
        # Leaving the runner cancels what still runs and waits for it, so that nobody hangs.
        with self._runner:
            self._loop.run_forever()


def _do(errand: Future[Any], body: Callable[[], Any]) -> None:
    if not errand.set_running_or_notify_cancel():
        return
    try:
        value = body()
    except Exception as error:  # noqa: BLE001 - raised again where the body is awaited
        errand.set_exception(error)
    else:
        errand.set_result(value)
