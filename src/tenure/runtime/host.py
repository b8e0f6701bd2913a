"""The host: a second event loop, for renewals and heartbeats while the user's loop is blocked.

It has its own thread and its own connection to the store, both created at the first use. With a
virtual clock everything runs on the caller's loop, because a second thread would make the order of
events depend on the machine.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from tenure.core.health import Heartbeat
from tenure.runtime.clock_watch import ClockWatch
from tenure.runtime.data_loss import DataLossDetector
from tenure.runtime.store_retry import Outages
from tenure.stores.contract import Store

__all__ = ["Host", "HostedTask", "Pulse"]

T = TypeVar("T")

log = logging.getLogger("tenure")

# Stopping waits this long for a last call to the store. The thread is a daemon, so it never keeps
# the process alive.
_STOP_TIMEOUT = 6.0


class HostedTask:
    """A coroutine that runs on the host until it ends, fails or is stopped."""

    def __init__(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._work = work
        self._task: asyncio.Task[None] | None = None
        self.done = False

    def begin(self) -> None:
        """Start it. Called on the host's loop."""
        if not self.done:
            self._task = asyncio.ensure_future(self._run())

    async def end(self) -> None:
        """Cancel it and wait. Called on the host's loop."""
        self.done = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        try:
            await self._work()
        except (asyncio.CancelledError, GeneratorExit):  # RuntimeError: the loop has died
            raise
        except BaseException:  # an error that ends the loop would end all other work on it
            log.critical(
                "%r has ended; it is started again when next needed", self._work, exc_info=True
            )
        finally:
            self.done = True


class Pulse:
    """When the heartbeats of a worker succeed. Written on the host's loop, read elsewhere."""

    def __init__(self, since: float) -> None:
        self.since = since
        self.last: float | None = None
        """When the store has last confirmed one; None before it has joined."""


class Host:
    """Runs work beside an app, with a store of its own. Creates nothing before `start`."""

    def __init__(self, store: Store) -> None:
        self.store = store.clone()
        self.data = DataLossDetector()
        self.clock_watch = ClockWatch()
        self.outages = Outages()
        self._virtual = store.clock.virtual
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._hosted: list[HostedTask] = []
        self._open = False
        self._opening: asyncio.Lock | None = None
        self._pulses: list[Pulse] = []
        self._unanswered: list[float] = []  # when the thread was asked; the oldest question only

    async def open_store(self) -> Store:
        """Connect at the first use, so that short holds need no second connection.

        It does not check the format of the data. The app's store has done so, and a store that came
        back empty can still renew what was granted since.
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
        """Call a function on the host's loop, or directly if the host has no thread."""
        if not self._virtual and self._loop is not None:
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(function, value)
                return
        function(value)

    async def stop(self, hosted: HostedTask) -> None:
        """Stop a task that `start` returned, and wait for its end."""
        await self._on_host(hosted.end())

    # Health.

    def add_pulse(self) -> Pulse:
        """Note that a worker runs here; it says when its heartbeats succeed."""
        pulse = Pulse(self.store.clock.boot())
        self._pulses.append(pulse)
        return pulse

    def remove_pulse(self, pulse: Pulse) -> None:
        """Forget a worker that has stopped; harmless if it was forgotten before."""
        with suppress(ValueError):
            self._pulses.remove(pulse)

    def heartbeats(self) -> list[Heartbeat]:
        """Return how the workers of this process are: one entry for each."""
        now = self.store.clock.boot()
        return [
            Heartbeat(now - pulse.since, None if (last := pulse.last) is None else now - last)
            for pulse in list(self._pulses)
        ]

    @property
    def has_thread(self) -> bool:
        """Whether its thread was needed so far."""
        return self._loop is not None

    async def silence(self, patience: float) -> float:
        """Return for how many seconds the thread has not answered; 0 if it answers now.

        It gets `patience` seconds for that. Does not call the store. The time counts from the first
        question that was not answered, so it must be asked several times to learn of a long one.
        """
        loop = self._loop
        if loop is None:
            return 0.0
        clock, here, answered = self.store.clock, asyncio.get_running_loop(), asyncio.Event()

        def answer() -> None:
            self._unanswered.clear()
            with suppress(RuntimeError):  # the loop that has asked is closed
                here.call_soon_threadsafe(answered.set)

        if not self._unanswered:
            self._unanswered.append(clock.boot())
        try:
            loop.call_soon_threadsafe(answer)
        except RuntimeError:  # the thread has died
            return math.inf
        await clock.wait(answered, patience)
        return max((clock.boot() - since for since in self._unanswered), default=0.0)

    async def close(self, *, is_loop_closed: bool = False) -> None:
        """Stop everything and disconnect.

        `is_loop_closed`: the event loop of the app is closed. With a virtual clock the work ran on
        it and cannot be awaited. The host's thread is stopped as usual, from any loop.
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
            with suppress(RuntimeError):  # the loop is closed, and its thread has ended
                loop.call_soon_threadsafe(loop.stop)
            await asyncio.to_thread(self._thread.join, _STOP_TIMEOUT)

    @property
    def _has_died(self) -> bool:
        """Whether its thread has died, so that its connections cannot be closed."""
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

        Callbacks can raise SystemExit and KeyboardInterrupt out of it. In this thread they would
        not end the process, only its renewals and heartbeats.
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
