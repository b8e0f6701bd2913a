"""The host: a second event loop, for what must go on while the user's own loop is blocked.

It has a thread and a connection to the store of its own, both made when they are first needed.
With a virtual clock everything runs on the caller's loop instead, because a second thread would
make the order of events depend on the machine.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from tenure.runtime.data_loss import DataLossDetector
from tenure.stores.contract import Store

__all__ = ["Host", "HostedTask"]

T = TypeVar("T")

log = logging.getLogger("tenure")

# Stopping waits this long for a last call to the store; the thread is a daemon, so it never keeps
# a process alive.
_STOP_TIMEOUT = 6.0


class HostedTask:
    """Something that runs on the host until it ends, fails or is stopped."""

    def __init__(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._work = work
        self._task: asyncio.Task[None] | None = None
        self.done = False

    def begin(self) -> None:
        """Start, on the host's loop."""
        if not self.done:
            self._task = asyncio.ensure_future(self._run())

    async def end(self) -> None:
        """Cancel it and wait, on the host's loop."""
        self.done = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        try:
            await self._work()
        except (asyncio.CancelledError, GeneratorExit):  # the latter with a loop that has died
            raise
        except BaseException:  # one that ends the loop would end the work of all others with it
            log.critical(
                "%r has ended; it is started again when next needed", self._work, exc_info=True
            )
        finally:
            self.done = True


class Host:
    """Runs work beside an app, with a store object of its own. Nothing is there until `start`."""

    def __init__(self, store: Store) -> None:
        self.store = store.clone()
        self.data = DataLossDetector()
        self._virtual = store.clock.virtual
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._hosted: list[HostedTask] = []
        self._open = False
        self._opening: asyncio.Lock | None = None

    async def open_store(self) -> Store:
        """Connect at the first need, so that short holds cost no second connection.

        The format is not looked at: the app's own store has done that, and a store that came back
        empty is still good for renewing what was granted since.
        """
        if not self._open:
            self._opening = self._opening or asyncio.Lock()
            async with self._opening:
                if not self._open:
                    await self.store.open("skip")
                    self._open = True
        return self.store

    def start(self, work: Callable[[], Coroutine[Any, Any, None]]) -> HostedTask:
        """Run `work` on the host's loop."""
        hosted = HostedTask(work)
        self._hosted = [task for task in self._hosted if not task.done]
        self._hosted.append(hosted)
        if self._virtual:
            hosted.begin()
        else:
            self._thread_loop().call_soon_threadsafe(hosted.begin)
        return hosted

    def call_soon(self, function: Callable[[T], object], value: T) -> None:
        """Call a function on the host, or here if there is none."""
        if not self._virtual and self._loop is not None:
            with suppress(RuntimeError):  # it has ended
                self._loop.call_soon_threadsafe(function, value)
                return
        function(value)

    async def stop(self, hosted: HostedTask) -> None:
        """End what was started and wait for that."""
        await self._on_host(hosted.end())

    async def close(self, *, is_loop_closed: bool = False) -> None:
        """Stop everything and disconnect.

        `is_loop_closed`: the event loop of the app is. With a virtual clock the work ran there, and
        cannot be awaited. A thread of its own is stopped as usual, from any loop.
        """
        if self._virtual and is_loop_closed:
            self.store.abandon()
            return
        for hosted in self._hosted:
            await self.stop(hosted)
        if self._has_died:
            self.store.abandon()
        elif self._virtual or self._loop is not None:
            await self._on_host(self.store.close())
        loop, self._loop = self._loop, None
        if loop is not None and self._thread is not None:
            with suppress(RuntimeError):  # it is closed, and its thread has ended
                loop.call_soon_threadsafe(loop.stop)
            await asyncio.to_thread(self._thread.join, _STOP_TIMEOUT)

    @property
    def _has_died(self) -> bool:
        """Whether its thread has ended by itself, and its connections are out of reach."""
        return self._loop is not None and self._loop.is_closed()

    async def _on_host(self, work: Coroutine[Any, Any, None]) -> None:
        if self._virtual:
            await work
        elif self._loop is None or self._has_died:
            work.close()
        else:
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
            with suppress(TimeoutError):
                await asyncio.wait_for(asyncio.wrap_future(future), _STOP_TIMEOUT)

    def _thread_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None or self._loop.is_closed():
            if self._has_died:
                self.store.abandon()
                self.store, self._open, self._opening = self.store.clone(), False, None
            loop = asyncio.new_event_loop()
            self._thread = threading.Thread(
                target=self._run, args=[loop], name="tenure-host", daemon=True
            )
            try:
                self._thread.start()
            except RuntimeError:
                loop.close()
                raise
            self._loop = loop
        return self._loop

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        """Run the loop until it is stopped.

        Callbacks can raise SystemExit and KeyboardInterrupt out of it. Here they would end no
        process, only the renewals and heartbeats of this one.
        """
        try:
            while True:
                try:
                    return loop.run_forever()
                except (SystemExit, KeyboardInterrupt):
                    log.critical(
                        "the thread that renews leases was interrupted; it goes on", exc_info=True
                    )
        except BaseException:
            log.critical(
                "the thread that renews leases has ended: what this process holds is lost with "
                "its ttl, and its jobs run elsewhere. Restart the process.",
                exc_info=True,
            )
        finally:
            for hosted in self._hosted:
                hosted.done = True
            loop.close()
