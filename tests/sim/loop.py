"""An event loop in virtual time: nothing sleeps, and the seed decides which process runs next.

Every callback belongs to a lane: one simulated process, or the world around them. Within a lane
callbacks keep the order that asyncio promises, because code may rely on it. Between lanes a seeded
generator decides at every step. Time stands still while a lane has something to run, and then jumps
to the next timer.
"""

from __future__ import annotations

import asyncio
import heapq
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, ContextVar, copy_context
from typing import TYPE_CHECKING, Any, TypeVar

__all__ = ["Handle", "Lane", "Stuck", "VirtualLoop", "current_lane"]

T = TypeVar("T")

if TYPE_CHECKING:
    _EventLoop = asyncio.BaseEventLoop  # for its signatures; the code below uses none of it
else:
    _EventLoop = asyncio.AbstractEventLoop

current_lane: ContextVar[Lane] = ContextVar("tenure_sim_lane")


class Stuck(Exception):
    """The simulation cannot end: no callback is left to run, or callbacks go on for ever."""


class Handle:
    """A scheduled callback."""

    __slots__ = ("args", "callback", "context", "lane")

    def __init__(
        self, callback: Callable[..., object] | None, args: tuple[Any, ...], context: Context
    ) -> None:
        self.callback = callback
        self.args = args
        self.context = context
        self.lane = context[current_lane]

    def cancel(self) -> None:
        self.callback = None

    def cancelled(self) -> bool:
        return self.callback is None


class Lane:
    """Callbacks that run in order: those of one process, or of the world around all processes."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.context = Context()
        self.context.run(current_lane.set, self)
        self.ready: deque[Handle] = deque()
        self.tasks: list[asyncio.Task[Any]] = []
        self.is_paused = False
        self.is_dead = False
        self.steps_left = 0
        """`on_last_step` is called after so many more steps; 0: never."""
        self.on_last_step: Callable[[], None] | None = None

    def unfinished(self) -> list[asyncio.Task[Any]]:
        """Return the tasks that have not ended, in the order in which they began."""
        return [task for task in self.tasks if not task.done()]


class VirtualLoop(_EventLoop):
    """Runs lanes of callbacks in virtual time. `chance` draws a number from 0 up to 1."""

    def __init__(self, chance: Callable[[], float]) -> None:
        self.world = Lane("world")
        self.steps = 0
        self.errors: list[str] = []
        """What asyncio reported to the exception handler, such as exceptions never retrieved."""
        self._chance = chance
        self._now = 0.0
        self._number = 0
        self._timers: list[tuple[float, int, Handle]] = []
        self._busy: list[Lane] = []
        self._closed = False

    # The interface of an event loop, as far as asyncio and the runtime need it.

    def time(self) -> float:
        return self._now

    # Handles are smaller than those of asyncio: no caller reads their attributes.

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Handle:
        if self._closed:
            msg = "the simulation is over"
            raise RuntimeError(msg)
        handle = Handle(callback, args, copy_context() if context is None else context)
        self._push(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> Handle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> Handle:
        handle = Handle(callback, args, copy_context() if context is None else context)
        self._number += 1
        heapq.heappush(self._timers, (when, self._number, handle))
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: Any = None,
        context: Context | None = None,
        **_: Any,
    ) -> asyncio.Task[T]:
        lane = current_lane.get() if context is None else context[current_lane]
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        lane.tasks.append(task)
        return task

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return not self._closed

    def is_closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        self._closed = True

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.errors.append(f"{context.get('message')}: {error!r}")

    # Running.

    def run(self, main: Coroutine[Any, Any, T], *, max_steps: int) -> T:
        """Run the world's own coroutine to its end; raise Stuck if it has none."""
        events._set_running_loop(self)  # noqa: SLF001 - made for event loops
        try:
            task = self.world.context.run(self.create_task, main)
            while not task.done():
                if self.steps > max_steps:
                    msg = f"no end after {max_steps} steps; the time is {self._now:.3f} s"
                    raise Stuck(msg)
                if self._busy:
                    self._step()
                else:
                    self._advance_time()
            return task.result()
        finally:
            events._set_running_loop(None)  # noqa: SLF001

    def _step(self) -> None:
        busy = self._busy
        lane = busy[0] if len(busy) == 1 else busy[int(self._chance() * len(busy))]
        handle = lane.ready.popleft()
        if not lane.ready:
            busy.remove(lane)
        callback = handle.callback
        if callback is None:
            return
        self.steps += 1
        try:
            handle.context.run(callback, *handle.args)
        except Exception as error:  # noqa: BLE001 - what a callback raises is the loop's to report
            self.call_exception_handler({"message": f"in {callback!r}", "exception": error})
        if lane.steps_left:
            lane.steps_left -= 1
            if not lane.steps_left and lane.on_last_step is not None:
                lane.on_last_step()

    def _advance_time(self) -> None:
        """Set the time to that of the next timer, and make all timers that are due then ready."""
        timers = self._timers
        while timers and timers[0][2].callback is None:
            heapq.heappop(timers)
        if not timers:
            msg = f"nothing is left to run; the time is {self._now:.3f} s"
            raise Stuck(msg)
        self._now = max(self._now, timers[0][0])
        while timers and timers[0][0] <= self._now:
            handle = heapq.heappop(timers)[2]
            if handle.callback is not None:
                self._push(handle)

    def _push(self, handle: Handle) -> None:
        lane = handle.lane
        if lane.is_dead:
            return
        if not lane.ready and not lane.is_paused:
            self._busy.append(lane)
        lane.ready.append(handle)

    # Faults of processes.

    def pause(self, lane: Lane) -> None:
        """Run no callback of a lane until `resume`. New callbacks queue up meanwhile."""
        if not lane.is_paused:
            lane.is_paused = True
            if lane in self._busy:
                self._busy.remove(lane)

    def resume(self, lane: Lane) -> None:
        if lane.is_paused and not lane.is_dead:
            lane.is_paused = False
            if lane.ready:
                self._busy.append(lane)

    def kill(self, lane: Lane) -> None:
        """Never run anything of a lane again: no handler, no `finally`, no callback."""
        lane.is_dead = True
        lane.ready.clear()
        if lane in self._busy:
            self._busy.remove(lane)
