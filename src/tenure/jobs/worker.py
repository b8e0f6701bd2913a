"""Workers as users run them: inside another program, or as a program of their own."""

from __future__ import annotations

import asyncio
import logging
import math
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, contextmanager, suppress
from typing import Any, Self

from msgspec import Struct

from tenure.errors import StoreError
from tenure.runtime.work.worker import Worker

__all__ = ["EmbeddedWorker", "Signals", "StoreToCome", "run_until_stopped"]

log = logging.getLogger("tenure")

_ECHO_SECONDS = 0.5


class StoreToCome(Struct, frozen=True):
    """The store of a worker, which may be down when the app is opened."""

    is_awaited: Callable[[], bool]
    """Whether the app is open and has not reached it so far."""
    ready: Callable[[], Awaitable[None]]
    """Waits for it; raises what needs manual repair."""
    prepare: Callable[[], None]
    """Raises what is wrong with the worker whatever the store is."""


class EmbeddedWorker:
    """A worker inside this process, from entering to leaving the block.

    Leaving lets running jobs finish within the grace period and hands the rest back. It shares the
    process with your code: C code that holds the interpreter for longer than the replica's ttl
    stops its beats as well, and its jobs run elsewhere.
    """

    def __init__(
        self,
        make: Callable[[], Worker],
        lifespan: Callable[[], AbstractAsyncContextManager[Any]],
        store: StoreToCome,
    ) -> None:
        self._make = make
        self._lifespan = lifespan
        self._store = store
        self._stopped = asyncio.Event()
        self._is_cut_short = False
        self._made = asyncio.Event()
        self._entered = AsyncExitStack()
        self._worker: Worker | None = None
        self._running: asyncio.Task[None] | None = None

    @property
    def replica(self) -> str | None:
        """The id under which it is known; None before it has joined."""
        return None if self._worker is None else self._worker.replica

    async def __aenter__(self) -> Self:
        if self._store.is_awaited():
            self._store.prepare()
            work = self._work_later()
        else:
            await self._entered.enter_async_context(self._lifespan())
            try:
                work = self._make_worker().run()
            except BaseException:
                await self._entered.aclose()
                raise
        self._running = asyncio.create_task(work)
        self._running.add_done_callback(_tell_early_end)
        return self

    def _make_worker(self) -> Worker:
        self._worker = worker = self._make()
        self._made.set()
        return worker

    async def _work_later(self) -> None:
        """Wait for a store that was down when the app was opened, then begin; or be stopped."""
        ready = asyncio.ensure_future(self._store.ready())
        stopped = asyncio.ensure_future(self._stopped.wait())
        try:
            await asyncio.wait((ready, stopped), return_when=asyncio.FIRST_COMPLETED)
            if not ready.done():
                return
            ready.result()
        finally:
            ready.cancel()
            stopped.cancel()
        async with self._lifespan():
            worker = self._make_worker()
            if self._stopped.is_set():
                worker.stop()
            await worker.run()

    async def __aexit__(self, *_: object) -> None:
        assert self._running is not None
        try:
            self.stop_once()
            await self._until_ended()
        finally:
            await self._entered.aclose()
        self._running.result()

    async def _until_ended(self) -> None:
        """Wait for the end of the worker; a cancellation of this wait hands its jobs back now."""
        assert self._running is not None
        try:
            await asyncio.wait([self._running])
        except asyncio.CancelledError:
            if self._worker is not None:
                self._worker.stop_now()
            await asyncio.wait([self._running])
            raise

    @property
    def ends(self) -> dict[str, int]:
        """How many attempts have ended here: "succeeded", "failed", "retry", "cancelled" ..."""
        return {} if self._worker is None else self._worker.ends

    @property
    def has_drained(self) -> bool:
        """Whether it has ended by itself, as `burst` lets it: nothing was due and nothing ran."""
        return self._running is not None and self._running.done() and not self._is_cut_short

    async def ready(self) -> None:
        """Wait until it has joined and may get jobs.

        Raises what has ended the worker before that, or StoreError if it was stopped.
        """
        assert self._running is not None, "enter the worker first"
        joined = asyncio.ensure_future(self._joined())
        try:
            await asyncio.wait((joined, self._running), return_when=asyncio.FIRST_COMPLETED)
        finally:
            joined.cancel()
        if self._worker is None or not self._worker.is_ready.is_set():
            self._running.result()
            msg = "the worker was stopped before it had joined: it gets no jobs. Start a new one."
            raise StoreError(msg)

    async def _joined(self) -> None:
        await self._made.wait()
        assert self._worker is not None
        await self._worker.is_ready.wait()

    def stop(self) -> None:
        """Stop claiming and let running jobs finish; called again, hand them back now."""
        if self._worker is not None and self._worker.is_asked_to_stop:
            self._worker.stop_now()
        else:
            self.stop_once()

    def stop_once(self) -> None:
        """Stop claiming and let running jobs finish; again it means nothing more."""
        self._stopped.set()
        # Leaving the block stops it as well, after it may have ended by itself.
        self._is_cut_short |= self._running is None or not self._running.done()
        if self._worker is not None:
            self._worker.stop()

    async def ended(self) -> None:
        """Wait until it has stopped: with `burst`, until nothing is due and nothing runs here."""
        assert self._running is not None, "enter the worker first"
        await asyncio.wait([self._running])


async def run_until_stopped(worker: EmbeddedWorker) -> None:
    """Run a worker until SIGTERM or SIGINT; a second signal hands its jobs back at once."""
    async with worker:
        with _signals_to(worker.stop):
            await worker.ended()


class Signals:
    """Tells a signal from an echo of the one before.

    Shells and service managers send a signal to a process and to its whole group, and the parent of
    a worker may pass on what the worker gets anyway. Only people send it twice.
    """

    def __init__(self) -> None:
        self._counted_at = -math.inf

    def counts(self) -> bool:
        now = asyncio.get_running_loop().time()
        if now - self._counted_at < _ECHO_SECONDS:
            return False
        self._counted_at = now
        return True


@contextmanager
def _signals_to(stop: Callable[[], None]) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    handled: list[signal.Signals] = []
    signals = Signals()

    def received(number: signal.Signals) -> None:
        if not signals.counts():
            return
        again = "send the signal again to hand running jobs back at once"
        log.info("%s: stopping; %s", number.name, again)
        stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        # Only the main thread gets signals; elsewhere the program must call stop.
        with suppress(NotImplementedError, RuntimeError, ValueError):
            loop.add_signal_handler(number, received, number)
            handled.append(number)
    try:
        yield
    finally:
        for number in handled:
            loop.remove_signal_handler(number)


def _tell_early_end(running: asyncio.Task[None]) -> None:
    if not running.cancelled() and (error := running.exception()) is not None:
        log.critical("the worker has ended with an error", exc_info=error)
