"""A coroutine that a thread waits for, and a function that a coroutine waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar, cast

from tenure.errors import StoreError
from tenure.locks.lock import to_its_end

__all__ = ["CLOSED_MEANWHILE", "Body", "Call", "Carrier"]

T = TypeVar("T")

CLOSED_MEANWHILE = "the app was closed meanwhile."


class Carrier(BaseException):
    """Carries what must not be raised on the loop back to the thread that raised it.

    SystemExit and KeyboardInterrupt would end the loop, and asyncio has uses of its own for
    CancelledError and GeneratorExit.
    """

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error = error


class Call(Generic[T]):
    """A coroutine on an event loop, seen from a thread that waits for it.

    Not a `concurrent.futures.Future`: an interrupt of a thread that waits for one can leave its
    lock taken, and the loop would wait for that lock for ever. A SimpleQueue has none.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> None:
        self._loop = loop
        self._work = work
        self._task: asyncio.Task[T] | None = None
        self._is_refused = False
        self._outcomes: SimpleQueue[tuple[T | None, BaseException | None]] = SimpleQueue()
        self._results: list[T] = []
        self._is_done = False
        self._then: list[Callable[[], object]] = []

    # In the thread that waits.

    def result(self, patience: float | None = None) -> T:
        """Wait for its end, once; return its result or raise its error.

        Raises StoreError after `patience` seconds without an end.
        """
        try:
            value, error = self._outcomes.get(timeout=patience)
        except Empty:
            msg = f"the event loop of tenure.blocking has not answered within {patience:g} s."
            raise StoreError(msg) from None
        if error is None:
            return cast("T", value)
        try:
            raise error.error if isinstance(error, Carrier) else error
        finally:
            del error  # or its traceback would keep it alive

    def refuse(self) -> None:
        """Give it up before it was posted to the loop."""
        self._is_refused = True
        self._work.close()

    # On the loop.

    def start(self) -> None:
        """Begin, unless that was done or given up."""
        if self._task is None and not self._is_done and not self._is_refused:
            self._task = self._loop.create_task(self._guarded())
            self._task.add_done_callback(self._ended)

    async def end(self) -> None:
        """Wait for its end; begin if that was not done or given up."""
        self.start()
        if self._task is not None:
            await asyncio.wait([self._task])

    def cancel(self) -> None:
        """Stop it, or keep it from starting."""
        if self._task is None:
            self.refuse()
        else:
            self._task.cancel()

    def when_done(self, function: Callable[[], object]) -> None:
        """Call a function at its end, or now if it has ended."""
        if self._is_done:
            function()
        else:
            self._then.append(function)

    def then_undo(self, undo: Callable[[T], object]) -> None:
        """Call `undo` with its result, if it has one or gets one."""
        self.when_done(lambda: [undo(result) for result in self._results])

    def finish(self, value: T | None, error: BaseException | None) -> None:
        """Free the thread that waits for it; only the first time counts."""
        if not self._is_done:
            self._is_done = True
            self._outcomes.put((value, error))
            for function in self._then:
                function()
            self._then.clear()

    async def _guarded(self) -> T:
        try:
            return await self._work
        except (SystemExit, KeyboardInterrupt) as error:
            raise Carrier(error) from error

    def _ended(self, task: asyncio.Task[T]) -> None:
        self._task = None
        self._work.close()  # it was never awaited if the cancellation came before the first step
        if task.cancelled():
            self.finish(None, StoreError(CLOSED_MEANWHILE))
        elif (error := task.exception()) is not None:
            self.finish(None, error)
        else:
            self._results.append(task.result())
            self.finish(task.result(), None)


class Body:
    """A function that runs in the thread of its caller, seen from the loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        function: Callable[[], Any],
        post: Callable[[Callable[[], None]], None],
    ) -> None:
        self._loop = loop
        self._function = function
        self._post = post
        self._answer: asyncio.Future[Any] | None = None
        self.is_abandoned = False
        self.error: BaseException | None = None
        """What the function has raised."""

    # On the loop.

    async def run_in_its_thread(self) -> Any:
        """Have the thread call the function; return or raise its outcome.

        A cancellation waits for its end. Only after `abandon` there is nothing to wait for.
        """
        if self.is_abandoned:
            raise asyncio.CancelledError
        self._answer = self._loop.create_future()
        self._post(self._run)
        return await to_its_end(self._answer)

    def abandon(self) -> None:
        """End the waiting: the thread is gone, or the app is being closed."""
        self.is_abandoned = True
        if self._answer is not None:
            self._answer.cancel()

    def _take(self, value: Any, error: BaseException | None) -> None:
        assert self._answer is not None, "the loop waits for it"
        if self._answer.done():
            return
        if error is None:
            self._answer.set_result(value)
        else:
            self._answer.set_exception(error)

    # In the thread of the caller.

    def _run(self) -> None:
        value: Any = None
        error: BaseException | None = None
        try:
            value = self._function()
        except StopIteration as raised:  # which no future and no coroutine can raise
            error = RuntimeError(f"{raised!r} was raised")
            error.__cause__ = raised
        except Exception as raised:  # noqa: BLE001 - raised again where the body is awaited
            error = raised
        except BaseException as raised:  # noqa: BLE001 - likewise, by the thread itself
            error = Carrier(raised)
        self.error = error.error if isinstance(error, Carrier) else error
        with suppress(RuntimeError):  # the app was closed meanwhile
            self._loop.call_soon_threadsafe(self._take, value, error)
