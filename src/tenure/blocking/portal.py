"""The way from a thread into an event loop that runs in a thread of its own.

Whatever ends the waiting in the calling thread - an error, Ctrl-C, `sys.exit()` in a signal handler
- no coroutine stays behind on the loop: what waits for that thread ends as well.
"""

from __future__ import annotations

import asyncio
import logging
import os
import queue
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import copy_context
from typing import Any, TypeVar

from tenure.blocking.calls import CLOSED_MEANWHILE, Body, Call
from tenure.errors import StoreError
from tenure.runtime.background import Background
from tenure.runtime.leases.owners import current_caller, owner

__all__ = ["Portal"]

T = TypeVar("T")

log = logging.getLogger("tenure")

# A thread that does not run within this long never will: nothing has switched to it.
_START_SECONDS = 10.0
# How long what was interrupted may take to be undone when the app is closed.
_UNDO_SECONDS = 5.0

_CLOSED = "the app is closed."
_NO_THREAD = (
    "the event loop of tenure.blocking got no thread of its own, so nothing would renew leases "
    "while your code works. Under gevent leave threads, queues and select unpatched: "
    "monkey.patch_all(thread=False, queue=False, select=False). Under uWSGI start with "
    "--enable-threads."
)


class Portal:
    """An event loop in a daemon thread, and the way into it from other threads."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._runner = asyncio.Runner()
        self._loop = self._runner.get_loop()
        self._background = Background()
        self._bodies: set[Body] = set()
        self._calls: set[Call[Any]] = set()
        self._is_over = False
        self._changing = threading.Lock()  # of the calls, and whether it is over
        self._thread = threading.Thread(target=self._run, name="tenure-blocking", daemon=True)
        self._start()

    @property
    def is_inherited(self) -> bool:
        """Whether this is a copy in a forked child, where its thread does not exist."""
        return self._pid != os.getpid()

    @property
    def is_over(self) -> bool:
        """Whether nothing can be called any more."""
        return self.is_inherited or self._is_over

    def call(
        self,
        work: Coroutine[Any, Any, T],
        *,
        undo: Callable[[T], Coroutine[Any, Any, object]] | None = None,
        patience: float | None = None,
    ) -> T:
        """Run `work` on the loop and wait for it; an interrupt of the waiting cancels it.

        If it is too late for that, `undo` is run on its result. After `patience` seconds without an
        answer it is cancelled, and StoreError is raised.
        """
        call = Call(self._loop, work)
        try:
            self._begin(call)
            result = call.result(patience)
            self._calls.discard(call)
        except BaseException:
            self._calls.discard(call)
            self._abandon(call, undo)
            raise
        return result

    def finish(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run `work` on the loop and wait for it; after an interrupt it goes on by itself."""
        call: Call[T] | None = None
        try:
            call = Call(self._loop, work())
            self._begin(call)
            return call.result()
        except StoreError:
            raise
        except BaseException:
            # It may have come before anything was begun.
            self._on_loop(lambda: self._background.spawn(call.end() if call else work()))
            raise
        finally:
            if call is not None:
                self._calls.discard(call)

    def call_with_body(
        self, body: Callable[[], Any], work: Callable[[Callable[[], Any]], Coroutine[Any, Any, T]]
    ) -> T:
        """Run `work(body)` on the loop, with `body` itself running in the calling thread."""
        errands: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        there = Body(self._loop, body, errands.put)
        call = Call(self._loop, work(there.run_in_its_thread))
        call.when_done(lambda: errands.put(None))
        try:
            self._bodies.add(there)
            self._begin(call)
            while (errand := errands.get()) is not None:
                errand()
            if there.is_abandoned and there.error is not None:
                raise there.error  # the app was closed meanwhile, but this is the caller's own
            return call.result()
        except BaseException:
            self._on_loop(there.abandon)
            self._abandon(call)
            raise
        finally:
            self._bodies.discard(there)
            self._calls.discard(call)

    async def settle(self) -> None:
        """Wait, but not for long, until what was interrupted has been undone."""
        await self._background.drain(_UNDO_SECONDS)

    def close(self) -> None:
        """End the loop. Threads that wait for something of it get a StoreError."""
        self._on_loop(self._stop)
        self._thread.join()

    # Calls.

    def _begin(self, call: Call[Any]) -> None:
        try:
            self._check_usable()
            with self._changing:
                if self._is_over:
                    raise StoreError(_CLOSED)
                self._calls.add(call)
            self._post(call)
        except StoreError:
            call.refuse()
            raise

    def _post(self, call: Call[Any]) -> None:
        # The task takes over this context, and with it the owner that must not deadlock. It is a
        # copy: an interrupt before a reset would leave the owner set for all that runs here later.
        context = copy_context()
        context.run(owner.set, current_caller())
        try:
            self._loop.call_soon_threadsafe(call.start, context=context)
        except RuntimeError:  # it was closed just now
            raise StoreError(_CLOSED) from None

    def _check_usable(self) -> None:
        if self.is_inherited:
            msg = "this app was opened by the parent process. Open one after the fork."
            raise StoreError(msg)
        if threading.current_thread() is self._thread:
            msg = "the event loop of tenure.blocking cannot wait for itself."
            raise StoreError(msg)

    def _abandon(
        self, call: Call[T], undo: Callable[[T], Coroutine[Any, Any, object]] | None = None
    ) -> None:
        """Stop a call, or undo what it has done already."""

        def abandon() -> None:
            call.cancel()
            if undo is not None:
                call.then_undo(lambda result: self._background.spawn(undo(result)))

        self._on_loop(abandon)

    def _on_loop(self, function: Callable[[], object]) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(function)

    # The thread.

    def _start(self) -> None:
        threads: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._loop.call_soon(lambda: threads.put(threading.get_native_id()))
        try:
            self._thread.start()
        except RuntimeError:
            self._runner.close()
            raise
        try:
            other = threads.get(timeout=_START_SECONDS)
        except queue.Empty:
            other = None
        if other in (None, threading.get_native_id()):
            self._on_loop(self._stop)
            if not self._thread.is_alive():
                self._runner.close()
            raise StoreError(_NO_THREAD)

    def _run(self) -> None:
        try:
            # Leaving the runner cancels what still runs and waits for it.
            with self._runner:
                self._loop.run_forever()
        except BaseException:
            log.critical("the event loop of tenure.blocking has ended", exc_info=True)
        finally:
            with self._changing:
                self._is_over = True
                calls = list(self._calls)
            for call in calls:  # such as those that came in the last moment
                call.finish(None, StoreError(CLOSED_MEANWHILE))

    def _stop(self) -> None:
        """Free the loop of all that only the end of another thread would end, and stop it."""
        for body in list(self._bodies):
            body.abandon()
        self._loop.stop()
